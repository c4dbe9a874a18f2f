//! The loop: the events up to an instant, the scheduler's decisions then, and their effects.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};

use super::event_queue::{EventQueue, SimEvent};
use super::objects;
use super::occupancy::Occupancy;
use super::report::{Ended, Recorder, Report};
use super::scenario::{Job, Machine, Queue, Scenario};
use crate::engine::decision::{Bind, Decisions, GroupTimes};
use crate::engine::input::{Counts, Event, Millis, Name, Table, Time};
use crate::engine::policy::Policy;
use crate::kinds::Object;
use crate::mirror::policy::from_shard;
use crate::mirror::{PackedChange, Settings};
use crate::scheduler_core::SchedulerCore;
use crate::usage::{self, Ledger};

/// Limit on cycles at one instant; they are repeated while they decide something.
const ROUNDS: usize = 64;
/// Default interval of cycles.
const CYCLE: Millis = 1_000;

/// Called after each instant with the number of ended jobs and of all jobs.
pub type Advance<'a> = &'a mut dyn FnMut(usize, usize);

/// Simulates a scenario, with `machines` and `jobs` of traces beside its own.
///
/// # Errors
/// If it is invalid.
pub fn run(
    scenario: &Scenario,
    mut machines: Vec<Machine>,
    jobs: Vec<Job>,
    advance: Advance<'_>,
) -> anyhow::Result<Report> {
    machines.extend(scenario.machines()?);
    let mut names = BTreeSet::new();
    if let Some(machine) = machines.iter().find(|machine| !names.insert(&*machine.name)) {
        bail!("two nodes are called {:?}", machine.name);
    }
    let (queues, jobs) = scenario.expand(jobs)?;
    let policy = from_shard(&scenario.shard, Policy::default());
    let policy = policy
        .map_err(|findings| anyhow::anyhow!("shard: {}", list(&findings)))?
        .policy;
    if scenario.until.is_none()
        && let Some(job) = jobs.iter().find(|job| job.runs.is_none())
    {
        bail!("job {:?} runs for ever: say when to stop (until)", job.name);
    }
    let mut world = World::new(scenario, &machines, &queues, jobs, policy)?;
    world.begin(&machines, &queues);
    world.go_on(scenario.until, advance)?;
    Ok(world.recorder.report(world.now, world.arrived, &world.occupancy))
}

