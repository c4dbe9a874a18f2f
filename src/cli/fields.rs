//! `unikai fields`: prints what every field of Config and SchedulingShard does, as Markdown, or writes it to `configuration.md`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output;
use crate::config::fields;

/// Arguments of `unikai fields`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write the file `configuration.md` into this folder instead of printing it
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// When the file cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let files = [("configuration.md".to_owned(), fields::document())];
    output::emit(&files, args.dir.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
