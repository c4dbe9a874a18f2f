//! What tenants write without end: it neither breaks the model nor makes it grow, and what pods hold is counted all the same.

use std::sync::Arc;

use super::scenario::{NOW, group, node, open_queue, placed, pod};
use crate::api::limits;
use crate::engine::Engine;
use crate::engine::input::{
    Event, GPU, Name, NodeRequirement, PodInput, PodSelector, PodStatus, PodTerm, Relations, SelectorOp, Spread,
    SubGroupInput, Time,
};
use crate::engine::model::check::Rule;
use crate::engine::model::pod::Status;
use crate::engine::model::resources::GPUS;
use crate::engine::policy::Policy;

/// A node of eight GPUs, and a queue.
fn one_node() -> Engine {
    let mut engine = Engine::new(Policy::default());
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "8"))), NOW);
    engine
}

fn tell(engine: &mut Engine, pod: &PodInput) {
    engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
}

/// (idle GPUs of the node, groups that it keeps).
fn books(engine: &Engine) -> (i64, usize) {
    let model = engine.model();
    let node = &model.nodes()[model.node_named(&"n0".into()).unwrap()];
    (node.idle.get(GPUS) / GPU, node.groups.len())
}

fn names(prefix: &str, count: usize) -> Vec<Name> {
    (0..count).map(|number| format!("{prefix}-{number}").into()).collect()
}

#[test]
fn repeated_changes_of_gpu_groups_leave_nothing_behind() {
    let mut engine = one_node();
    let mut sharing = placed(pod(&group("g", "q", 0), 0, "0.5"), "n0");
    for round in 0..200 {
        sharing.gpu_groups = names(&format!("round{round}"), 700);
        tell(&mut engine, &sharing);
        let (idle, kept) = books(&engine);
        assert_eq!(idle, 8 - 700);
        assert!(kept <= 1_400, "{kept} groups are kept for 700");
    }
    engine.apply(Event::PodGone(sharing.pod.uid.clone()), NOW);
    engine.cycle(NOW);
    assert_eq!(books(&engine).0, 8);
}

#[test]
fn repeated_gpu_sharing_leaves_no_groups_behind() {
    let mut engine = one_node();
    let g = group("g", "q", 0);
    engine.apply(Event::Group(Box::new(g.clone())), NOW);
    for number in 0..200 {
        let waiting = pod(&g, number, "0.5");
        tell(&mut engine, &waiting);
        let binds = engine.cycle(NOW).bind;
        assert_eq!(binds.len(), 1);
        engine.apply(Event::PodGone(waiting.pod.uid.clone()), NOW);
    }
    assert!(books(&engine).1 <= 2, "{:?}", books(&engine));
}