fn list<T: ToString>(findings: &[T]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

struct World {
    now: Millis,
    cycle: Millis,
    termination: Millis,
    events: EventQueue,
    core: SchedulerCore,
    accounting: Option<Accounting>,
    jobs: Vec<Progress>,
    /// By uid: job and number.
    pods: Table<Name, (usize, usize)>,
    by_group: BTreeMap<String, usize>,
    /// Jobs that have arrived.
    arrived: usize,
    /// Arrived jobs that are not finished.
    open: usize,
    /// Pods that are on a node.
    pods_in_place: usize,
    occupancy: Occupancy,
    recorder: Recorder,
}

/// The usage of queues.
struct Accounting {
    ledger: Ledger,
    interval: Millis,
}

/// The state of a job.
struct Progress {
    job: Job,
    pods: Vec<PodState>,
    /// Pods that run.
    running: usize,
    /// Since when its minimum number of pods has been running.
    since: Option<Millis>,
    /// Number of its run.
    run: u32,
    /// Work that is done and saved.
    saved: Millis,
    started: bool,
    done: bool,
}

#[derive(Default)]
struct PodState {
    /// Number of pods created for this index of the job.
    generation: u32,
    created: Millis,
    place: Option<Box<Bind>>,
    leaving: bool,
}

impl Progress {
    fn name(&self, pod: usize) -> String {
        format!("{}-{pod}-{}", self.job.name, self.pods[pod].generation)
    }
}

impl World {
    fn new(
        scenario: &Scenario,
        machines: &[Machine],
        queues: &[Queue],
        jobs: Vec<Job>,
        policy: Policy,
    ) -> anyhow::Result<Self> {
        let accounting = match &scenario.shard.usage_db_config {
            None => None,
            Some(config) => {
                // Whatever the configured source: the simulation computes usage itself.
                let settings = usage::Settings::read(config, Some(""), &|_| Some(String::new()));
                let (settings, _) = settings.map_err(|problems| {
                    let lines = problems
                        .iter()
                        .map(|problem| format!("{}: {}", problem.path, problem.says));
                    anyhow::anyhow!("shard: usageDBConfig: {}", lines.collect::<Vec<_>>().join("; "))
                })?;
                Some(Accounting {
                    interval: i64::try_from(settings.interval.as_millis()).unwrap_or(i64::MAX),
                    ledger: Ledger::new(settings.window, settings.half_life),
                })
            }
        };
        let cycle = scenario.cycle.unwrap_or(CYCLE).max(1);
        let occupancy = Occupancy::new(machines, jobs.iter().map(|job| &job.shape));
        let names = queues.iter().map(|queue| queue.name.clone()).collect();
        let mut core = SchedulerCore::new(Settings::default(), policy);
        core.reserve(&Counts {
            nodes: machines.len(),
            groups: 0,
            pods: 0,
        });
        let progress = |job: Job| Progress {
            pods: (0..job.pods).map(|_| PodState::default()).collect(),
            job,
            running: 0,
            since: None,
            run: 0,
            saved: 0,
            started: false,
            done: false,
        };
        let jobs: Vec<Progress> = jobs.into_iter().map(progress).collect();
        Ok(Self {
            now: 0,
            cycle,
            termination: scenario.termination,
            events: EventQueue::default(),
            core,
            accounting,
            by_group: jobs
                .iter()
                .enumerate()
                .map(|(at, job)| (job.job.name.clone(), at))
                .collect(),
            jobs,
            pods: Table::default(),
            arrived: 0,
            open: 0,
            pods_in_place: 0,
            occupancy,
            recorder: Recorder::new(names, cycle),
        })
    }

    /// Adds nodes, queues and priority classes, and queues the events.
    fn begin(&mut self, machines: &[Machine], queues: &[Queue]) {
        for machine in machines {
            self.applied(Object::Node(objects::node(machine)));
        }
        for queue in queues {
            self.applied(Object::Queue(objects::queue(queue)));
        }
        let priorities: BTreeSet<i32> = self.jobs.iter().map(|job| job.job.priority).collect();
        for priority in priorities {
            self.applied(Object::PriorityClass(objects::priority_class(priority)));
        }
        for (at, job) in self.jobs.iter().enumerate() {
            self.events.add(job.job.arrives, SimEvent::Arrives(at));
        }
        if self.accounting.is_some() {
            self.events.add(0, SimEvent::Usage);
        }
    }

    fn applied(&mut self, object: Object) {
        self.tell(&PackedChange::Applied(object.into()));
    }

    fn tell(&mut self, change: &PackedChange) {
        let applied = self.core.apply(change, Time(self.now));
        self.recorder.unusable(&applied.rejections);
    }

    /// Runs until that time, or until no job runs or arrives any more.
    fn go_on(&mut self, until: Option<Millis>, advance: Advance<'_>) -> anyhow::Result<()> {
        let mut first = true;
        loop {
            let next = self.next(first);
            first = false;
            if let Some(until) = until.filter(|until| next.is_none_or(|next| next >= *until)) {
                self.now = until;
                self.record();
                return Ok(());
            }
            let Some(next) = next else { return Ok(()) };
            self.now = next;
            self.record();
            for _ in 0..ROUNDS {
                while let Some(event) = self.events.take(self.now) {
                    self.handle(event);
                }
                let decisions = self.core.cycle(Time(self.now), &mut |_| ());
                self.recorder.waits_for(&decisions.unschedulable, &decisions.cleared);
                if decisions.bind.is_empty() && decisions.evict.is_empty() && decisions.times.is_empty() {
                    break;
                }
                self.carry_out(&decisions)?;
            }
            self.account();
            advance(self.arrived.saturating_sub(self.open), self.jobs.len());
            let all_arrived = self.arrived == self.jobs.len();
            if all_arrived && self.open == 0 && until.is_none() {
                return Ok(());
            }
            // Jobs that wait now would wait for ever.
            if all_arrived && until.is_none() && self.pods_in_place == 0 {
                return Ok(());
            }
        }
    }

    /// The next cycle time with something to do.
    fn next(&self, first: bool) -> Option<Millis> {
        let wake = self.core.engine.next_wakeup(Time(self.now)).map(|(Time(at), _)| at);
        let next = [wake, self.events.next()].into_iter().flatten().min()?;
        let least = if first { 0 } else { self.now + self.cycle };
        let beats = next.max(least).saturating_add(self.cycle - 1) / self.cycle;
        Some(beats * self.cycle)
    }

    /// Records figures up to now.
    fn record(&mut self) {
        self.recorder.until(self.now, &self.core.engine, &self.occupancy);
    }

    /// Updates what queues hold.
    fn account(&mut self) {
        if let Some(accounting) = &mut self.accounting {
            let now = Time(self.now);
            accounting.ledger.capacity(self.core.engine.model().total(), now);
            for standing in self.core.engine.queues() {
                accounting.ledger.hold(&standing.queue, standing.allocated, now);
            }
        }
    }

    fn handle(&mut self, event: SimEvent) {
        match event {
            SimEvent::Arrives(job) => {
                self.arrived += 1;
                self.open += 1;
                let group = objects::group(&self.jobs[job].job, None);
                self.applied(Object::PodGroup(group));
                (0..self.jobs[job].pods.len()).for_each(|pod| self.wait(job, pod));
            }
            SimEvent::Done { job, run } => {
                if self.jobs[job].run == run && self.jobs[job].since.is_some() {
                    self.done(job);
                }
            }
            SimEvent::Left { job, .. } if self.jobs[job].done => {}
            SimEvent::Left { job, pod } => {
                self.gone(job, pod);
                self.jobs[job].pods[pod].generation += 1;
                self.wait(job, pod);
            }
            SimEvent::Usage => {
                let Some(accounting) = &mut self.accounting else { return };
                let usage = accounting.ledger.usage(Time(self.now));
                self.events.add(self.now + accounting.interval, SimEvent::Usage);
                self.core.engine.apply(Event::Usage(usage), Time(self.now));
            }
        }
    }

    /// Creates a pending pod.
    fn wait(&mut self, job: usize, pod: usize) {
        let now = self.now;
        let progress = &mut self.jobs[job];
        progress.pods[pod].created = now;
        let name = progress.name(pod);
        self.pods.insert((&*name).into(), (job, pod));
        let object = objects::pod(&self.jobs[job].job, &name, now, None, None);
        self.applied(Object::Pod(object));
    }

    /// Deletes a pod.
    fn gone(&mut self, job: usize, pod: usize) {
        let progress = &mut self.jobs[job];
        let name = progress.name(pod);
        let state = &mut progress.pods[pod];
        let bind = state.place.take();
        state.leaving = false;
        let object = objects::pod(&progress.job, &name, state.created, bind.as_deref(), None);
        if let Some(bind) = bind {
            self.pods_in_place -= 1;
            self.occupancy
                .count(&bind.node, &progress.job.shape, &groups(&bind), -1);
        }
        self.pods.remove(&*name);
        self.tell(&PackedChange::Deleted(Object::Pod(object).into()));
    }

    fn done(&mut self, job: usize) {
        let pods = self.jobs[job].pods.len();
        for pod in 0..pods {
            // Terminating pods are handled by their own event.
            self.gone(job, pod);
        }
        let progress = &mut self.jobs[job];
        progress.since = None;
        progress.running = 0;
        progress.done = true;
        self.open -= 1;
        self.recorder.ended(Ended::of(&progress.job, self.now));
        let group = objects::group(&progress.job, None);
        self.tell(&PackedChange::Deleted(Object::PodGroup(group).into()));
    }

    fn carry_out(&mut self, decisions: &Decisions) -> anyhow::Result<()> {
        for eviction in &decisions.evict {
            let (job, pod) = self.pod(&eviction.pod.uid)?;
            self.recorder.evicted(eviction.action);
            self.evict(job, pod);
        }
        for bind in &decisions.bind {
            let (job, pod) = self.pod(&bind.pod.uid)?;
            self.bind(job, pod, bind);
        }
        for times in &decisions.times {
            self.write_down(times);
        }
        Ok(())
    }

    fn pod(&self, uid: &Name) -> anyhow::Result<(usize, usize)> {
        let found = self.pods.get(uid).copied();
        found.with_context(|| format!("the scheduler decided about {uid:?}, which is not there"))
    }

    fn write_down(&mut self, times: &GroupTimes) {
        if let Some(&job) = self.by_group.get(times.group.name()) {
            let group = objects::group(&self.jobs[job].job, Some(times));
            self.applied(Object::PodGroup(group));
        }
    }

    fn bind(&mut self, job: usize, pod: usize, bind: &Bind) {
        let now = self.now;
        let progress = &mut self.jobs[job];
        let name = progress.name(pod);
        let state = &mut progress.pods[pod];
        state.place = Some(Box::new(bind.clone()));
        self.pods_in_place += 1;
        let object = objects::pod(&progress.job, &name, state.created, Some(bind), None);
        self.occupancy.count(&bind.node, &progress.job.shape, &groups(bind), 1);
        progress.running += 1;
        if progress.running >= progress.job.min.max(1) && progress.since.is_none() {
            progress.since = Some(now);
            progress.run += 1;
            if !std::mem::replace(&mut progress.started, true) {
                self.recorder.started(&progress.job, now);
            }
            if let Some(runs) = progress.job.runs {
                let run = progress.run;
                self.events
                    .add(now + runs - progress.saved, SimEvent::Done { job, run });
            }
        }
        self.applied(Object::Pod(object));
    }

    fn evict(&mut self, job: usize, pod: usize) {
        let now = self.now;
        let progress = &mut self.jobs[job];
        let name = progress.name(pod);
        let state = &mut progress.pods[pod];
        state.leaving = true;
        let leaves = now + self.termination;
        let object = objects::pod(
            &progress.job,
            &name,
            state.created,
            state.place.as_deref(),
            Some(leaves),
        );
        progress.running = progress.running.saturating_sub(1);
        if let Some(since) = progress.since.filter(|_| progress.running < progress.job.min.max(1)) {
            let worked = progress.saved + now - since;
            let saved = progress.job.checkpoint.map_or(0, |every| worked / every * every);
            let pods = progress.pods.iter().filter(|pod| pod.place.is_some()).count();
            self.recorder
                .lost((worked - saved.max(progress.saved)) * pods as i64 * progress.job.shape.gpu);
            progress.saved = saved.max(progress.saved);
            progress.since = None;
        }
        self.events.add(leaves, SimEvent::Left { job, pod });
        self.applied(Object::Pod(object));
    }
}

fn groups(bind: &Bind) -> Vec<String> {
    bind.gpu_groups.iter().map(ToString::to_string).collect()
}
