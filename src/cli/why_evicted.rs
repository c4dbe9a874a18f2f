//! `unikai why-evicted`: recent evictions, for which workload, and why.

use std::process::ExitCode;

use super::client::{Client, Connection, Where};
use super::show::{self, Look, Output, bound, number, sentence, table};
use crate::api::views::{Eviction, EvictionList};

/// Arguments of `unikai why-evicted`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this pod or pod group
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    at: Where,

    /// Maximum number of evictions
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,

    #[command(flatten)]
    connection: Connection,

    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the subcommand.
///
/// # Errors
/// When the operator cannot be reached or refuses.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::open(&args.connection).await?.printing(args.output);
    let mut asked = vec![format!("limit={}", args.limit)];
    asked.extend(
        args.at
            .namespace(&client)
            .map(|namespace| format!("namespace={namespace}")),
    );
    asked.extend(args.name.as_ref().map(|name| format!("name={name}")));
    let list: EvictionList = client.get(&format!("/evictions?{}", asked.join("&"))).await?;
    show::answer(args.output, &list, |look| {
        let text = match (list.evictions.as_slice(), &args.name) {
            ([], _) => format!("No evictions since {}.\n", list.since),
            (evictions, Some(_)) => evictions.iter().map(|eviction| at_length(eviction, look)).collect(),
            (evictions, None) => in_a_table(evictions, look),
        };
        text + &show::remarks(&list.meta, true)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn in_a_table(evictions: &[Eviction], look: &Look) -> String {
    let headings = ["AGO", "NAMESPACE", "POD", "WORKLOAD", "QUEUE", "NODE", "ACTION", "FOR"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    rows.extend(evictions.iter().map(|eviction| {
        vec![
            look.age(Some(eviction.at)),
            eviction.namespace.clone(),
            eviction.pod.clone(),
            eviction.workload.clone(),
            text(&eviction.queue),
            text(&eviction.node),
            eviction.action.clone(),
            text(&eviction.evicted_for),
        ]
    }));
    table(&rows)
}

fn at_length(eviction: &Eviction, look: &Look) -> String {
    let first = eviction.message.lines().next().unwrap_or_default();
    let mut text = format!("{}\n", sentence(first));
    let on = eviction
        .node
        .as_ref()
        .map_or_else(String::new, |node| format!(" from node {node}"));
    text += &format!("  {} ago{on}, by {}.\n", look.age(Some(eviction.at)), eviction.action);
    for side in &eviction.sides {
        text += &format!(
            "  Queue {} held {} of a fair share of {} GPUs, quota {}, priority {}.\n",
            side.queue,
            number(side.allocated.gpu),
            number(side.fair_share.gpu),
            bound(side.quota.gpu),
            side.priority
        );
    }
    for budget in &eviction.overruled_budgets {
        text += &format!("  The PodDisruptionBudget {budget} was overruled.\n");
    }
    text
}
