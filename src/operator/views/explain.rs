//! Explanations of pods, pod groups, queues and nodes, from the overview.

mod raise;

use k8s_openapi::api::core::v1 as core;

use super::overview::Overview;
use super::workloads::{unscheduled, verdict_of_condition};
use crate::api::syntax;
use crate::api::views::{
    Explanation, Held, Node, PodState, Queue, Subject, Verdict, Workload, WorkloadDetails, WorkloadState,
};

fn verdict(cause: &str, sentence: String) -> Verdict {
    let cause = cause.to_owned();
    Verdict { cause, sentence }
}

fn explanation(
    overview: &Overview,
    (kind, namespace, name): (&str, Option<&str>, &str),
    verdict: Verdict,
    evidence: Vec<String>,
    commands: Vec<String>,
) -> Explanation {
    Explanation {
        meta: overview.meta.clone(),
        subject: Subject {
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        },
        verdict,
        evidence,
        commands,
    }
}

/// A pod group.
pub fn pod_group(overview: &Overview, details: &WorkloadDetails) -> Explanation {
    let workload = &details.workload;
    let said = workload.verdict.clone().unwrap_or_else(|| state(details));
    let (namespace, name) = (&*workload.namespace, &*workload.name);
    explanation(
        overview,
        ("PodGroup", Some(namespace), name),
        said,
        evidence(details),
        commands(details),
    )
}

/// A pod of our scheduler, with its pod group.
pub fn pod(overview: &Overview, details: &WorkloadDetails, pod: &core::Pod) -> Explanation {
    let workload = &details.workload;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let waits = || {
        let known = workload.verdict.clone().or_else(|| verdict_of_pod(pod));
        known.unwrap_or_else(|| state(details))
    };
    let namespace = &*workload.namespace;
    let found = details.pods.iter().find(|pod| pod.name == name);
    let on = |pod: &crate::api::views::Pod| pod.node.clone().unwrap_or_default();
    let said = match found {
        Some(pod) => match pod.state {
            PodState::Waiting => waits(),
            PodState::Gated => verdict(
                "gated",
                format!("Pod {name} has scheduling gates, and waits until they are removed"),
            ),
            PodState::Planned => verdict(
                "leaving",
                format!(
                    "Pod {name} has a place on node {} as soon as pods have left it",
                    on(pod)
                ),
            ),
            PodState::Binding => verdict("binding", format!("Pod {name} is being bound to node {}", on(pod))),
            PodState::Bound => verdict(
                "bound",
                format!("Pod {name} is bound to node {} and does not run yet", on(pod)),
            ),
            PodState::Running => verdict("running", format!("Pod {name} runs on node {}", on(pod))),
            PodState::Leaving => verdict("leaving", format!("Pod {name} is being deleted from node {}", on(pod))),
            PodState::Succeeded => verdict("ended", format!("Pod {name} has ended well")),
            PodState::Failed => verdict("ended", format!("Pod {name} has failed")),
            PodState::Unknown => verdict("unknown", format!("The node of pod {name} does not answer")),
        },
        None => waits(),
    };
    let mut all = vec![format!("It belongs to the pod group {}", workload.name)];
    all.extend(evidence(details));
    let subject = ("Pod", Some(namespace), name);
    explanation(overview, subject, said, all, commands(details))
}

/// What the condition of a pod without a node says, if anything.
fn verdict_of_pod(pod: &core::Pod) -> Option<Verdict> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let condition = unscheduled(conditions)?;
    let said = verdict_of_condition(condition.reason.as_deref(), condition.message.as_deref());
    Some(said).filter(|said| !said.sentence.is_empty())
}

/// A pod that belongs to no pod group, or to one that is not known.
pub fn lone_pod(overview: &Overview, pod: &core::Pod, scheduler: &str) -> Explanation {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let named = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
    let said = if let Some(said) = verdict_of_pod(pod) {
        said
    } else if named == scheduler {
        let sentence = format!("Pod {name} belongs to no pod group that is known, so it is not tried");
        verdict("no_pod_group", sentence)
    } else {
        let sentence = format!(
            "Pod {name} names the scheduler {named}; set spec.schedulerName to {scheduler} to have it scheduled here"
        );
        verdict("other_scheduler", sentence)
    };
    let node = spec.and_then(|spec| spec.node_name.as_deref());
    let evidence = node.map(|node| format!("It is on node {node}")).into_iter().collect();
    let commands = vec![format!("kubectl describe pod -n {namespace} {name}")];
    explanation(overview, ("Pod", Some(namespace), name), said, evidence, commands)
}

