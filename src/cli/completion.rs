//! `unikai completion`: what a shell needs to complete the command line.

use std::process::ExitCode;

use clap_complete::Shell;

use super::show;

/// Arguments of `unikai completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(unikai completion bash)
  unikai completion zsh > ~/.zfunc/_unikai
  unikai completion fish > ~/.config/fish/completions/unikai.fish";

/// Prints the script for the command line `command`.
///
/// # Errors
/// When standard output is gone.
pub fn run(args: Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "unikai", &mut text);
    show::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
