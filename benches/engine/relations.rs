//! Jobs that each want a rack to themselves, as JobSets may, in a cluster with many other pods: what the relations of one more job cost, and a change of a
//! node.

use std::sync::Arc;

use unikai::engine::Engine;
use unikai::engine::input::{
    Event, GpuRequest, GroupKey, Name, NodeInput, NodeRequirement, Pairs, PodInput, PodRef, PodSelector, PodStatus,
    PodTerm, Relations, SelectorOp,
};
use unikai::engine::policy::Policy;

use crate::objects::{self, NOW, name, queue, workload};
use crate::{median_and_longest, ms, timed};

/// Other pods on each node.
const OTHERS: usize = 10;
/// Namespaces of these.
const NAMESPACES: usize = 100;
/// Nodes of a rack.
const RACK_NODES: usize = 4;
/// Jobs that run, and jobs that are created then, one after another.
const JOBS: (usize, usize) = (100, 21);
/// A label of a job's pods.
const JOB: &str = "example.com/job";
/// A label of nodes.
const RACK: &str = "example.com/rack";

/// Runs the shape.
pub fn measure(shape: &str, nodes: usize) {
    let mut engine = Engine::new(Policy::default());
    let mut events: Vec<Event> = (0..nodes).map(|at| Event::Node(Box::new(node(at, false)))).collect();
    events.push(Event::Queue(Box::new(queue("root", None))));
    events.push(Event::Queue(Box::new(queue("queue-0", Some("root")))));
    events.extend((0..nodes * OTHERS).map(|at| Event::Pod(Box::new(other(at)))));
    events.extend((0..JOBS.0).flat_map(job));
    for event in events {
        engine.apply(event, NOW);
    }
    let (first, decisions) = timed(|| engine.cycle(NOW));
    let mut bound = decisions.bind.len();
    let mut one = |events: Vec<Event>| {
        let (took, decisions) = timed(|| {
            for event in events {
                engine.apply(event, NOW);
            }
            engine.cycle(NOW)
        });
        bound += decisions.bind.len();
        took
    };
    let (jobs, _) = median_and_longest((JOBS.0..JOBS.0 + JOBS.1).map(|at| one(job(at))));
    let (plain, _) = median_and_longest((0..JOBS.1).map(|at| one(workload("plain", 1, 1, at))));
    let (changes, _) = median_and_longest((0..JOBS.1).map(|at| one(vec![Event::Node(Box::new(node(at, true)))])));
    println!(
        "{shape:<20} {} other pods, first cycle {:.2} ms; a job more {:.3} ms; one without relations {:.3} ms; a node changed {:.3} ms; {bound} bind",
        nodes * OTHERS,
        ms(first),
        ms(jobs),
        ms(plain),
        ms(changes),
    );
}

fn node(at: usize, cordoned: bool) -> NodeInput {
    let mut node = objects::node(at);
    node.labels
        .push((name(RACK), name(&format!("rack-{}", at / RACK_NODES))));
    node.labels.sort();
    node.unschedulable = cordoned;
    node
}

/// A running pod of another scheduler.
fn other(at: usize) -> PodInput {
    let uid = format!("other-{at:06}");
    let mut pod = objects::pod(&GroupKey::new("bench", "none"), &uid);
    pod.pod = PodRef::new(&format!("namespace-{}", at % NAMESPACES), &uid, &uid);
    pod.labels = Pairs::from_iter([("app", "web"), ("tier", "front")]);
    pod.group = None;
    pod.foreign = true;
    pod.status = PodStatus::Running;
    pod.node = Some(name(&format!("node-{:05}", at / OTHERS)));
    pod.needs_mut().gpu = GpuRequest::default();
    pod
}

/// A job of one pod, on a rack without pods of other jobs.
fn job(at: usize) -> Vec<Event> {
    let own: Name = name(&format!("job-{at}"));
    let mut events = workload("job", 1, 1, at);
    for event in &mut events {
        if let Event::Pod(pod) = event {
            pod.labels = Pairs::from_iter([(JOB, &*own)]);
            let requirement = |op, values| NodeRequirement {
                key: name(JOB),
                op,
                values,
            };
            let others = vec![
                requirement(SelectorOp::Exists, Vec::new()),
                requirement(SelectorOp::NotIn, vec![own.clone()]),
            ];
            pod.relations = Some(Arc::new(Relations {
                apart: vec![PodTerm {
                    pods: PodSelector {
                        labels: Some(others),
                        namespaces: Some([pod.pod.namespace.clone()].into()),
                    },
                    key: name(RACK),
                }],
                ..Relations::default()
            }));
        }
    }
    events
}
