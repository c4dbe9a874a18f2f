//! `unikai docs`: writes the pages of `docs/` that are generated: the fields of the configuration, of the other objects, the flags, and the rules.

mod definitions;
mod flags;

use std::path::PathBuf;
use std::process::ExitCode;

use super::output;
use crate::config::fields;
use crate::rules;

/// Arguments of `unikai docs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write the files into this folder instead of printing them
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand, for the command line `command`.
///
/// # Errors
/// When the files cannot be written.
pub fn run(args: &Args, command: clap::Command) -> anyhow::Result<ExitCode> {
    let files = [
        ("configuration.md".to_owned(), fields::document()),
        ("reference/crds.md".to_owned(), definitions::document()),
        ("reference/flags.md".to_owned(), flags::document(command)),
        ("reference/rules.md".to_owned(), rules::document()),
    ];
    output::emit(&files, args.dir.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests;
