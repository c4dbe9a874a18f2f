//! `unikai queues`: the tree of queues, what each may hold and holds, and how many workloads wait.

use std::process::ExitCode;

use super::client::{Client, Connection};
use super::show::{self, Colour, Look, Output, bar, bound, bytes, number, table};
use crate::api::views::{Queue, QueueList};

/// Arguments of `unikai queues`.
#[derive(Debug, clap::Args)]
pub struct Args {
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
    let list: QueueList = client.get("/queues").await?;
    show::answer(args.output, &list, |look| words(&list.queues, look))?;
    Ok(ExitCode::SUCCESS)
}

/// The tree as a table.
#[must_use]
pub fn words(queues: &[Queue], look: &Look) -> String {
    let mut headings = vec![
        "QUEUE",
        "GPUS",
        "FAIR",
        "QUOTA",
        "LIMIT",
        "REQUESTED",
        "WAITING",
        "RUNNING",
    ];
    if look.terminal {
        headings.insert(1, "");
    }
    if look.wide {
        headings.extend(["CPU", "MEMORY", "PRIORITY", "WEIGHT", "USED", "SCHEDULE"]);
    }
    let mut rows = vec![headings.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(queues.iter().map(|queue| row(queue, look)));
    let mut text = table(&rows);
    // Those below one that is held are held with it.
    let held = queues
        .iter()
        .filter_map(|queue| Some((queue, queue.held.as_ref()?)))
        .filter(|(queue, held)| held.queue.as_ref() == Some(&queue.name));
    for (queue, held) in held {
        let reason = held
            .reason
            .as_ref()
            .map_or_else(String::new, |reason| format!(" ({reason})"));
        let name = &queue.name;
        text += &look.paint(
            Colour::Yellow,
            &format!("Queue {name} is held{reason} and starts nothing; resume it: unikai drain queue {name} --undo"),
        );
        text.push('\n');
    }
    for queue in queues {
        if let Some(problem) = &queue.problem {
            text += &look.paint(Colour::Red, &show::sentence(problem));
            text.push('\n');
        }
    }
    text
}

fn row(queue: &Queue, look: &Look) -> Vec<String> {
    let over = queue.quota.gpu.is_some_and(|quota| queue.allocated.gpu > quota);
    let waiting = number(queue.waiting as f64);
    let mut row = vec![
        format!("{}{}", "  ".repeat(queue.depth), queue.name),
        number(queue.allocated.gpu),
        number(queue.fair_share.gpu),
        bound(queue.quota.gpu),
        bound(queue.limit.gpu),
        number(queue.requested.gpu),
        if queue.waiting > 0 {
            look.paint(Colour::Yellow, &waiting)
        } else {
            waiting
        },
        queue.running.to_string(),
    ];
    if look.terminal {
        let whole = queue.fair_share.gpu.max(queue.allocated.gpu);
        let colour = if over { Colour::Yellow } else { Colour::Green };
        row.insert(1, look.paint(colour, &bar(queue.allocated.gpu, whole, 10)));
    }
    if look.wide {
        let used = queue
            .used_over_time
            .map_or_else(|| "-".to_owned(), |used| format!("{}%", number(used.gpu * 100.0)));
        let entry = queue.schedule.as_ref().and_then(|schedule| schedule.entry.clone());
        row.extend([
            format!("{}/{}", number(queue.allocated.cpu), number(queue.fair_share.cpu)),
            format!("{}/{}", bytes(queue.allocated.memory), bytes(queue.fair_share.memory)),
            queue.priority.to_string(),
            number(queue.weight.gpu),
            used,
            entry.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    row
}