#[test]
fn groups_beyond_what_a_node_can_have_count_as_whole_gpus() {
    let mut engine = one_node();
    let g = group("g", "q", 0);
    let mut sharing = placed(pod(&g, 0, "0.5"), "n0");
    sharing.gpu_groups = names("many", 70_000);
    tell(&mut engine, &sharing);
    let (idle, kept) = books(&engine);
    assert_eq!((idle, kept), (8 - 70_000, limits::GPU_GROUPS_PER_NODE));
    assert!(!engine.model().broken_rules().contains_key(&Rule::NodeBooksTrue));

    sharing.status = PodStatus::Releasing;
    sharing.releasing_since = Some(NOW);
    tell(&mut engine, &sharing);
    assert_eq!(books(&engine).0, 8 - 70_000, "it holds them until it is gone");
    engine.apply(Event::PodGone(sharing.pod.uid.clone()), NOW);
    assert_eq!(books(&engine).0, 8);
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn deeply_nested_sub_groups_are_an_error_of_their_pod_group() {
    let mut engine = one_node();
    let mut deep = group("deep", "q", 0);
    let name = |at: usize| Name::from(format!("s{at}"));
    deep.sub_groups = (0..2_000)
        .map(|at| SubGroupInput {
            name: name(at),
            parent: (at > 0).then(|| name(at - 1)),
            min_member: None,
            min_sub_group: None,
            topology: None,
        })
        .collect();
    engine.apply(Event::Group(Box::new(deep.clone())), NOW);
    let running = PodInput {
        sub_group: Some(name(1_999)),
        ..placed(pod(&deep, 0, "2"), "n0")
    };
    tell(&mut engine, &running);
    tell(
        &mut engine,
        &PodInput {
            sub_group: Some(name(1_999)),
            ..pod(&deep, 1, "1")
        },
    );
    let decisions = engine.cycle(NOW);
    assert!(decisions.bind.is_empty());
    let said: Vec<_> = decisions.unschedulable.iter().map(|report| &*report.message).collect();
    assert!(said[0].contains("subgroups are nested more than 16 deep"), "{said:?}");
    let model = engine.model();
    let queue = &model.queues()[model.queues().id("q").unwrap()];
    assert_eq!(queue.allocated[2], 2 * GPU, "what runs counts in its queue");
}

#[test]
fn a_terminating_pod_is_stuck_after_the_configured_time() {
    let mut engine = one_node();
    let leaving = PodInput {
        status: PodStatus::Releasing,
        releasing_since: Some(NOW),
        ..placed(pod(&group("g", "q", 0), 0, "1"), "n0")
    };
    tell(&mut engine, &leaving);
    let stuck_at = |engine: &Engine| engine.model().timers().0;
    let after = Policy::default().stuck_after;
    assert_eq!(stuck_at(&engine), Some(Time(NOW.0 + after + 1)));
    engine.set_policy(Policy {
        stuck_after: 1_000,
        ..Policy::default()
    });
    assert_eq!(stuck_at(&engine), Some(Time(NOW.0 + 1_001)));
    engine.apply(Event::PodGone(leaving.pod.uid.clone()), NOW);
    assert_eq!(stuck_at(&engine), None);
}

#[test]
fn a_changed_time_counts_for_pods_that_are_stuck_already() {
    let leaving = PodInput {
        status: PodStatus::Releasing,
        releasing_since: Some(NOW),
        ..placed(pod(&group("g", "q", 0), 0, "8"), "n0")
    };
    let status = |engine: &Engine| {
        let pods = engine.model().pods();
        pods[pods.id(&leaving.pod.uid).unwrap()].state.status
    };
    let late = Time(NOW.0 + 300_000);
    let mut engine = one_node();
    tell(&mut engine, &leaving);
    engine.cycle(late);
    assert_eq!(status(&engine), Status::Stuck);
    for (stuck_after, expected) in [
        (600_000, Status::Releasing),
        (200_000, Status::Stuck),
        (100_000, Status::Stuck),
    ] {
        let policy = Policy {
            stuck_after,
            ..Policy::default()
        };
        let mut anew = one_node();
        anew.set_policy(policy.clone());
        tell(&mut anew, &leaving);
        engine.set_policy(policy);
        engine.cycle(late);
        assert_eq!(status(&engine), expected, "{stuck_after}");
        assert_eq!(engine.digest(late).differences(anew.digest(late), 9), []);
        assert_eq!(engine.model().timers(), anew.model().timers());
        assert!(engine.model().broken_rules().is_empty());
    }
}

#[test]
fn names_of_resources_without_requests_are_forgotten() {
    let mut engine = one_node();
    let g = group("g", "q", 0);
    let known = |engine: &Engine| {
        let model = engine.model();
        (model.resources().known(), model.shapes().ids().count())
    };
    let before = known(&engine);
    for number in 0..400 {
        let mut odd = pod(&g, number, "1");
        odd.needs_mut().request.other = names(&format!("example.com/r{number}"), 50)
            .into_iter()
            .map(|name| (name, 1))
            .collect();
        tell(&mut engine, &odd);
        let model = engine.model();
        let entry = &model.pods()[model.pods().id(&odd.pod.uid).unwrap()];
        let vector = &model.shapes()[entry.shape].vector;
        assert_eq!(vector.iter().count(), 54, "as long as what the pod asks for");
        if number >= 3 {
            let gone = &pod(&g, number - 3, "1").pod.uid;
            engine.apply(Event::PodGone(gone.clone()), NOW);
        }
        let (names, shapes) = known(&engine);
        assert!(
            names <= before.0 + 75 * 50 && shapes <= 75,
            "{names} names, {shapes} shapes"
        );
    }
    engine.cycle(NOW);
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn node_labels_without_relations_are_forgotten() {
    let mut engine = one_node();
    let g = group("g", "q", 0);
    for number in 0..1_000 {
        let mut choosy = pod(&g, number, "1");
        let apart = PodTerm {
            pods: PodSelector {
                labels: Some(Vec::new()),
                namespaces: Some(["ns".into()].into()),
            },
            key: format!("example.com/l{number}").into(),
        };
        choosy.relations = Some(Arc::new(Relations {
            apart: vec![apart],
            ..Relations::default()
        }));
        tell(&mut engine, &choosy);
        engine.apply(Event::PodGone(choosy.pod.uid.clone()), NOW);
    }
    let kept = engine.model().neighbours().labels();
    assert!(kept <= 70, "{kept} labels are kept for nobody");
}

#[test]
fn relations_of_other_namespaces_cost_a_pod_nothing() {
    let mut engine = one_node();
    let g = group("g", "q", 0);
    let term = |number: usize| PodTerm {
        pods: PodSelector {
            labels: Some(vec![NodeRequirement {
                key: "app".into(),
                op: SelectorOp::NotIn,
                values: vec![format!("v{number}").into()],
            }]),
            namespaces: Some(["elsewhere".into()].into()),
        },
        key: "kubernetes.io/hostname".into(),
    };
    let mut choosy = pod(&g, 0, "1");
    choosy.relations = Some(Arc::new(Relations {
        apart: (0..64).map(term).collect(),
        ..Relations::default()
    }));
    tell(&mut engine, &choosy);
    engine.cycle(NOW);
    let plain = pod(&g, 1, "1");
    let neighbours = engine.model().neighbours();
    assert_eq!(neighbours.candidates(&plain), 0);
    assert!(neighbours.counted(&plain).is_empty());
}

/// A pod with a term of anti-affinity of its own.
fn unlike_others(number: usize) -> PodInput {
    let mut choosy = pod(&group("g", "q", 0), number, "1");
    let apart = PodTerm {
        pods: PodSelector {
            labels: Some(vec![NodeRequirement {
                key: format!("l{number}").into(),
                op: SelectorOp::DoesNotExist,
                values: Vec::new(),
            }]),
            namespaces: None,
        },
        key: "kubernetes.io/hostname".into(),
    };
    choosy.relations = Some(Arc::new(Relations {
        apart: vec![apart],
        ..Relations::default()
    }));
    choosy
}

#[test]
fn relations_of_pods_that_are_gone_do_not_outnumber_the_others() {
    let mut engine = one_node();
    let used = 500;
    for number in 0..used {
        tell(&mut engine, &unlike_others(number));
    }
    for number in used..3_000 {
        let gone = unlike_others(number);
        tell(&mut engine, &gone);
        engine.apply(Event::PodGone(gone.pod.uid.clone()), NOW);
        let kept = engine.model().neighbours().counters() - used;
        assert!(kept <= 257, "{kept} counters are kept for nobody");
    }
}

#[test]
fn a_pod_outlives_all_relations_of_others_to_it() {
    // Counters without users are removed in batches: after the first number none are left.
    for (others, left) in [(65, 0), (300, 4)] {
        let mut engine = one_node();
        let plain = pod(&group("g", "q", 0), 10_000, "1");
        tell(&mut engine, &plain);
        let all: Vec<PodInput> = (0..others).map(unlike_others).collect();
        for choosy in &all {
            tell(&mut engine, choosy);
        }
        engine.cycle(NOW);
        let counted = |engine: &Engine| {
            let pods = engine.model().pods();
            pods[pods.id(&plain.pod.uid).unwrap()].counted.len()
        };
        assert_eq!(counted(&engine), others);
        for gone in &all {
            engine.apply(Event::PodGone(gone.pod.uid.clone()), NOW);
        }
        engine.cycle(NOW);
        assert_eq!(engine.model().neighbours().counters(), left);
        assert_eq!(counted(&engine), left);
    }
}

#[test]
fn pods_that_are_spread_over_nodes_of_their_own_share_the_values_of_labels() {
    let mut engine = one_node();
    let labels = 8;
    for number in 0..50 {
        let mut choosy = pod(&group("g", "q", 0), number, "1");
        choosy.needs_mut().node_selector = vec![("own".into(), format!("v{number}").into())];
        let spread = |label: usize| Spread {
            pods: PodSelector {
                labels: Some(Vec::new()),
                namespaces: Some(["ns".into()].into()),
            },
            key: format!("l{label}").into(),
            max_skew: 1,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        };
        choosy.relations = Some(Arc::new(Relations {
            spread: (0..labels).map(spread).collect(),
            ..Relations::default()
        }));
        tell(&mut engine, &choosy);
    }
    engine.cycle(NOW);
    let model = engine.model();
    assert_eq!(model.neighbours().values_kept(), labels * model.nodes().slots());
}
