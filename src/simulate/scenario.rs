//! What is simulated: nodes, queues, jobs and settings, as a user writes them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use jiff::SignedDuration;
use serde::Deserialize;

use crate::api::duration;
use crate::api::quantity::Amount;
use crate::api::shard::SchedulingShardSpec;
use crate::engine::input::Millis;

/// Limit on jobs, their pods, nodes and queues, so that a typing error in a number ends with a message.
const MOST: usize = 1_000_000;
const TOO_MANY: &str = "too many";
/// Limit on times.
const LONGEST: Millis = i64::MAX / 4;

/// A scenario, as a user writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// The cluster.
    #[serde(default)]
    pub nodes: Vec<Nodes>,
    /// The queues. Queues that jobs name and that are not here are top queues with weight 1.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// The jobs, by kind.
    #[serde(default)]
    pub workloads: Vec<Workload>,
    /// Jobs by numbers and intervals, as load generators for Kueue describe them.
    #[serde(default)]
    pub generator: Option<Generator>,
    /// How the scheduler schedules: the spec of a SchedulingShard.
    #[serde(default)]
    pub shard: SchedulingShardSpec,
    /// When to stop; if absent, when no job runs or arrives any more.
    #[serde(default, deserialize_with = "optional_span")]
    pub until: Option<Millis>,
    /// How long an evicted pod takes to terminate and to be created again.
    #[serde(default, deserialize_with = "span")]
    pub termination: Millis,
    /// Interval of the scheduler's cycles; 1s if absent.
    #[serde(default, deserialize_with = "optional_span")]
    pub cycle: Option<Millis>,
}

/// Equal nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nodes {
    /// Name, with a number behind it if there are several.
    pub name: String,
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// GPUs of each.
    #[serde(default)]
    pub gpus: i64,
    /// The model of the GPUs.
    #[serde(default)]
    pub model: Option<String>,
    /// Cpu of each, a quantity; plenty if absent.
    #[serde(default = "plenty_of_cpu")]
    pub cpu: String,
    /// Memory of each, a quantity; plenty if absent.
    #[serde(default = "plenty_of_memory")]
    pub memory: String,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A queue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// The queue above.
    #[serde(default)]
    pub parent: Option<String>,
    /// 100 if absent.
    #[serde(default)]
    pub priority: Option<i64>,
    /// GPUs; no quota, no limit and weight 1 if absent.
    #[serde(default)]
    pub gpu: Share,
    /// Milli-cores; an unlimited quota if absent.
    #[serde(default)]
    pub cpu: Option<Share>,
    /// Megabytes; an unlimited quota if absent.
    #[serde(default)]
    pub memory: Option<Share>,
    /// Minimum run time before preemption.
    #[serde(default)]
    pub preempt_min_runtime: Option<String>,
    /// Minimum run time before reclaim.
    #[serde(default)]
    pub reclaim_min_runtime: Option<String>,
}

/// A queue's share of a resource; -1 = unlimited.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Share {
    /// Quota.
    pub quota: f64,
    /// Limit.
    pub limit: f64,
    /// Over-quota weight.
    pub weight: f64,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            quota: 0.0,
            limit: -1.0,
            weight: 1.0,
        }
    }
}

impl Share {
    /// An unlimited quota.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            quota: -1.0,
            ..Self::default()
        }
    }
}

/// Equal jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Name, with a number behind it if there are several.
    pub name: String,
    /// Their queue.
    pub queue: String,
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// When the first arrives.
    #[serde(default, deserialize_with = "span")]
    pub at: Millis,
    /// Time between two arrivals.
    #[serde(default, deserialize_with = "span")]
    pub every: Millis,
    /// Pods of each.
    #[serde(default = "one")]
    pub pods: usize,
    /// Pods that must run together; all if absent.
    #[serde(default)]
    pub min_member: Option<usize>,
    /// GPUs of each pod: a whole number, or less than one.
    #[serde(default)]
    pub gpus: f64,
    /// Accepted GPU models; any if empty.
    #[serde(default)]
    pub models: Vec<String>,
    /// Cpu of each pod, a quantity.
    #[serde(default = "little_cpu")]
    pub cpu: String,
    /// Memory of each pod, a quantity.
    #[serde(default = "little_memory")]
    pub memory: String,
    /// How long it runs; until the end if absent.
    #[serde(default, deserialize_with = "optional_span")]
    pub duration: Option<Millis>,
    /// Interval of checkpoints; none if absent.
    #[serde(default, deserialize_with = "optional_span")]
    pub checkpoint: Option<Millis>,
    /// Its priority; preemptible below 100; 50 if absent.
    #[serde(default)]
    pub priority: Option<i32>,
}

