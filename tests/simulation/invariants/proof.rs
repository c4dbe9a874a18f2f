//! A state for each rule that breaks it, and one that breaks none: a rule that cannot be broken shows nothing.

use std::collections::BTreeSet;

use unikai::rules::{self, Check, Holds};

use super::{ALWAYS, AT_REST, EMPTY, History, Rule, broken};
use crate::claims::Wants;
use crate::state::{ClaimSeen, GroupSeen, NodeSeen, PodSeen, QueueSeen, State, SubGroupSeen};

/// What makes a state break a rule.
type Defect = fn(&mut State);

const DEFECTS: &[(&str, Defect)] = &[
    ("B-1", |state| pod(state, "first").node = "n2".to_owned()),
    ("N-1", |state| bind(state, "second", |pod| pod.gpus = 4)),
    ("N-1", |state| bind(state, "second", |pod| pod.instances = 1)),
    ("N-2", |state| {
        for name in ["second", "third"] {
            bind(state, name, |pod| exclude(pod, 5));
        }
    }),
    ("N-3", |state| {
        bind(state, "second", |pod| {
            exclude(pod, 5);
            pod.zones.clear();
        });
    }),
    ("G-1", |state| {
        reserve(state, "r1", "x", "0");
        reserve(state, "r2", "x", "1");
    }),
    ("G-2", |state| {
        reserve(state, "r1", "x", "0");
        reserve(state, "r2", "y", "0");
    }),
    ("G-3", |state| {
        for name in ["second", "third"] {
            bind(state, name, |pod| share(pod, 600));
        }
    }),
    ("G-4", |state| bind(state, "second", |pod| share(pod, 500))),
    ("T-1", |state| {
        let in_rack = SubGroupSeen {
            in_rack: true,
            ..SubGroupSeen::default()
        };
        bind_in_sub_groups(state, ["one", "one"], &in_rack);
    }),
    ("T-1", |state| {
        let below = SubGroupSeen {
            above: Some(("above".to_owned(), true)),
            ..SubGroupSeen::default()
        };
        bind_in_sub_groups(state, ["one", "other"], &below);
    }),
    ("D-1", |state| {
        ["x", "y"].iter().for_each(|name| claim(state, name, &[]));
    }),
    ("D-2", |state| {
        claim(state, "x", &[]);
        bind(state, "second", |pod| pod.claims = vec!["x".to_owned()]);
    }),
    ("D-3", |state| {
        claim(state, "x", &[]);
        let key = ("team-a".to_owned(), "x".to_owned());
        state.claims.entry(key).or_default().wants = Wants::Two;
    }),
    ("A-6", |state| {
        add(state, "second", |pod| pod.claims = vec!["x".to_owned()]);
        claim(state, "x", &["second"]);
    }),
    ("P-1", |state| {
        bind(state, "second", |pod| pod.volume_claim = Some("x".to_owned()));
    }),
    ("P-2", |state| {
        for name in ["x", "y"] {
            let key = ("team-a".to_owned(), name.to_owned());
            state.volume_claims.entry(key).or_default().volume = Some("v".to_owned());
        }
    }),
    ("Q-1", |state| {
        queue(state, "a").limit = Some(1_000);
        bind(state, "second", |pod| pod.gpus = 1);
    }),
    ("Q-2", |state| {
        queue(state, "org").quota = Some(0);
        bind(state, "second", |pod| pod.gpus = 1);
        group(state, "second").non_preemptible = true;
    }),
    ("R-1", |state| {
        for name in ["second", "third"] {
            bind(state, name, |pod| pod.apart = Some("pods".to_owned()));
        }
    }),
    ("W-1", |state| {
        bind(state, "second", |pod| {
            pod.refused = true;
            pod.finished = true;
        });
    }),
    ("K-1", |state| group(state, "first").min = 2),
    ("A-1", |state| add(state, "second", |_| {})),
    ("A-5", |state| {
        add(state, "second", |_| {});
        add(state, "third", |pod| pod.group = "second".to_owned());
        group(state, "second").min = 2;
    }),
    ("A-2", |state| {
        add(state, "second", |pod| pod.waiting_message = None);
    }),
    ("A-7", |state| reserve(state, "r1", "x", "0")),
    ("A-4", |state| queue(state, "a").allocated = 0),
    ("A-3", |state| {
        state.bind_requests = [("team-a/first".to_owned(), "n1".to_owned())].into();
    }),
];

/// Nodes, and a pod of a queue that shows it.
fn in_order() -> State {
    let mut state = State::default();
    for name in ["n1", "n2"] {
        let node = NodeSeen {
            gpus: 4,
            cpu: 16_000,
            pods: 30,
            open: true,
            rack: Some(format!("rack of {name}")),
            ..NodeSeen::default()
        };
        state.nodes.insert(name.to_owned(), node);
    }
    let zones = [("node-0".to_owned(), 8)].into();
    state.zones.insert("n1".to_owned(), zones);
    for name in ["a", "org"] {
        state.queues.insert(name.to_owned(), QueueSeen::default());
    }
    bind(&mut state, "first", |pod| pod.gpus = 1);
    state
}

fn queue<'a>(state: &'a mut State, name: &str) -> &'a mut QueueSeen {
    state.queues.get_mut(name).expect("a queue")
}

fn group<'a>(state: &'a mut State, name: &str) -> &'a mut GroupSeen {
    let key = ("team-a".to_owned(), name.to_owned());
    state.groups.get_mut(&key).expect("a pod group")
}

