//! A soak: the same rules in real time. The operator runs as processes, under a churn of pods and, if asked for, faults: of the network, of the
//! replicas, of kube-apiserver and etcd. `docs/simulation.md` says how to run one.

mod audit;
mod churn;
mod control_plane;
mod observer;
mod replicas;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Parser;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use unikai::devcluster::world::{NodeSpec, Timings, World, WorldHandle, WorldOptions};

use crate::actors::Actors;
use crate::invariants::{self, History, Rule};
use crate::network::{CrashPoint, LinkFault, LinksOfRun};
use crate::plan::{self, POOL, QUEUES, REPLICAS};
use crate::run;
use crate::story::Story;
pub use audit::logs_are_judged;
use churn::Churn;
use control_plane::{ControlPlane, Part};
use observer::Observer;
use replicas::{Process, Setting, Webhooks};

/// How often the rules are checked.
const CHECK: Duration = Duration::from_secs(2);
/// How often a real API server is asked for all objects, which its audit log has then.
const LISTED: Duration = Duration::from_secs(30);
/// How often the memory is measured.
const SAMPLE: Duration = Duration::from_secs(10);
/// How often the counts are printed.
const REPORT: Duration = Duration::from_mins(1);
/// How long a process must have run for its memory to count.
const WARM: Duration = Duration::from_secs(60);
/// How long after the last fault everything must be in order, and after the last deletion nothing may be left.
const REST: Duration = Duration::from_secs(400);
/// Between two faults, in ms.
const BETWEEN: std::ops::Range<u64> = 20_000..60_000;
/// The memory may grow by so much, from the second sixth of the run to the last.
const GROWTH: f64 = 0.05;
/// Shorter runs say nothing about it.
const LONG: Duration = Duration::from_mins(30);

/// Lets the operator run in real time under a churn of pods, and checks the rules.
#[derive(Parser, Clone, Debug)]
#[command(name = "soak")]
struct Args {
    /// How long pods come and go
    #[arg(long, default_value_t = 120)]
    minutes: u64,
    /// How many pods are created per second
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// How many replicas of the operator run
    #[arg(long, default_value_t = REPLICAS.len(), value_parser = replicas_at_most)]
    replicas: usize,
    /// On etcd and kube-apiserver, which are in the folder KUBEBUILDER_ASSETS, instead of the embedded API server
    #[arg(long)]
    real: bool,
    /// With faults
    #[arg(long)]
    faults: bool,
    /// What the faults and the pods are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write all requests of the operator into this file
    #[arg(long)]
    story: Option<String>,
}

fn replicas_at_most(text: &str) -> Result<usize, String> {
    let most = REPLICAS.len();
    let replicas = text.parse().ok().filter(|replicas| (1..=most).contains(replicas));
    replicas.ok_or_else(|| format!("not a number from 1 to {most}"))
}