/// Generates queues and jobs by numbers and intervals.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Generator {
    /// What `request` and `nominalQuota` count: GPUs if true, else cores.
    #[serde(default)]
    pub gpus: bool,
    /// Groups of queues.
    pub cohorts: Vec<Cohort>,
}

/// Equal groups of queues. Each group becomes a queue with child queues.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cohort {
    /// Prefix of their names.
    pub class_name: String,
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// Their queues.
    pub queues_sets: Vec<QueuesSet>,
}

/// Equal queues.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueuesSet {
    /// Prefix of their names.
    pub class_name: String,
    /// How many in each group.
    #[serde(default = "one")]
    pub count: usize,
    /// Quota of each.
    #[serde(default)]
    pub nominal_quota: f64,
    /// What each may hold beyond its quota; unlimited if absent.
    #[serde(default)]
    pub borrowing_limit: Option<f64>,
    /// The jobs of each.
    pub workloads_sets: Vec<WorkloadsSet>,
}

/// Jobs that arrive at intervals.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadsSet {
    /// How many of each class.
    #[serde(default = "one")]
    pub count: usize,
    /// The interval.
    #[serde(default)]
    pub creation_interval_ms: Millis,
    /// The classes, which take turns.
    pub workloads: Vec<WorkloadClass>,
}

/// A class of jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadClass {
    /// Prefix of their names.
    pub class_name: String,
    /// How long each runs.
    pub runtime_ms: Millis,
    /// Their priority.
    #[serde(default)]
    pub priority: i32,
    /// Request of each.
    pub request: f64,
}

/// A job with its time of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// Time of arrival.
    pub arrives: Millis,
    /// How many pods it has.
    pub pods: usize,
    /// How many of them must run together.
    pub min: usize,
    /// Request of each pod.
    pub shape: Shape,
    /// Its priority.
    pub priority: i32,
    /// How long it runs; `None`: until the end.
    pub runs: Option<Millis>,
    /// Interval of checkpoints.
    pub checkpoint: Option<Millis>,
}

/// The request of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Milli-cores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Thousandths of a GPU: a part of one, or whole ones.
    pub gpu: i64,
    /// Accepted GPU models; any if empty.
    pub models: Vec<String>,
}

/// Priority of jobs that state none.
pub const PRIORITY: i32 = 50;

impl Workload {
    fn jobs(&self) -> anyhow::Result<impl Iterator<Item = Job> + '_> {
        ensure!(self.pods > 0, "pods: must be above 0");
        ensure!(self.every <= LONGEST / MOST as i64, "every: too long");
        let gpu = thousandths(self.gpus).context("gpus")?;
        let shape = Shape {
            cpu: amount(&self.cpu, 1_000).context("cpu")?,
            memory: amount(&self.memory, 1).context("memory")?,
            gpu,
            models: self.models.clone(),
        };
        Ok((0..self.count).map(move |number| Job {
            name: numbered(&self.name, number, self.count),
            queue: self.queue.clone(),
            arrives: self.at + self.every * number as i64,
            pods: self.pods,
            min: self.min_member.unwrap_or(self.pods).min(self.pods),
            shape: shape.clone(),
            priority: self.priority.unwrap_or(PRIORITY),
            runs: self.duration,
            checkpoint: self.checkpoint.filter(|every| *every > 0),
        }))
    }
}

