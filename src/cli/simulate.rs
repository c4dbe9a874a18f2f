//! `unikai simulate`: what the scheduler would do, without a cluster.

mod shares;

use std::process::ExitCode;

/// Arguments of `unikai simulate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

/// What is simulated.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Divide resources among queues, and print each queue's fair share
    Shares(shares::Args),
}

/// Runs the subcommand.
///
/// # Errors
/// When a file cannot be read or standard output is gone.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Shares(args) => shares::run(&args),
    }
}
