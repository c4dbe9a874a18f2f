//! `unikai nodes`: the GPUs of each node, and their use.

use std::process::ExitCode;

use super::client::{Client, Connection};
use super::show::{self, Colour, Look, Output, bytes, number, table};
use crate::api::views::{Node, NodeGpus, NodeList};

/// Arguments of `unikai nodes`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this node
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Only nodes with GPUs
    #[arg(long)]
    gpu: bool,

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
    if let Some(name) = &args.name {
        let node: Node = client.get(&format!("/nodes/{name}")).await?;
        show::answer(args.output, &node, |look| words(std::slice::from_ref(&node), look))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut list: NodeList = client.list("/nodes").await?;
    if args.gpu {
        list.nodes.retain(|node| node.gpus.is_some());
    }
    show::answer(args.output, &list, |look| {
        words(&list.nodes, look) + &show::remarks(&list.meta, false)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The nodes as a table.
#[must_use]
pub fn words(nodes: &[Node], look: &Look) -> String {
    let mut headings = vec![
        "NODE",
        "STATE",
        "GPUS",
        "FREE",
        "MAP",
        "CPU FREE",
        "MEMORY FREE",
        "PODS",
    ];
    if look.wide {
        headings.extend(["SHARD", "USERS"]);
    }
    let mut rows = vec![headings.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(nodes.iter().map(|node| row(node, look)));
    table(&rows)
}

fn row(node: &Node, look: &Look) -> Vec<String> {
    let state = match (node.ready, node.cordoned) {
        (false, _) => look.paint(Colour::Red, "NotReady"),
        (true, true) => look.paint(Colour::Yellow, "Cordoned"),
        (true, false) => "Ready".to_owned(),
    };
    let gpus = node.gpus.as_ref();
    let figure = |of: fn(&NodeGpus) -> f64| gpus.map_or_else(|| "-".to_owned(), |gpus| number(of(gpus)));
    let mut row = vec![
        node.name.clone(),
        state,
        figure(|gpus| gpus.total),
        figure(|gpus| gpus.free),
        gpus.map(|gpus| map(gpus, look)).unwrap_or_default(),
        format!("{}/{}", number(node.cpu.free), number(node.cpu.total)),
        format!("{}/{}", bytes(node.memory.free), bytes(node.memory.total)),
        node.pods.to_string(),
    ];
    if look.wide {
        row.extend([node.shard.clone(), gpus.map(users).unwrap_or_default()]);
    }
    row
}

/// Maximum number of GPUs drawn.
const DRAWN: usize = 64;

/// One character for each GPU: used, partly shared, free.
fn map(gpus: &NodeGpus, look: &Look) -> String {
    let parts: Vec<char> = "▁▂▃▄▅▆▇█".chars().collect();
    let shared = gpus.shared.iter().map(|gpu| {
        let eighth = (gpu.used.clamp(0.0, 1.0) * 8.0).ceil() as usize;
        parts[eighth.clamp(1, 8) - 1]
    });
    let shared: String = shared.take(DRAWN).collect();
    let free = gpus.free.max(0.0).floor() as usize;
    let whole = (gpus.total - gpus.free).max(0.0).round() as usize;
    let whole = whole.saturating_sub(gpus.shared.len());
    let whole = "█".repeat(whole.min(DRAWN));
    format!(
        "{whole}{}{}",
        look.paint(Colour::Yellow, &shared),
        look.paint(Colour::Grey, &"·".repeat(free.min(DRAWN)))
    )
}

fn users(gpus: &NodeGpus) -> String {
    let all = gpus.users.iter().chain(gpus.shared.iter().flat_map(|gpu| &gpu.users));
    let all: Vec<String> = all
        .map(|user| format!("{}/{}={}", user.namespace, user.pod, number(user.gpus)))
        .collect();
    all.join(",")
}
