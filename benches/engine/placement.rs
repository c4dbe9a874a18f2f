//! The shapes of kube-scheduler's own benchmark (`scheduler_perf`), engine only: pods with and without relations to one another, and pod groups.
//! Initial pods are placed by a cycle of their own.

use std::sync::Arc;

use unikai::engine::Engine;
use unikai::engine::input::{
    Amounts, Event, GpuRequest, GroupInput, Name, NodeInput, NodeRequirement, NodeTerm, Pairs, PodInput, PodSelector,
    PodTerm, Relations, SelectorOp, Spread, TopologyConstraint, TopologyInput,
};
use unikai::engine::policy::Policy;

use super::objects::{self, NOW, name, queue};
use super::{counts, ms, timed};

/// A zone of nodes.
const ZONE: &str = "topology.kubernetes.io/zone";
/// A node by itself.
const HOST: &str = "kubernetes.io/hostname";
/// Racks of the topology shape.
const RACK: &str = "example.com/rack";
/// Nodes of a rack.
const RACK_NODES: usize = 10;

/// Pods to place.
pub struct Placement {
    /// Its name.
    pub name: &'static str,
    /// Initial pods, by number of nodes.
    there: fn(nodes: usize) -> usize,
    /// (pod groups, pods of each) to place, for so many nodes.
    gangs: fn(nodes: usize) -> (usize, usize),
    /// Adds the shape's constraints to pods.
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    NodeAffinity,
    Near,
    Apart,
    PrefersNear,
    PrefersApart,
    Spread,
    Rack,
    /// Each pod group starts with one pod.
    Elastic,
}

/// The shapes, all but the last named as in `scheduler_perf`; counts are those of its 5,000 nodes and in proportion for fewer.
pub const PLACEMENTS: &[Placement] = &[
    Placement {
        name: "basic",
        there: |nodes| nodes / 5,
        gangs: |nodes| (2 * nodes, 1),
        kind: Kind::Plain,
    },
    Placement {
        name: "node-affinity",
        there: |nodes| nodes,
        gangs: |nodes| (2 * nodes, 1),
        kind: Kind::NodeAffinity,
    },
    Placement {
        name: "pod-affinity",
        there: |nodes| nodes,
        gangs: |nodes| (nodes, 1),
        kind: Kind::Near,
    },
    Placement {
        name: "pod-anti-affinity",
        there: |nodes| nodes / 5,
        gangs: |nodes| (nodes * 2 / 5, 1),
        kind: Kind::Apart,
    },
    Placement {
        name: "preferred-affinity",
        there: |nodes| nodes,
        gangs: |nodes| (nodes, 1),
        kind: Kind::PrefersNear,
    },
    Placement {
        name: "preferred-anti",
        there: |nodes| nodes,
        gangs: |nodes| (nodes, 1),
        kind: Kind::PrefersApart,
    },
    Placement {
        name: "spread",
        there: |nodes| nodes,
        gangs: |nodes| (nodes, 1),
        kind: Kind::Spread,
    },
    Placement {
        name: "10-large-gangs",
        there: |_| 0,
        gangs: |nodes| (10, nodes),
        kind: Kind::Plain,
    },
    Placement {
        name: "3-gangs",
        there: |_| 0,
        gangs: |nodes| (3, nodes / 5),
        kind: Kind::Plain,
    },
    Placement {
        name: "small-gangs",
        there: |_| 0,
        gangs: |nodes| (nodes / 5, 3),
        kind: Kind::Plain,
    },
    Placement {
        name: "rack-gangs",
        there: |_| 0,
        gangs: |nodes| (nodes * 3 / 20, 4),
        kind: Kind::Rack,
    },
    Placement {
        name: "elastic-job",
        there: |_| 0,
        gangs: |nodes| (1, 2 * nodes),
        kind: Kind::Elastic,
    },
];

