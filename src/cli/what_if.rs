//! `unikai what-if`: what the scheduler would do now with the workloads of a file. Creates nothing.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::client::{Client, Connection};
use super::show::{self, Colour, Look, Output, sentence};
use crate::api::views::WhatIf;

/// Arguments of `unikai what-if`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Manifests of pods and workloads, as YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    filename: PathBuf,

    /// The namespace of objects without one [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// The SchedulingShard [default: that of the default node pool]
    #[arg(long, value_name = "NAME")]
    shard: Option<String>,

    #[command(flatten)]
    connection: Connection,

    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  unikai what-if -f job.yaml
  kubectl create job train --image=i --dry-run=client -o yaml | unikai what-if -f -

The status is 0 if all pods would run, and 1 if some would wait.";

/// Runs the subcommand.
///
/// # Errors
/// When the file cannot be read, or the operator cannot be reached or refuses.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::open(&args.connection).await?.printing(args.output);
    let answer = ask(&client, &args).await?;
    show::answer(args.output, &answer, |look| words(&answer, look))?;
    Ok(if answer.runs {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The operator groups the workloads, as that depends on its configuration and on namespaces and priority classes.
async fn ask(client: &Client, args: &Args) -> anyhow::Result<WhatIf> {
    let text = text(&args.filename).with_context(|| args.filename.display().to_string())?;
    let namespace = args.namespace.as_deref().unwrap_or(client.namespace());
    let shard = args.shard.as_ref();
    let shard = shard.map_or_else(String::new, |shard| format!("&shard={shard}"));
    client
        .post(&format!("/what-if?namespace={namespace}{shard}"), text)
        .await
}

fn text(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(file)?)
}

fn words(answer: &WhatIf, look: &Look) -> String {
    let mut text = String::new();
    let evicted = answer.evicts.len() + answer.evicts_others;
    let after = if evicted == 0 {
        String::new()
    } else {
        format!(" after {} evicted", pods_are(evicted))
    };
    if answer.runs {
        text += &look.paint(Colour::Green, &format!("All pods would run{after}."));
    } else if answer.binds.is_empty() {
        text += &look.paint(Colour::Yellow, "No pod would run now.");
    } else {
        let some = format!("Some pods would wait; {} would run{after}.", answer.binds.len());
        text += &look.paint(Colour::Yellow, &some);
    }
    text.push('\n');
    for bind in &answer.binds {
        let node = bind
            .node
            .as_ref()
            .map_or_else(String::new, |node| format!(" on {node}"));
        let later = if bind.after_evictions {
            ", once evicted pods have terminated"
        } else {
            ""
        };
        text += &format!("  {}/{} would run{node}{later}\n", bind.namespace, bind.pod);
    }
    for evicted in &answer.evicts {
        let (namespace, pod, workload) = (&evicted.namespace, &evicted.pod, &evicted.workload);
        text += &format!(
            "  {namespace}/{pod} of {workload} would be evicted by {}\n",
            evicted.action
        );
    }
    if answer.evicts_others > 0 {
        text += &format!(
            "  {} evicted in namespaces that you may not see\n",
            pods_are(answer.evicts_others)
        );
    }
    for waits in &answer.waits {
        text += &format!(
            "  {}/{} would wait: {}\n",
            waits.namespace,
            waits.workload,
            sentence(&waits.verdict.sentence)
        );
        for line in &waits.evidence {
            text += &format!("    {}\n", sentence(line));
        }
    }
    for note in &answer.notes {
        text += &format!("{}\n", sentence(note));
    }
    text
}

fn pods_are(count: usize) -> String {
    if count == 1 {
        "1 pod is".to_owned()
    } else {
        format!("{count} pods are")
    }
}

#[cfg(test)]
mod tests;