/// The sentence for a workload that does not wait.
fn state(details: &WorkloadDetails) -> Verdict {
    let Workload { name, pods, state, .. } = &details.workload;
    let (have, wanted) = (pods.running, pods.wanted);
    match state {
        WorkloadState::Waiting => verdict("new", format!("Pod group {name} waits and has not been tried yet")),
        WorkloadState::PartlyRunning => verdict(
            "running",
            format!("{have} of {wanted} pods of pod group {name} have a node"),
        ),
        WorkloadState::Running => {
            let all = if wanted == 1 { "The pod" } else { "All pods" };
            let have = if wanted == 1 { "has" } else { "have" };
            verdict("running", format!("{all} of pod group {name} {have} a node"))
        }
        WorkloadState::Leaving => verdict("leaving", format!("The pods of pod group {name} are being deleted")),
        WorkloadState::Finished => verdict("ended", format!("The pods of pod group {name} have ended")),
        WorkloadState::Empty => verdict("empty", format!("Pod group {name} has no pods")),
    }
}

fn evidence(details: &WorkloadDetails) -> Vec<String> {
    let workload = &details.workload;
    let mut all = details.evidence.clone();
    if let (Some(held), None) = (&workload.held, &workload.verdict) {
        let by = held
            .queue
            .as_ref()
            .map_or_else(String::new, |queue| format!(" with queue {queue}"));
        let reason = reason(held);
        all.push(format!(
            "It is held{by}{reason}: what runs stays, and does not start again once it ended or was evicted"
        ));
    }
    if let Some(position) = workload.position {
        all.push(format!(
            "It is number {position} in the line of queue {}",
            workload.queue
        ));
    }
    all.extend(details.queues.iter().map(standing));
    all
}

/// A queue's allocation next to its quota, limit and fair share.
fn standing(queue: &Queue) -> String {
    let bound = |bound: Option<f64>| bound.map_or_else(|| "unlimited".to_owned(), number);
    format!(
        "Queue {} holds {} of a fair share of {} GPUs (quota {}, limit {})",
        queue.name,
        number(queue.allocated.gpu),
        number(queue.fair_share.gpu),
        bound(queue.quota.gpu),
        bound(queue.limit.gpu)
    )
}

/// Commands that show more, then those that would change the situation.
fn commands(details: &WorkloadDetails) -> Vec<String> {
    let Workload {
        namespace, name, queue, ..
    } = &details.workload;
    let workload = &details.workload;
    let release = workload.held.as_ref().map(|held| match &held.queue {
        Some(_) => release_queue(held),
        None => format!("unikai release podgroup {name} -n {namespace}"),
    });
    let mut commands = about_queue(namespace, queue);
    commands.push(format!("kubectl describe podgroup -n {namespace} {name}"));
    commands.extend(release);
    commands.extend(raise::commands(details));
    commands
}

/// The name of the queue is a tenant's text, which a shell must not execute: there are commands only for what can be the name of one.
fn about_queue(namespace: &str, queue: &str) -> Vec<String> {
    if !syntax::is_name(queue) {
        return Vec::new();
    }
    vec![
        format!("unikai explain queue {queue}"),
        format!("unikai jobs -n {namespace} --queue {queue}"),
    ]
}

fn release_queue(held: &Held) -> String {
    format!(
        "unikai drain queue {} --undo",
        held.queue.as_deref().unwrap_or_default()
    )
}

/// The reason given with a hold, for the end of a sentence.
fn reason(held: &Held) -> String {
    let reason = held.reason.as_ref();
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}

/// So many of the workloads that wait in a queue are listed.
pub const WAITING_LISTED: usize = 5;