impl Generator {
    /// Queues and jobs.
    fn expand(&self) -> anyhow::Result<(Vec<Queue>, Vec<Job>)> {
        let (mut queues, mut jobs) = (Vec::new(), Vec::new());
        for cohort in &self.cohorts {
            ensure!(queues.len().saturating_add(cohort.count) <= MOST, TOO_MANY);
            for number in 0..cohort.count {
                let parent = numbered(&cohort.class_name, number, cohort.count);
                queues.push(Queue {
                    name: parent.clone(),
                    gpu: Share::unlimited(),
                    ..Queue::default()
                });
                for set in &cohort.queues_sets {
                    ensure!(queues.len().saturating_add(set.count) <= MOST, TOO_MANY);
                    for number in 0..set.count {
                        let name = format!("{parent}-{}", numbered(&set.class_name, number, set.count));
                        queues.push(self.queue(&name, &parent, set));
                        for set in &set.workloads_sets {
                            self.jobs(&name, set, &mut jobs)?;
                        }
                    }
                }
            }
        }
        Ok((queues, jobs))
    }

    fn queue(&self, name: &str, parent: &str, set: &QueuesSet) -> Queue {
        let factor = if self.gpus { 1.0 } else { 1_000.0 };
        let share = Share {
            quota: set.nominal_quota * factor,
            limit: set
                .borrowing_limit
                .map_or(-1.0, |more| (set.nominal_quota + more) * factor),
            weight: 1.0,
        };
        let unlimited = Share::unlimited();
        let (gpu, cpu) = if self.gpus {
            (share, unlimited)
        } else {
            (unlimited, share)
        };
        Queue {
            name: name.to_owned(),
            parent: Some(parent.to_owned()),
            gpu,
            cpu: Some(cpu),
            ..Queue::default()
        }
    }

    fn jobs(&self, queue: &str, set: &WorkloadsSet, jobs: &mut Vec<Job>) -> anyhow::Result<()> {
        ensure!(set.creation_interval_ms >= 0, "creationIntervalMs: below 0");
        ensure!(
            set.creation_interval_ms <= LONGEST / MOST as i64,
            "creationIntervalMs: too long"
        );
        for class in &set.workloads {
            let wrong = || format!("class {:?}", class.class_name);
            ensure!(jobs.len().saturating_add(set.count) <= MOST, TOO_MANY);
            ensure!(class.runtime_ms >= 0, "{}: runtimeMs: below 0", wrong());
            ensure!(class.runtime_ms <= LONGEST, "{}: runtimeMs: too long", wrong());
            let request = (class.request * 1_000.0).round() as i64;
            ensure!(request >= 0, "{}: request: below 0", wrong());
            for number in 0..set.count {
                let (gpu, cpu) = if self.gpus { (request, 1) } else { (0, request) };
                jobs.push(Job {
                    name: format!("{queue}-{}-{number}", class.class_name),
                    queue: queue.to_owned(),
                    arrives: set.creation_interval_ms * number as i64,
                    pods: 1,
                    min: 1,
                    shape: Shape {
                        cpu,
                        gpu,
                        ..Shape::default()
                    },
                    priority: class.priority,
                    runs: Some(class.runtime_ms),
                    checkpoint: None,
                });
            }
        }
        Ok(())
    }
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// If it is not a valid scenario.
    pub fn read(yaml: &str) -> anyhow::Result<Self> {
        serde_yaml_ng::from_str(yaml).context("no scenario")
    }