/// Runs one shape.
pub fn measure(shape: &str, nodes: usize, placement: &Placement) {
    let kind = placement.kind;
    let mut engine = Engine::new(Policy::default());
    for event in (0..nodes).map(|at| Event::Node(Box::new(node(at)))) {
        engine.apply(event, NOW);
    }
    engine.apply(Event::Queue(Box::new(queue("root", None))), NOW);
    engine.apply(Event::Queue(Box::new(queue("queue-0", Some("root")))), NOW);
    engine.apply(
        Event::Topology(TopologyInput {
            name: name("racks"),
            levels: vec![name(ZONE), name(RACK), name(HOST)],
        }),
        NOW,
    );
    for at in 0..(placement.there)(nodes) {
        feed(&mut engine, workload("there", kind, 1, at));
    }
    let first = engine.cycle(NOW);
    let (gangs, pods) = (placement.gangs)(nodes);
    let (build, ()) = timed(|| {
        for at in 0..gangs {
            feed(&mut engine, workload("new", kind, pods, at * pods));
        }
    });
    let (cycle, decisions) = timed(|| engine.cycle(NOW));
    println!(
        "{shape:<24} {:>8.2} {:>10.2} {:>10.0} pods/s  {} there; {}",
        ms(build),
        ms(cycle),
        decisions.bind.len() as f64 / cycle.as_secs_f64(),
        first.bind.len(),
        counts(&decisions),
    );
}

fn feed(engine: &mut Engine, events: Vec<Event>) {
    for event in events {
        engine.apply(event, NOW);
    }
}

/// A node of 4 cores in one of three zones.
fn node(at: usize) -> NodeInput {
    let node = name(&format!("node-{at:05}"));
    NodeInput {
        name: node.clone(),
        labels: vec![
            (name(RACK), name(&format!("rack-{}", at / RACK_NODES))),
            (name(HOST), node),
            (name(ZONE), name(&format!("zone-{}", at % 3))),
        ],
        allocatable: Amounts {
            cpu: 4_000,
            memory: 32 << 30,
            ..Amounts::default()
        },
        gpu_memory: None,
        gpu_count: None,
        ..objects::node(at)
    }
}

/// A pod group of `size` pods of 100 milli-cores.
fn workload(prefix: &str, kind: Kind, size: usize, first: usize) -> Vec<Event> {
    let mut events = objects::workload(prefix, size, 1, first);
    for event in &mut events {
        match event {
            Event::Group(group) => make_group(group, kind),
            Event::Pod(pod) => make_pod(pod, kind),
            _ => {}
        }
    }
    events
}

fn make_group(group: &mut GroupInput, kind: Kind) {
    group.topology = (kind == Kind::Rack).then(|| TopologyConstraint {
        topology: name("racks"),
        required: Some(name(RACK)),
        preferred: None,
    });
    if kind == Kind::Elastic {
        group.min_member = Some(1);
    }
}

fn make_pod(pod: &mut PodInput, kind: Kind) {
    let namespace = pod.pod.namespace.clone();
    pod.labels = Pairs::from_iter([("color", "green")]);
    pod.needs_mut().request = Amounts {
        cpu: 100,
        memory: 500 << 20,
        ..Amounts::default()
    };
    pod.needs_mut().gpu = GpuRequest::default();
    if kind == Kind::NodeAffinity {
        pod.needs_mut().affinity_required = Some(vec![NodeTerm {
            labels: vec![listed(ZONE, &["zone-0", "zone-1"])],
            fields: Vec::new(),
        }]);
    }
    let pods = PodSelector {
        labels: Some(vec![listed("color", &["green"])]),
        namespaces: Some([namespace].into()),
    };
    let term = |key: &str| PodTerm {
        pods: pods.clone(),
        key: name(key),
    };
    let mut relations = Relations::default();
    match kind {
        Kind::Plain | Kind::NodeAffinity | Kind::Rack | Kind::Elastic => return,
        Kind::Near => relations.near.push(term(ZONE)),
        Kind::Apart => relations.apart.push(term(HOST)),
        Kind::PrefersNear => relations.preferred.push((1, term(HOST))),
        Kind::PrefersApart => relations.preferred.push((-1, term(HOST))),
        Kind::Spread => relations.spread.push(Spread {
            pods: pods.clone(),
            key: name(ZONE),
            max_skew: 5,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        }),
    }
    pod.relations = Some(Arc::new(relations));
}

fn listed(key: &str, values: &[&str]) -> NodeRequirement {
    let values: Vec<Name> = values.iter().map(|value| name(value)).collect();
    NodeRequirement {
        key: name(key),
        op: SelectorOp::In,
        values,
    }
}
