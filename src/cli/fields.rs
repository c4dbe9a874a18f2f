//! `unikai fields`: prints what every field of Config and SchedulingShard does, as Markdown. `unikai docs` writes it to `configuration.md`.

use std::process::ExitCode;

use super::show;
use crate::config::fields;

/// Arguments of `unikai fields`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the subcommand.
///
/// # Errors
/// When standard output is gone.
pub fn run(_: &Args) -> anyhow::Result<ExitCode> {
    show::print(&fields::document())?;
    Ok(ExitCode::SUCCESS)
}