    /// All queues and jobs, `more` among them, in order of arrival; adds the queues that jobs name and the scenario does not describe.
    ///
    /// # Errors
    /// If they are invalid.
    pub fn expand(&self, more: Vec<Job>) -> anyhow::Result<(Vec<Queue>, Vec<Job>)> {
        let (mut queues, mut jobs, mut pods) = (self.queues.clone(), more, 0_usize);
        for workload in &self.workloads {
            pods = pods.saturating_add(workload.count.saturating_mul(workload.pods));
            ensure!(pods <= MOST, "there are more than {MOST} pods");
            let expanded = workload
                .jobs()
                .with_context(|| format!("workload {:?}", workload.name))?;
            jobs.extend(expanded);
            ensure!(jobs.len() <= MOST, "there are more than {MOST} jobs");
        }
        if let Some(generator) = &self.generator {
            let (its, theirs) = generator.expand().context("generator")?;
            queues.extend(its);
            jobs.extend(theirs);
        }
        let mut known = BTreeSet::new();
        for queue in &queues {
            ensure!(
                known.insert(queue.name.clone()),
                "two queues are called {:?}",
                queue.name
            );
        }
        for job in &jobs {
            if known.insert(job.queue.clone()) {
                queues.push(Queue {
                    name: job.queue.clone(),
                    ..Queue::default()
                });
            }
        }
        let parents: BTreeSet<&str> = queues.iter().filter_map(|queue| queue.parent.as_deref()).collect();
        if let Some(job) = jobs.iter().find(|job| parents.contains(&*job.queue)) {
            bail!(
                "job {:?} is in the queue {:?}, which has queues below it",
                job.name,
                job.queue
            );
        }
        if let Some(missing) = parents.iter().find(|parent| !known.contains(**parent)) {
            bail!("no queue is called {missing:?}");
        }
        let mut names = BTreeSet::new();
        if let Some(job) = jobs.iter().find(|job| !names.insert(&*job.name)) {
            bail!("two jobs are called {:?}", job.name);
        }
        jobs.sort_by_key(|job| job.arrives);
        Ok((queues, jobs))
    }

    /// The nodes, one by one.
    ///
    /// # Errors
    /// If they are invalid.
    pub fn machines(&self) -> anyhow::Result<Vec<Machine>> {
        let mut machines = Vec::new();
        for nodes in &self.nodes {
            let wrong = || format!("nodes {:?}", nodes.name);
            let all = machines.len().saturating_add(nodes.count);
            ensure!(all <= MOST, "{}: {TOO_MANY}", wrong());
            ensure!(nodes.gpus >= 0, "{}: gpus: below 0", wrong());
            ensure!(nodes.gpus <= MOST as i64, "{}: gpus: {TOO_MANY}", wrong());
            let (cpu, memory) = (
                amount(&nodes.cpu, 1_000).with_context(wrong)?,
                amount(&nodes.memory, 1).with_context(wrong)?,
            );
            machines.extend((0..nodes.count).map(|number| Machine {
                name: numbered(&nodes.name, number, nodes.count),
                cpu,
                memory,
                gpus: nodes.gpus,
                model: nodes.model.clone(),
                labels: nodes.labels.clone(),
            }));
        }
        Ok(machines)
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Milli-cores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// GPUs.
    pub gpus: i64,
    /// Their model.
    pub model: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

fn one() -> usize {
    1
}

fn plenty_of_cpu() -> String {
    "1k".to_owned()
}

fn plenty_of_memory() -> String {
    "4Ti".to_owned()
}

fn little_cpu() -> String {
    "1m".to_owned()
}

fn little_memory() -> String {
    "1Mi".to_owned()
}

fn numbered(name: &str, number: usize, count: usize) -> String {
    if count == 1 {
        name.to_owned()
    } else {
        format!("{name}-{number}")
    }
}

/// A quantity, as a multiple of 1/`parts`.
fn amount(text: &str, parts: i64) -> anyhow::Result<i64> {
    let amount: Amount = text.parse().with_context(|| format!("{text:?} is not a quantity"))?;
    let read = if parts == 1_000 { amount.milli() } else { amount.units() };
    ensure!(read >= 0, "{text:?} is less than 0");
    Ok(read)
}

/// GPUs in thousandths: whole ones, or a part of one.
fn thousandths(gpus: f64) -> anyhow::Result<i64> {
    let milli = (gpus * 1_000.0).round() as i64;
    ensure!(
        milli >= 0 && (milli < 1_000 || milli % 1_000 == 0),
        "{gpus} is neither a whole number nor less than one"
    );
    Ok(milli)
}

fn span<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Millis, D::Error> {
    Ok(optional_span(input)?.unwrap_or_default())
}

fn optional_span<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Millis>, D::Error> {
    let Some(text) = Option::<String>::deserialize(input)? else {
        return Ok(None);
    };
    let span: SignedDuration = duration::parse_extended(&text).map_err(serde::de::Error::custom)?;
    let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    if (0..=LONGEST).contains(&millis) {
        Ok(Some(millis))
    } else {
        Err(serde::de::Error::custom(format!("{text:?} is not a time from now")))
    }
}
