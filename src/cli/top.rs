//! `unikai top`: queues, GPUs and waiting workloads, redrawn every few seconds.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use super::client::{Client, Connection};
use super::show::{self, Colour, Look, Output, bar, number, table};
use super::{jobs, queues};
use crate::api::views::{Node, NodeList, QueueList, Workload, WorkloadList};

/// Arguments of `unikai top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Print once and exit; the default if the output is not a terminal
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    connection: Connection,
}

/// Escape sequences that switch to the terminal's other screen, and back.
const OTHER_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const BACK: &str = "\x1b[?25h\x1b[?1049l";
/// Moves to the upper left corner; and clears to the end of a line.
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// Runs the subcommand.
///
/// # Errors
/// When the operator cannot be reached or refuses at the beginning.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::open(&args.connection).await?;
    if args.once || !std::io::stdout().is_terminal() {
        let picture = picture(&client, usize::MAX).await?;
        show::print(&picture)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before the screen is switched, so that an error stays readable.
    let mut last = picture(&client, lines()).await?;
    show::print(OTHER_SCREEN)?;
    let mut end = std::pin::pin!(tokio::signal::ctrl_c());
    draw(&last)?;
    loop {
        tokio::select! {
            _ = &mut end => break,
            () = tokio::time::sleep(Duration::from_secs(args.interval)) => {}
        }
        let update = picture(&client, lines()).await;
        draw(&updated(update, &mut last))?;
    }
    show::print(BACK)?;
    Ok(ExitCode::SUCCESS)
}

/// What to draw after an update: the new picture, or the error above the last picture.
fn updated(update: anyhow::Result<String>, last: &mut String) -> String {
    match update {
        Ok(picture) => {
            last.clone_from(&picture);
            picture
        }
        Err(error) => format!("{}\n{last}", first_line(&format!("{error:#}"))),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn draw(picture: &str) -> anyhow::Result<()> {
    let lines: Vec<String> = picture
        .lines()
        .take(lines())
        .map(|line| format!("{line}{REST_OF_LINE}"))
        .collect();
    show::print(&format!("{HOME}{}{REST_OF_SCREEN}", lines.join("\r\n")))
}

/// Lines of the terminal.
fn lines() -> usize {
    terminal_size::terminal_size().map_or(40, |(_, terminal_size::Height(lines))| usize::from(lines))
}

async fn picture(client: &Client, lines: usize) -> anyhow::Result<String> {
    let list: WorkloadList = client.list("/workloads").await?;
    // The caller may lack the right to list these.
    let queues: Option<QueueList> = client.get("/queues").await.ok();
    let nodes: Option<NodeList> = client.list("/nodes").await.ok();
    let look = Look::of(Output::Table);
    let nodes = nodes.as_ref().map(|list| list.nodes.as_slice());
    let mut text = summary(nodes, &list.workloads, &look);
    text.push('\n');
    if let Some(queues) = &queues {
        text += &queues::words(&queues.queues, &look);
        text.push('\n');
    }
    let mut waiting: Vec<Workload> = list.workloads.into_iter().filter(jobs::waits).collect();
    waiting.sort_by(|left, right| {
        let of = |workload: &Workload| (workload.position.unwrap_or(usize::MAX), workload.created);
        of(left).cmp(&of(right))
    });
    let room = lines.saturating_sub(text.lines().count() + 2);
    waiting.truncate(room);
    text += &if waiting.is_empty() {
        "Nothing waits.\n".to_owned()
    } else {
        jobs::words(&waiting, &look)
    };
    Ok(text + &show::remarks(&list.meta, true))
}

fn summary(nodes: Option<&[Node]>, workloads: &[Workload], look: &Look) -> String {
    let mut row = Vec::new();
    if let Some(nodes) = nodes {
        let gpus = || nodes.iter().filter_map(|node| node.gpus.as_ref());
        let (total, free): (f64, f64) = (gpus().map(|gpus| gpus.total).sum(), gpus().map(|gpus| gpus.free).sum());
        let used = total - free;
        row.push(format!("GPUs {} of {} in use", number(used), number(total)));
        if look.terminal {
            row.push(look.paint(Colour::Green, &bar(used, total, 20)));
        }
        let away = nodes.iter().filter(|node| !node.ready || node.cordoned).count();
        row.push(format!("Nodes {}, {away} of them take no pods", nodes.len()));
    }
    let waiting = workloads.iter().filter(|workload| jobs::waits(workload)).count();
    row.push(format!("Workloads {}, {waiting} of them wait", workloads.len()));
    table(&[row])
}

#[cfg(test)]
mod tests;
