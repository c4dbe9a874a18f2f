//! `unikai explain`: why a pod or a pod group waits, and how a queue or a node stands.

use std::process::ExitCode;

use super::client::{Client, Connection, Subject, Where};
use super::show::{self, Colour, Look, Output, sentence};
use crate::api::views::Explanation;

/// Arguments of `unikai explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    subject: Subject<Kind>,

    #[command(flatten)]
    at: Where,

    #[command(flatten)]
    connection: Connection,

    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  unikai explain pod -n team train-0
  unikai explain queue team";

/// What can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A pod
    Pod,
    /// A pod group
    #[value(alias = "pg", alias = "job", alias = "workload")]
    Podgroup,
    /// A queue
    Queue,
    /// A node
    Node,
}

/// Runs the subcommand.
///
/// # Errors
/// When the operator cannot be reached or refuses.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::open(&args.connection).await?.printing(args.output);
    let name = &args.subject.name;
    let path = match args.subject.kind {
        Kind::Pod => format!("/explain/pods/{}/{name}", args.at.one(&client)),
        Kind::Podgroup => format!("/explain/podgroups/{}/{name}", args.at.one(&client)),
        Kind::Queue => format!("/explain/queues/{name}"),
        Kind::Node => format!("/explain/nodes/{name}"),
    };
    let explained: Explanation = client.get(&path).await?;
    show::answer(args.output, &explained, |look| words(&explained, look))?;
    Ok(ExitCode::SUCCESS)
}

/// The cause first, then the evidence, then further commands.
#[must_use]
pub fn words(explained: &Explanation, look: &Look) -> String {
    let mut text = format!("{}\n", sentence(&explained.verdict.sentence));
    if look.wide {
        text += &format!("Cause: {}\n", explained.verdict.cause);
    }
    for line in &explained.evidence {
        text += &format!("  {}\n", sentence(line));
    }
    if !explained.commands.is_empty() {
        text.push('\n');
    }
    for command in &explained.commands {
        text += &format!("{}\n", look.paint(Colour::Grey, command));
    }
    text + &show::remarks(&explained.meta, true)
}

#[cfg(test)]
mod tests;
