//! The whole world in one process: API server, nodes, several replicas of the operator, tenants and administrators, on virtual time and under
//! faults. One seed is one run. `docs/simulation.md` explains the output.

mod actors;
mod claims;
mod errors;
#[path = "../it/free_port.rs"]
mod free_port;
mod invariants;
mod network;
mod plan;
#[path = "../it/real_server.rs"]
mod real_server;
mod run;
mod shrink;
mod soak;
mod state;
mod story;
mod sub_groups;
mod volumes;
mod zones;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;

use network::Canary;
use run::{How, Outcome};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs seeds of the simulation.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// How many seeds
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The first seed; `fresh` draws one. Without it seeds begin at 1, and the canaries run, too
    #[arg(long, default_value = "")]
    from: String,
    /// Steps of each
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Threads, each of which runs one seed after the other
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Run every seed twice and compare
    #[arg(long)]
    twice: bool,
    /// Write the whole story of a run into this file
    #[arg(long)]
    story: Option<String>,
    /// Do not shrink failing runs
    #[arg(long)]
    no_shrink: bool,
    /// Start no further seed after so many seconds
    #[arg(long, default_value_t = u64::MAX)]
    seconds: u64,
    /// Go on after a failure
    #[arg(long)]
    go_on: bool,
    /// Filters for the test harness of cargo, which are ignored
    #[arg(hide = true)]
    _filter: Vec<String>,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("soak") {
        return soak::main();
    }
    let args = Args::parse();
    let first = match args.from.as_str() {
        "" => 1,
        "fresh" => u64::from(uuid::Uuid::new_v4().as_fields().0),
        number => number.parse().expect("--from is a number, or `fresh`"),
    };
    if cfg!(not(tokio_unstable)) {
        println!("built without `--cfg tokio_unstable` (.cargo/config.toml): runs of one seed may differ");
    }
    if !invariants::each_rule_can_be_broken() || !soak::logs_are_judged() {
        return ExitCode::FAILURE;
    }
    println!("seeds from {first} on, {} of {} steps each", args.seeds, args.steps);
    let (next, failed, steps, requests) = (
        AtomicU64::new(first),
        AtomicBool::new(false),
        AtomicU64::new(0),
        AtomicU64::new(0),
    );
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..args.threads {
            let worker = std::thread::Builder::new().stack_size(64 << 20);
            let work = || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let late = began.elapsed().as_secs() >= args.seconds;
                    if late || seed >= first + args.seeds || (failed.load(Ordering::Relaxed) && !args.go_on) {
                        return;
                    }
                    let (passed, sent) = one(seed, &args);
                    requests.fetch_add(sent, Ordering::Relaxed);
                    steps.fetch_add(args.steps as u64, Ordering::Relaxed);
                    if !passed {
                        failed.store(true, Ordering::Relaxed);
                    }
                }
            };
            worker.spawn_scoped(scope, work).expect("a thread");
        }
    });
    let (steps, took) = (steps.into_inner(), began.elapsed().as_secs_f64());
    println!(
        "{steps} steps, {} requests in {took:.1} s: {:.0} steps/s",
        requests.into_inner(),
        steps as f64 / took
    );
    let canaries = !args.from.is_empty() || canaries();
    if failed.into_inner() || !canaries {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs a seed; returns whether it passed, and the number of requests.
fn one(seed: u64, args: &Args) -> (bool, u64) {
    let steps = plan::draw(seed, args.steps);
    let how = How {
        canary: None,
        story: args.story.clone(),
    };
    let began = Instant::now();
    let outcome = run::run(seed, &steps, &how);
    if args.seeds < 10 {
        println!(
            "seed {seed}: {} requests, {:.1} s, hash {:x}",
            outcome.requests,
            began.elapsed().as_secs_f64(),
            outcome.hash
        );
    }
    let mut differ = false;
    // Without tokio's seed, runs may differ.
    let compare = args.twice || (cfg!(tokio_unstable) && args.from.is_empty() && seed == 1);
    if compare {
        let again = run::run(
            seed,
            &steps,
            &How {
                story: args.story.as_ref().map(|file| format!("{file}.2")),
                ..how.clone()
            },
        );
        if again.hash != outcome.hash {
            println!(
                "seed {seed}: two runs differ ({} and {} requests)",
                outcome.requests, again.requests
            );
            differ = true;
        }
    }
    let Outcome {
        violation: Some(violation),
        last,
        requests,
        ..
    } = outcome
    else {
        return (!differ, outcome.requests);
    };
    println!(
        "seed {seed} breaks {}: {}\n{last}",
        invariants::named(violation.rule),
        violation.what
    );
    if !args.no_shrink {
        let (steps, last) = shrink::shrink(seed, &steps, &violation, &how);
        println!("the same with {} steps:\n{last}", steps.len());
        for timed in &steps {
            println!("  {:?}, then {:?}", timed.step, timed.then);
        }
    }
    println!(
        "again: cargo test --test simulation -- --from {seed} --seeds 1 --steps {}",
        args.steps
    );
    (false, requests)
}

/// Each canary must violate its rule.
fn canaries() -> bool {
    // The kubelet may refuse the pod before the rule is evaluated.
    [(Canary::OneNode, &["N-1", "W-1"][..]), (Canary::TooLate, &["L-1"][..])]
        .into_iter()
        .all(|(canary, rules)| {
            let how = How {
                canary: Some(canary),
                story: None,
            };
            match run::run(0, &plan::for_canaries(), &how).violation {
                Some(violation) if rules.contains(&violation.rule) => {
                    println!("the canary {canary:?} breaks {}, as it should", violation.rule);
                    true
                }
                other => {
                    println!("the canary {canary:?} should break {rules:?}, and broke {other:?}");
                    false
                }
            }
        })
}
