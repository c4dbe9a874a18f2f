//! `unikai jobs`: workloads, their state, why they wait, and their positions in their queues.

use std::process::ExitCode;

use super::client::{Client, Connection, Where};
use super::show::{self, Colour, Look, Output, number, table};
use crate::api::views::{Workload, WorkloadList, WorkloadState};

/// Arguments of `unikai jobs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    at: Where,

    /// Only workloads in this queue and those below it
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Only workloads with pods that wait
    #[arg(long)]
    waiting: bool,

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
    let mut asked = Vec::new();
    asked.extend(
        args.at
            .namespace(&client)
            .map(|namespace| format!("namespace={namespace}")),
    );
    asked.extend(args.queue.as_ref().map(|queue| format!("queue={queue}")));
    let mut list: WorkloadList = client.list(&format!("/workloads?{}", asked.join("&"))).await?;
    if args.waiting {
        list.workloads.retain(waits);
    }
    show::answer(args.output, &list, |look| {
        let mut text = words(&list.workloads, look);
        if list.workloads.is_empty() {
            text = "No workloads.\n".to_owned();
        }
        text + &show::remarks(&list.meta, true)
    })?;
    if let (Output::Table, Some(first)) = (args.output, list.workloads.iter().find(|workload| waits(workload))) {
        let Workload { namespace, name, .. } = first;
        // On standard error, so that scripts get the table only.
        eprintln!("\nMore about the first that waits: unikai explain podgroup {name} -n {namespace}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether some of its pods wait.
#[must_use]
pub fn waits(workload: &Workload) -> bool {
    workload.pods.waiting + workload.pods.gated > 0
}

/// The workloads as a table.
#[must_use]
pub fn words(workloads: &[Workload], look: &Look) -> String {
    let mut headings = vec!["NAMESPACE", "NAME", "QUEUE", "STATE", "PODS", "GPUS", "LINE", "AGE"];
    if look.wide {
        headings.extend(["PRIORITY", "PREEMPTIBLE", "STARTED", "CAUSE"]);
    }
    headings.push("REASON");
    let mut rows = vec![headings.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(workloads.iter().map(|workload| row(workload, look)));
    table(&rows)
}

fn row(workload: &Workload, look: &Look) -> Vec<String> {
    let state = match workload.state {
        WorkloadState::Waiting => look.paint(Colour::Yellow, "Waiting"),
        WorkloadState::PartlyRunning => look.paint(Colour::Yellow, "PartlyRunning"),
        WorkloadState::Running => look.paint(Colour::Green, "Running"),
        state => format!("{state:?}"),
    };
    let state = match (&workload.held, workload.state) {
        (None, _) | (_, WorkloadState::Leaving | WorkloadState::Finished | WorkloadState::Empty) => state,
        (Some(_), WorkloadState::Waiting) => look.paint(Colour::Yellow, "Held"),
        (Some(_), _) => format!("{state},{}", look.paint(Colour::Yellow, "Held")),
    };
    let pods = &workload.pods;
    let said = workload.verdict.as_ref();
    let mut row = vec![
        workload.namespace.clone(),
        workload.name.clone(),
        workload.queue.clone(),
        state,
        format!("{}/{}", pods.running, pods.wanted),
        number(workload.requested.gpu),
        workload
            .position
            .map_or_else(|| "-".to_owned(), |position| position.to_string()),
        look.age(workload.created),
    ];
    if look.wide {
        row.extend([
            workload.priority.to_string(),
            workload.preemptible.to_string(),
            look.age(workload.started),
            said.map_or_else(|| "-".to_owned(), |said| said.cause.clone()),
        ]);
    }
    row.push(said.map(|said| said.sentence.clone()).unwrap_or_default());
    row
}