/// Runs a soak with the arguments after `soak`.
pub fn main() -> ExitCode {
    let args = Args::parse_from(std::env::args().skip(1));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match runtime.block_on(Soak::run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Everything of a soak.
struct Soak {
    args: Args,
    story: Story,
    random: fastrand::Rng,
    control_plane: ControlPlane,
    _world: WorldHandle,
    observer: Observer,
    actors: Actors,
    setting: Setting,
    /// By their place.
    replicas: Vec<Option<Process>>,
    started: u64,
    history: History,
    /// When a part that was killed or stopped is started again.
    repairs: Vec<(Instant, Repair)>,
    bound: usize,
    faults: usize,
    /// The greatest memory of a replica at each sample, in KiB.
    memory: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Repair {
    Start(usize),
    Continue(usize),
    StartPart(Part),
}

impl Soak {
    async fn run(args: &Args) -> anyhow::Result<()> {
        // It is kept, with the logs of all processes.
        let folder = tempfile::tempdir()?.keep();
        println!("{args:?}\nlogs are in {}", folder.display());
        let control_plane = match crate::real_server::assets() {
            _ if !args.real => ControlPlane::embedded().await?,
            Some(assets) => ControlPlane::of_processes(&assets, &folder)?,
            None => anyhow::bail!("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"),
        };
        control_plane.ready().await?;
        let admin = control_plane.admin().await?;
        let actors = Actors::new(admin.clone(), admin.clone());
        actors.install().await;
        let world = World::start(admin.clone(), world(args.rate)).await?;
        let observer = Observer::start(&admin);
        let story = Story::begin(args.story.as_deref());
        let setting = Setting {
            folder,
            api_server: control_plane.for_operator().await?,
            links: LinksOfRun::new(&story, None, observer.with_state()),
            webhooks: Webhooks::serve().await?,
            seed: args.seed,
        };
        let mut soak = Self {
            args: args.clone(),
            story,
            random: fastrand::Rng::with_seed(args.seed),
            control_plane,
            _world: world,
            observer,
            actors,
            setting,
            replicas: (0..args.replicas).map(|_| None).collect(),
            started: 0,
            history: History::default(),
            repairs: Vec::new(),
            bound: 0,
            faults: 0,
            memory: Vec::new(),
        };
        for place in 0..args.replicas {
            soak.start(place).await?;
        }
        // Until webhooks are registered and the Lease is held.
        sleep(Duration::from_secs(10)).await;
        soak.go(admin).await
    }

    async fn go(&mut self, admin: kube::Client) -> anyhow::Result<()> {
        let end = CancellationToken::new();
        let mut lists = JoinSet::new();
        if self.control_plane.audit_log().is_some() {
            let admin = admin.clone();
            lists.spawn(async move {
                loop {
                    sleep(LISTED).await;
                    audit::list_all(&admin).await;
                }
            });
        }
        let churn = Churn::start(admin, self.args.rate, self.args.seed, end.clone());
        let began = Instant::now();
        let lasts = Duration::from_mins(self.args.minutes);
        let (mut next_sample, mut next_report) = (began, began);
        let mut next_fault = began + Duration::from_millis(BETWEEN.start);
        while began.elapsed() < lasts {
            sleep(CHECK).await;
            self.repair(Instant::now()).await?;
            self.check(invariants::ALWAYS)?;
            let now = Instant::now();
            if self.args.faults && now >= next_fault {
                self.fault(now).await;
                next_fault = now + Duration::from_millis(self.random.u64(BETWEEN));
            }
            if now >= next_sample {
                self.memory.extend(self.sample());
                next_sample = now + SAMPLE;
            }
            if now >= next_report {
                self.report(began, &churn);
                next_report = now + REPORT;
            }
        }
        println!("pods no longer come and go, and faults end");
        end.cancel();
        for process in self.replicas.iter().flatten() {
            process.link.end_faults();
        }
        self.repair(Instant::now() + Duration::from_hours(1)).await?;
        for queue in QUEUES {
            self.actors.limit(queue, -1, 0).await;
        }
        self.until(invariants::AT_REST).await?;
        println!("all workloads are deleted");
        self.report(began, &churn);
        churn.delete_all().await;
        self.until(invariants::EMPTY).await?;
        self.memory_is_flat(lasts)?;
        drop(lists);
        self.replay_audit_log().await?;
        println!("no rule is broken");
        Ok(())
    }

    /// Checks the rules after each write that a real API server has logged.
    async fn replay_audit_log(&mut self) -> anyhow::Result<()> {
        let Some(log) = self.control_plane.audit_log() else {
            return Ok(());
        };
        for mut process in self.replicas.iter_mut().filter_map(Option::take) {
            process.kill(&self.setting);
        }
        sleep(CHECK).await;
        // Some of the last writes may be of unknown effect.
        audit::list_all(&self.control_plane.admin().await?).await;
        sleep(CHECK).await;
        let shown = audit::replay(log)?;
        println!("audit log: {shown:?}");
        anyhow::ensure!(shown.uncertain == 0, "the end of the audit log is not known");
        Ok(())
    }

    /// Starts the replica of a place.
    async fn start(&mut self, place: usize) -> anyhow::Result<()> {
        self.started += 1;
        let process = Process::start(&self.setting, REPLICAS[place], self.started).await?;
        self.replicas[place] = Some(process);
        Ok(())
    }

    /// Checks rules, the logs, and whether all replicas run that should.
    fn check(&mut self, rules: &[Rule]) -> anyhow::Result<()> {
        for (place, slot) in self.replicas.iter_mut().enumerate() {
            let Some(process) = slot else { continue };
            let errors = process.errors();
            for error in errors.iter().filter(|_| !process.may_end()) {
                self.story.violation("E-1", format!("{}: {error}", process.name));
            }
            let ended = process.has_ended();
            if let Some(status) = ended.as_ref().filter(|_| !process.may_end()) {
                let what = format!("{} has ended: {status}", process.name);
                self.story.violation("E-1", what);
            }
            if ended.is_some() || process.link.has_crashed() {
                process.kill(&self.setting);
                *slot = None;
                self.repairs.push((Instant::now() + CHECK, Repair::Start(place)));
            }
        }
        let now = self.observer.state(self.story.at());
        self.history.take(&now);
        self.bound += self.history.new.len();
        for (rule, what) in invariants::broken(rules, &now, &self.history) {
            self.story.violation(rule.id, what);
        }
        match self.story.broken() {
            None => Ok(()),
            Some(violation) => anyhow::bail!(
                "{}broken: {}: {}",
                self.story.last(100),
                invariants::named(violation.rule),
                violation.what
            ),
        }
    }

    /// Waits until these rules hold, for as long as they may take.
    async fn until(&mut self, rules: &[Rule]) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            sleep(CHECK).await;
            self.repair(Instant::now()).await?;
            self.check(invariants::ALWAYS)?;
            let now = self.observer.state(self.story.at());
            match invariants::broken(rules, &now, &self.history).pop() {
                None => {
                    println!("everything is in order after {:.0} s", began.elapsed().as_secs_f64());
                    return Ok(());
                }
                Some(_) if began.elapsed() < REST => {}
                Some((rule, what)) => {
                    anyhow::bail!("{}broken: {}: {what}", self.story.last(100), invariants::named(rule.id))
                }
            }
        }
    }

    /// Begins a fault.
    async fn fault(&mut self, now: Instant) {
        let place = self.random.usize(0..self.replicas.len());
        let lasts = Duration::from_millis(self.random.u64(1_000..25_000));
        let kinds = if self.args.real { 12 } else { 10 };
        let kind = self.random.u8(0..kinds);
        if kind >= 10 {
            let part = if kind == 10 { Part::Etcd } else { Part::ApiServer };
            self.story
                .step(self.faults, &format!("{part:?} is killed, for {lasts:?}"));
            self.control_plane.kill(part);
            self.repairs.push((now + lasts, Repair::StartPart(part)));
            return;
        }
        let fault = match kind {
            0 => Some(LinkFault::Chance(*self.random.choice(&[5, 20, 60]).unwrap_or(&20))),
            1 => Some(LinkFault::Down(plan::some_kind(&mut self.random))),
            2 => Some(LinkFault::Cut(plan::some_kind(&mut self.random))),
            3 => Some(LinkFault::Stale(plan::some_kind(&mut self.random))),
            _ => None,
        };
        let Some(process) = &mut self.replicas[place] else {
            return;
        };
        let (name, link) = (process.name.clone(), process.link.clone());
        let what = if let Some(fault) = fault {
            link.fault(fault.clone(), lasts);
            format!("{fault:?} for {lasts:?}")
        } else {
            match kind {
                4 => {
                    link.drop_watches();
                    "watches break".to_owned()
                }
                5 => {
                    let write = self.random.u32(0..8);
                    let point = [CrashPoint::Before, CrashPoint::After][self.random.usize(0..2)];
                    link.crash_at(write, point);
                    format!("crashes {point:?} one of its next writes")
                }
                6 => {
                    process.kill(&self.setting);
                    self.replicas[place] = None;
                    self.repairs.push((now + lasts, Repair::Start(place)));
                    format!("is killed, for {lasts:?}")
                }
                7 => {
                    process.terminate();
                    "is told to end".to_owned()
                }
                8 => {
                    process.stop();
                    self.repairs.push((now + 2 * lasts, Repair::Continue(place)));
                    format!("is stopped for {:?}", 2 * lasts)
                }
                _ => {
                    let (queue, limit) = (self.random.usize(0..QUEUES.len()), self.random.i64(5..40));
                    self.actors.limit(QUEUES[queue], limit, 0).await;
                    format!("sees queue {} limited to {limit} GPUs", QUEUES[queue])
                }
            }
        };
        self.begins(&format!("{name} {what}"));
    }

    fn begins(&mut self, what: &str) {
        self.faults += 1;
        println!("{:>8.1} s: fault {}: {what}", self.story.at() as f64 / 1e3, self.faults);
        self.story.step(self.faults, what);
    }

    /// Starts again what is due.
    async fn repair(&mut self, now: Instant) -> anyhow::Result<()> {
        let (due, later) = self.repairs.drain(..).partition(|(at, _)| *at <= now);
        self.repairs = later;
        let due: Vec<(Instant, Repair)> = due;
        for (_, repair) in due {
            self.story.step(self.faults, &format!("{repair:?}"));
            match repair {
                Repair::Start(place) if self.replicas[place].is_none() => self.start(place).await?,
                Repair::Start(_) => {}
                Repair::Continue(place) => {
                    if let Some(process) = &mut self.replicas[place] {
                        process.resume();
                    }
                }
                Repair::StartPart(part) => self.control_plane.start(part)?,
            }
        }
        Ok(())
    }

    fn sample(&self) -> Option<u64> {
        let warm = self
            .replicas
            .iter()
            .flatten()
            .filter(|process| process.started.elapsed() > WARM);
        warm.filter_map(Process::memory).max()
    }

    fn report(&self, began: Instant, churn: &Churn) {
        let living = self.observer.state(0).pods.values().filter(|pod| pod.ours).count();
        let memory = self.replicas.iter().flatten().filter_map(Process::memory);
        let memory: Vec<_> = memory.map(|kib| format!("{} MiB", kib / 1024)).collect();
        println!(
            "{:>4.0} min: {} pods created, {} refused, {} bound, {living} there; {} faults; memory {}",
            began.elapsed().as_secs_f64() / 60.0,
            churn.counts.created.load(Ordering::Relaxed),
            churn.counts.refused.load(Ordering::Relaxed),
            self.bound,
            self.faults,
            memory.join(" and ")
        );
    }

    /// Compares the median of the second sixth of the run, when it is warm, with that of the last.
    fn memory_is_flat(&self, lasts: Duration) -> anyhow::Result<()> {
        if lasts < LONG {
            return Ok(());
        }
        let sixth = self.memory.len() / 6;
        let median = |samples: &[u64]| {
            let mut sorted = samples.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied().unwrap_or(0) as f64 / 1024.0
        };
        let early = median(&self.memory[sixth..2 * sixth]);
        let late = median(&self.memory[self.memory.len() - sixth..]);
        let growth = late / early - 1.0;
        println!(
            "memory: {early:.1} MiB early, {late:.1} MiB late: {:+.1} %",
            growth * 100.0
        );
        anyhow::ensure!(growth < GROWTH, "memory grows");
        Ok(())
    }
}

/// Nodes for this rate of pods: with fewer GPUs than pods ask for at times.
fn world(rate: u64) -> WorldOptions {
    let node = |name: String, gpus: u32| {
        let mut node = run::node(&name, gpus);
        (node.cpu_milli, node.pods) = (64_000, 110);
        node
    };
    let gpu_nodes = (rate * 4 / 5).max(4);
    let gpu = (0..gpu_nodes).map(|number| node(format!("gpu-{number}"), 8));
    let pool = (0..gpu_nodes.div_ceil(3)).map(|number| node(format!("{POOL}-{number}"), 8));
    let cpu = (0..gpu_nodes.div_ceil(8)).map(|number| node(format!("cpu-{number}"), 0));
    let nodes: Vec<NodeSpec> = gpu.chain(pool).chain(cpu).collect();
    WorldOptions {
        nodes,
        timings: Timings {
            pod_start: Duration::from_millis(300),
            termination: Duration::from_millis(500),
            ..Timings::default()
        },
        ..WorldOptions::default()
    }
}