fn pod<'a>(state: &'a mut State, name: &str) -> &'a mut PodSeen {
    state.pods.get_mut(name).expect("a pod")
}

/// Adds a pod that waits, in a pod group of its own.
fn add(state: &mut State, name: &str, set: impl Fn(&mut PodSeen)) {
    let mut pod = PodSeen {
        namespace: "team-a".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        ours: true,
        cpu: 100,
        devices: 1,
        queue: "a".to_owned(),
        group: name.to_owned(),
        waiting_message: Some("no room".to_owned()),
        ..PodSeen::default()
    };
    set(&mut pod);
    let group = GroupSeen {
        queue: "a".to_owned(),
        min: 1,
        ..GroupSeen::default()
    };
    state.groups.insert(("team-a".to_owned(), name.to_owned()), group);
    state.pods.insert(name.to_owned(), pod);
}

/// Adds a pod on a node, which its queues show.
fn bind(state: &mut State, name: &str, set: impl Fn(&mut PodSeen)) {
    add(state, name, |pod| {
        pod.node = "n1".to_owned();
        set(pod);
    });
    let charged = pod(state, name).charged();
    for name in ["a", "org"] {
        queue(state, name).allocated += charged;
    }
}

/// Adds two pods in different racks, which are in these sub-groups.
fn bind_in_sub_groups(state: &mut State, names: [&str; 2], seen: &SubGroupSeen) {
    for (sub_group, (name, node)) in names.into_iter().zip([("second", "n1"), ("third", "n2")]) {
        bind(state, name, |pod| {
            pod.group = "gang".to_owned();
            pod.sub_group = Some(sub_group.to_owned());
            pod.node = node.to_owned();
        });
        let gang = state
            .groups
            .entry(("team-a".to_owned(), "gang".to_owned()))
            .or_default();
        gang.sub_groups.insert(sub_group.to_owned(), seen.clone());
    }
}

/// Adds a claim with a device, which is reserved for these pods.
fn claim(state: &mut State, name: &str, pods: &[&str]) {
    let claim = ClaimSeen {
        devices: vec![("n1".to_owned(), "device-0".to_owned())],
        reserved: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        ..ClaimSeen::default()
    };
    state.claims.insert(("team-a".to_owned(), name.to_owned()), claim);
}

fn share(pod: &mut PodSeen, portion: i64) {
    pod.portion = portion;
    pod.groups = vec!["x".to_owned()];
}

/// Gives a pod CPUs for itself, in one zone.
fn exclude(pod: &mut PodSeen, cores: i64) {
    pod.exclusive = cores;
    pod.zones = [("node-0".to_owned(), cores)].into();
}

/// Adds a reservation pod.
fn reserve(state: &mut State, name: &str, group: &str, device: &str) {
    let pod = PodSeen {
        namespace: "kai-resource-reservation".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        node: "n1".to_owned(),
        reservation: true,
        groups: vec![group.to_owned()],
        device: Some(device.to_owned()),
        ..PodSeen::default()
    };
    state.pods.insert(name.to_owned(), pod);
}

/// The rules that are broken if the second state follows the first, and lasts.
fn broken_by(first: State, second: &State, rules: &[Rule]) -> BTreeSet<&'static str> {
    let (mut history, mut found) = (History::default(), BTreeSet::new());
    let later = [100_000, 400_000].map(|at| State { at, ..second.clone() });
    for state in std::iter::once(first).chain(later) {
        history.take(&state);
        let broken = broken(rules, &state, &history).into_iter();
        found.extend(broken.map(|(rule, _)| rule.id));
    }
    found
}

/// Whether each rule of the catalogue about stored objects has a predicate, which its defect breaks and nothing else.
pub fn each_rule_can_be_broken() -> bool {
    let mut right = true;
    let mut wrong = |what: String| {
        println!("{what}");
        right = false;
    };
    for rules in [ALWAYS, AT_REST] {
        let found = broken_by(in_order(), &in_order(), rules);
        if !found.is_empty() {
            wrong(format!("a state in order breaks {found:?}"));
        }
    }
    if !broken_by(State::default(), &State::default(), EMPTY).is_empty() {
        wrong("an empty state has something left".to_owned());
    }
    for (rules, holds) in [(ALWAYS, Holds::Always), (AT_REST, Holds::AtRest), (EMPTY, Holds::Empty)] {
        let listed = rules::of(Check::Stored).filter(|rule| rule.holds == holds);
        let (listed, here): (BTreeSet<_>, BTreeSet<_>) = (
            listed.map(|rule| rule.id).collect(),
            rules.iter().map(|rule| rule.id).collect(),
        );
        if listed != here {
            wrong(format!(
                "the catalogue lists {listed:?}, the predicates are of {here:?}"
            ));
        }
        for rule in rules {
            if !DEFECTS.iter().any(|(id, _)| *id == rule.id) {
                wrong(format!("nothing shows that {} can be broken", rule.id));
            }
            for (_, defect) in DEFECTS.iter().filter(|(id, _)| *id == rule.id) {
                let mut defective = in_order();
                defect(&mut defective);
                let found = broken_by(in_order(), &defective, rules);
                if !found.contains(rule.id) {
                    wrong(format!("what should break {} breaks {found:?}", rule.id));
                }
            }
        }
    }
    right
}