/// A queue. `waiting`: the first workloads that wait in it, in the order of the queue.
pub fn queue(overview: &Overview, path: &[Queue], waiting: &[&Workload]) -> Option<Explanation> {
    let queue = path.first()?;
    let name = &queue.name;
    let said = if let Some(problem) = &queue.problem {
        verdict("queue", problem.clone())
    } else if let Some(held) = &queue.held {
        let by = held.queue.as_deref().filter(|by| by != name);
        let by = by.map_or_else(String::new, |by| format!(" with queue {by} above it"));
        let reason = reason(held);
        verdict(
            "held",
            format!("Queue {name} is held{by}{reason}: nothing is started in it, what runs stays"),
        )
    } else if let Some(full) = path.iter().find(|queue| is_full(queue)) {
        let of = number(full.limit.gpu.unwrap_or_default());
        let used = number(full.allocated.gpu);
        verdict(
            "queue_limit",
            format!("Queue {} is at its limit of {of} GPUs ({used} used)", full.name),
        )
    } else if queue.waiting > 0 {
        let workloads = counted(queue.waiting, "workload");
        let wait = if queue.waiting == 1 { "waits" } else { "wait" };
        verdict("waiting", format!("In queue {name} {workloads} {wait}"))
    } else {
        verdict("idle", format!("In queue {name} nothing waits"))
    };
    let mut all: Vec<String> = path.iter().map(standing).collect();
    all.push(format!(
        "{} hold something, {} wait",
        counted(queue.running, "workload"),
        queue.waiting
    ));
    let first = waiting.iter().take(WAITING_LISTED).filter_map(|workload| {
        let said = workload.verdict.as_ref()?;
        let position = workload.position.map_or_else(String::new, |at| format!("{at}. "));
        Some(format!(
            "{position}{}/{}: {}",
            workload.namespace, workload.name, said.sentence
        ))
    });
    all.extend(first);
    if let Some(schedule) = &queue.schedule {
        let entry = schedule.entry.as_deref().unwrap_or("none");
        let until = schedule
            .until
            .map_or_else(String::new, |until| format!(" until {until}"));
        all.push(format!("Of its quota schedule the entry in force is {entry}{until}"));
    }
    let mut commands = vec![
        format!("unikai jobs -A --queue {name}"),
        format!("kubectl get queue {name} -o yaml"),
    ];
    commands.extend(queue.held.as_ref().map(release_queue));
    Some(explanation(overview, ("Queue", None, name), said, all, commands))
}

fn is_full(queue: &Queue) -> bool {
    queue
        .limit
        .gpu
        .is_some_and(|limit| queue.allocated.gpu >= limit && queue.requested.gpu > queue.allocated.gpu)
}

/// A node.
pub fn node(overview: &Overview, node: &Node) -> Explanation {
    let name = &node.name;
    let free = match &node.gpus {
        Some(gpus) => format!("{} of {} GPUs are free", number(gpus.free), number(gpus.total)),
        None => "it has no GPUs".to_owned(),
    };
    let said = if !node.ready {
        verdict(
            "not_ready",
            format!("Node {name} is not ready, so no pod is placed on it"),
        )
    } else if node.cordoned {
        verdict(
            "cordoned",
            format!("Node {name} is cordoned, so no pod is placed on it"),
        )
    } else {
        verdict("ready", format!("Node {name} takes pods; {free}"))
    };
    let gib = |bytes: f64| number(bytes / f64::from(1 << 30));
    let mut all = vec![
        format!(
            "{} of {} cores and {} of {} GiB of memory are free",
            number(node.cpu.free),
            number(node.cpu.total),
            gib(node.memory.free),
            gib(node.memory.total)
        ),
        format!(
            "{} on it",
            if node.pods == 1 {
                "1 pod is".to_owned()
            } else {
                format!("{} pods are", node.pods)
            }
        ),
    ];
    if let Some(gpus) = &node.gpus {
        all.extend(gpus.users.iter().map(|user| {
            format!(
                "{}/{} uses {} ({})",
                user.namespace,
                user.pod,
                counted_gpus(user.gpus),
                in_queue(user.queue.as_deref())
            )
        }));
        for shared in &gpus.shared {
            let users = shared
                .users
                .iter()
                .map(|user| format!("{}/{} {}", user.namespace, user.pod, number(user.gpus)));
            let users: Vec<String> = users.collect();
            all.push(format!(
                "A shared GPU is in use to {}: {}",
                number(shared.used),
                users.join(", ")
            ));
        }
        if gpus.used_by_others > 0.0 {
            all.push(format!(
                "Pods of namespaces that you may not see use {}",
                counted_gpus(gpus.used_by_others)
            ));
        }
        if gpus.free_later > gpus.free {
            all.push(format!(
                "{} are free once pods that leave have left",
                number(gpus.free_later)
            ));
        }
    }
    let commands = vec![format!("kubectl describe node {name}")];
    explanation(overview, ("Node", None, name), said, all, commands)
}

fn in_queue(queue: Option<&str>) -> String {
    queue.map_or_else(|| "no queue".to_owned(), |queue| format!("queue {queue}"))
}

fn counted_gpus(gpus: f64) -> String {
    let plural = if (gpus - 1.0).abs() < f64::EPSILON { "" } else { "s" };
    format!("{} GPU{plural}", number(gpus))
}

fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// An amount with at most two decimals.
fn number(amount: f64) -> String {
    let text = format!("{amount:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_has_a_queue_that_a_shell_would_execute() {
        assert_eq!(about_queue("team", "x;id #"), [""; 0]);
        let commands = ["unikai explain queue lab", "unikai jobs -n team --queue lab"];
        assert_eq!(about_queue("team", "lab"), commands);
    }
}
