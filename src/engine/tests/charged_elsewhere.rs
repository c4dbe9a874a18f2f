//! Bound pods whose pod group, sub-group or node is not there: what they hold is charged to their queue all the same, and may be taken back.

use super::scenario::{NOW, group, node, open_queue, placed, pod, queue, sub_group};
use crate::engine::Engine;
use crate::engine::input::{Event, GPU, GroupInput, Name, PodInput, PodRef, PodStatus, SubGroupInput, Time};
use crate::engine::model::resources::GPUS;
use crate::engine::policy::{ActionKind, Policy};

fn world(gpus: &str, limits: &str) -> Engine {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Preempt],
        ..Policy::default()
    });
    engine.apply(open_queue("root"), NOW);
    engine.apply(Event::Queue(Box::new(queue("q", limits, Time(0)))), NOW);
    engine.apply(Event::Node(Box::new(node("n0", gpus))), NOW);
    engine
}

fn known(engine: &mut Engine, group: &GroupInput) {
    engine.apply(Event::Group(Box::new(group.clone())), NOW);
}

fn see(engine: &mut Engine, pod: &PodInput) {
    engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
}

/// A cluster of four GPUs with a pod group of a queue whose limit is one GPU.
fn one_gpu_queue() -> (Engine, GroupInput) {
    let mut engine = world("4", "-1 L1");
    let honest = group("a", "q", 0);
    known(&mut engine, &honest);
    (engine, honest)
}

/// A pod that runs and is always to count.
fn running(group: &GroupInput, number: usize) -> PodInput {
    PodInput {
        fallback_queue: Some("q".into()),
        ..placed(pod(group, number, "1"), "n0")
    }
}

/// How many pods are bound in a cycle.
fn bound(engine: &mut Engine) -> usize {
    let bound = engine.cycle(NOW).bind.len();
    assert!(
        engine.model().broken_rules().is_empty(),
        "{:?}",
        engine.model().broken_rules()
    );
    bound
}

fn bind_fails(engine: &mut Engine, pod: &PodInput) {
    let (pod, retry_at) = (pod.pod.uid.clone(), None);
    engine.apply(Event::Unbound { pod, retry_at }, NOW);
}

/// The model of an engine is that of another one that was built anew.
fn is_the_same(engine: &Engine, anew: &Engine) {
    let (kept, anew) = (engine.model().digest(), anew.model().digest());
    assert_eq!(kept.differences(anew, 9), []);
}

#[test]
fn a_pod_of_a_missing_group_counts_against_the_limit_of_its_queue() {
    let mut engine = world("4", "-1 L1");
    let (honest, nosuch) = (group("a", "q", 0), group("nosuch", "elsewhere", 0));
    known(&mut engine, &honest);
    let stray = running(&nosuch, 0);
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
    engine.apply(Event::PodGone(stray.pod.uid.clone()), NOW);
    assert_eq!(bound(&mut engine), 1);
}

#[test]
fn a_pod_counts_from_when_it_is_known_to_be_of_the_shard() {
    let mut engine = world("4", "-1 L1");
    let (honest, elsewhere) = (group("a", "q", 0), group("b", "q", 0));
    known(&mut engine, &honest);
    let stray = running(&elsewhere, 0);
    let unknown = PodInput {
        fallback_queue: None,
        ..stray.clone()
    };
    see(&mut engine, &unknown);
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
}

#[test]
fn a_pod_of_a_missing_sub_group_counts_against_the_limit_of_its_queue() {
    let (mut engine, honest) = one_gpu_queue();
    let stray = PodInput {
        sub_group: Some(Name::from("bogus")),
        ..running(&honest, 0)
    };
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 1, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
}

/// A cluster with a pod group of a queue whose limit is one GPU, and the bind of a pod that was grouped in a missing sub-group meanwhile.
fn grouped_while_bound() -> (Engine, GroupInput, PodInput) {
    let (mut engine, honest) = one_gpu_queue();
    let stray = pod(&honest, 0, "1");
    see(&mut engine, &stray);
    assert_eq!(bound(&mut engine), 1);
    let stray = PodInput {
        sub_group: Some(Name::from("bogus")),
        ..stray
    };
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 1, "1"));
    (engine, honest, stray)
}

#[test]
fn a_pod_that_is_grouped_in_a_missing_sub_group_while_it_is_bound_stays_charged() {
    let (mut engine, honest, stray) = grouped_while_bound();
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
    let stray = PodInput {
        sub_group: stray.sub_group,
        ..running(&honest, 0)
    };
    see(&mut engine, &stray);
    assert_eq!(bound(&mut engine), 0, "as before");
    let mut anew = world("4", "-1 L1");
    known(&mut anew, &honest);
    see(&mut anew, &stray);
    see(&mut anew, &pod(&honest, 1, "1"));
    assert_eq!(bound(&mut anew), 0);
    is_the_same(&engine, &anew);
}

#[test]
fn a_pod_with_a_bind_request_that_is_grouped_in_a_missing_sub_group_stays_charged() {
    let (mut engine, honest) = one_gpu_queue();
    let requested = PodInput {
        status: PodStatus::Binding,
        ..placed(pod(&honest, 0, "1"), "n0")
    };
    see(&mut engine, &requested);
    let stray = PodInput {
        sub_group: Some(Name::from("bogus")),
        ..requested
    };
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 1, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
    let pending = PodInput {
        status: PodStatus::Pending,
        node: None,
        ..stray
    };
    see(&mut engine, &pending);
    assert_eq!(bound(&mut engine), 1, "the bind request is deleted: the other pod");
}

#[test]
fn a_pod_that_is_grouped_in_a_missing_sub_group_waits_when_its_bind_fails() {
    let (mut engine, _, stray) = grouped_while_bound();
    bind_fails(&mut engine, &stray);
    assert_eq!(bound(&mut engine), 1, "the other pod");
}

/// A cluster with a pod group of a queue whose limit is one GPU, a pod that is being bound and whose pod group was deleted, and its pod group.
fn ungrouped_while_bound() -> (Engine, PodInput, GroupInput) {
    let (mut engine, honest) = one_gpu_queue();
    let deleted = group("b", "q", 1);
    known(&mut engine, &deleted);
    let stray = pod(&deleted, 0, "1");
    see(&mut engine, &stray);
    assert_eq!(bound(&mut engine), 1);
    engine.apply(Event::GroupGone(deleted.key.clone()), NOW);
    see(&mut engine, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
    (engine, stray, deleted)
}

#[test]
fn a_pod_whose_group_is_deleted_while_it_is_bound_stays_charged_until_its_bind_fails() {
    let (mut engine, stray, deleted) = ungrouped_while_bound();
    bind_fails(&mut engine, &stray);
    assert_eq!(bound(&mut engine), 1, "the other pod");
    known(&mut engine, &deleted);
    assert_eq!(bound(&mut engine), 0);
}

/// A model built anew does not know the sub-groups of a deleted pod group, which is no difference as long as a bind is only assumed.
#[test]
fn a_group_with_sub_groups_that_is_deleted_during_a_bind_is_no_difference() {
    let mut engine = world("4", "-1 L1");
    let gang = group("b", "q", 1);
    let sub_groups = vec![SubGroupInput {
        name: "w".into(),
        parent: None,
        min_member: Some(1),
        min_sub_group: None,
        topology: None,
    }];
    let gang = GroupInput { sub_groups, ..gang };
    known(&mut engine, &gang);
    let members = [0, 1].map(|number| PodInput {
        sub_group: Some("w".into()),
        ..pod(&gang, number, "1")
    });
    members.iter().for_each(|member| see(&mut engine, member));
    assert_eq!(bound(&mut engine), 1, "as the limit allows");
    engine.apply(Event::GroupGone(gang.key.clone()), NOW);
    let mut anew = world("4", "-1 L1");
    members.iter().for_each(|member| see(&mut anew, member));
    assert_eq!((bound(&mut engine), bound(&mut anew)), (0, 0));
    is_the_same(&engine, &anew);
}

#[test]
fn a_pod_with_a_bind_request_whose_group_is_deleted_stays_charged() {
    let (mut engine, stray, deleted) = ungrouped_while_bound();
    let requested = PodInput {
        status: PodStatus::Binding,
        node: Some("n0".into()),
        fallback_queue: Some("q".into()),
        ..stray.clone()
    };
    see(&mut engine, &requested);
    assert_eq!(bound(&mut engine), 0);
    let (mut anew, honest) = one_gpu_queue();
    see(&mut anew, &requested);
    see(&mut anew, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut anew), 0, "as for a scheduler that starts now");
    is_the_same(&engine, &anew);
    see(&mut engine, &running(&deleted, 0));
    assert_eq!(bound(&mut engine), 0, "it is bound");
    see(&mut engine, &requested);
    see(&mut engine, &stray);
    assert_eq!(bound(&mut engine), 1, "the bind request is deleted: the other pod");
}

/// Two pod groups, the first with a running and a pending pod. Its PodGroup is deleted.
fn deleted_beside_another(limits: &str) -> (Engine, [GroupInput; 2]) {
    let mut engine = world("4", limits);
    let groups = [group("a", "q", 0), group("b", "q", 1)];
    groups.iter().for_each(|group| known(&mut engine, group));
    see(&mut engine, &running(&groups[0], 0));
    engine.apply(Event::GroupGone(groups[0].key.clone()), NOW);
    see(&mut engine, &pod(&groups[0], 1, "1"));
    (engine, groups)
}

#[test]
fn a_deleted_group_stays_charged_and_none_of_its_pods_is_placed_until_it_exists_again() {
    let (mut engine, [first, second]) = deleted_beside_another("-1 L2");
    assert_eq!(bound(&mut engine), 0, "its group is not there");
    see(&mut engine, &pod(&second, 0, "1"));
    see(&mut engine, &pod(&second, 1, "1"));
    assert_eq!(bound(&mut engine), 1, "one of two GPUs is taken");
    known(&mut engine, &first);
    assert_eq!(bound(&mut engine), 0, "now both are");
    engine.apply(Event::PodGone("a-000".into()), NOW);
    assert_eq!(bound(&mut engine), 1);
}

#[test]
fn pods_of_a_deleted_group_are_not_placed_while_others_are() {
    let (mut engine, [_, second]) = deleted_beside_another("-1 L3");
    see(&mut engine, &pod(&second, 0, "1"));
    see(&mut engine, &pod(&second, 1, "1"));
    let mut bound: Vec<_> = engine.cycle(NOW).bind.into_iter().map(|bind| bind.pod).collect();
    bound.sort_by(|left, right| left.name.cmp(&right.name));
    assert_eq!(bound, [pod(&second, 0, "1").pod, pod(&second, 1, "1").pod]);
}

#[test]
fn a_pod_of_a_missing_group_is_a_victim_like_others() {
    let mut engine = world("1", "-1 L-1");
    let (urgent, nosuch) = (group("a", "q", 0), group("nosuch", "elsewhere", 0));
    let urgent = GroupInput { priority: 75, ..urgent };
    known(&mut engine, &urgent);
    let stray = running(&nosuch, 0);
    see(&mut engine, &stray);
    see(&mut engine, &pod(&urgent, 0, "1"));
    let evicted: Vec<_> = engine.cycle(NOW).evict.into_iter().map(|evict| evict.pod).collect();
    assert_eq!(evicted, [stray.pod]);
}

#[test]
fn a_pod_without_group_and_queue_is_not_charged() {
    let (mut engine, honest) = one_gpu_queue();
    let stray = PodInput {
        fallback_queue: None,
        ..running(&group("nosuch", "q", 0), 0)
    };
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut engine), 1, "as in KAI");
}

/// A group of one pod that runs, seen by a scheduler that knows the queues.
fn runs(engine: &mut Engine, group: &GroupInput) -> PodInput {
    bound(engine);
    known(engine, group);
    let pod = running(group, 0);
    see(engine, &pod);
    pod
}

/// The pod changes in something that means nothing.
fn touched(engine: &mut Engine, pod: &PodInput) {
    let pod = PodInput {
        task_priority: Some(7),
        ..pod.clone()
    };
    see(engine, &pod);
}

#[test]
fn running_pods_stay_charged_when_their_group_names_a_missing_queue() {
    let mut engine = world("4", "-1 L1");
    let (moved, honest) = (group("a", "q", 0), group("b", "q", 1));
    let pod_of_it = runs(&mut engine, &moved);
    known(&mut engine, &honest);
    see(&mut engine, &pod(&honest, 0, "1"));
    let nowhere = GroupInput {
        queue: "nosuch".into(),
        ..moved
    };
    known(&mut engine, &nowhere);
    see(&mut engine, &pod(&nowhere, 1, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
    touched(&mut engine, &pod_of_it);
    assert_eq!(bound(&mut engine), 0);
    engine.apply(Event::PodGone(pod_of_it.pod.uid.clone()), NOW);
    assert_eq!(bound(&mut engine), 1, "the other group's");
}

#[test]
fn running_pods_are_charged_to_the_queue_of_their_label_when_their_group_never_named_an_existing_queue() {
    let mut engine = world("4", "-1 L1");
    let (nowhere, honest) = (group("a", "nosuch", 0), group("b", "q", 1));
    known(&mut engine, &nowhere);
    see(&mut engine, &running(&nowhere, 0));
    known(&mut engine, &honest);
    see(&mut engine, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut engine), 0, "after a restart");
    engine.apply(Event::Queue(Box::new(queue("nosuch", "-1 L1", Time(0)))), NOW);
    assert_eq!(bound(&mut engine), 1, "now it has one");
}

#[test]
fn running_pods_stay_charged_when_their_group_names_a_queue_that_does_not_allow_the_namespace() {
    let mut engine = world("4", "-1 L1");
    engine.apply(Event::Queue(Box::new(queue("gold", "-1 L1", Time(0)))), NOW);
    let moved = group("a", "q", 0);
    runs(&mut engine, &moved);
    for (name, queue) in [("b", "q"), ("c", "gold")] {
        let honest = group(name, queue, 1);
        known(&mut engine, &honest);
        see(&mut engine, &pod(&honest, 0, "1"));
    }
    let refused = GroupInput {
        queue: "gold".into(),
        refused: Some("not open".into()),
        ..moved
    };
    known(&mut engine, &refused);
    let decided = engine.cycle(NOW).bind;
    let groups: Vec<&str> = decided.iter().map(|bind| bind.group.name()).collect();
    assert_eq!(groups, ["c"], "the other queue is as free as it was");
}

#[test]
fn running_pods_stay_charged_when_their_queue_no_longer_allows_the_namespace() {
    let mut engine = world("4", "-1 L1");
    let (closed_out, honest) = (group("a", "q", 0), group("b", "q", 1));
    runs(&mut engine, &closed_out);
    known(&mut engine, &honest);
    see(&mut engine, &pod(&honest, 0, "1"));
    let refused = GroupInput {
        refused: Some("not open".into()),
        ..closed_out
    };
    known(&mut engine, &refused);
    assert_eq!(bound(&mut engine), 0);
}

/// Whether a more urgent pod of its queue gets the only GPU, once the group of the pod that has it says that it is no victim.
fn is_evicted(quota: &str, becomes: impl Fn(&mut Engine, GroupInput, &PodInput)) -> bool {
    let mut engine = world("1", quota);
    let over = group("a", "q", 0);
    let holder = runs(&mut engine, &over);
    bound(&mut engine);
    becomes(
        &mut engine,
        GroupInput {
            preemptible: false,
            ..over
        },
        &holder,
    );
    evicted_for_urgent(&mut engine, 75).contains(&holder.pod)
}

/// The pods that are evicted for a pod of that priority in their queue.
fn evicted_for_urgent(engine: &mut Engine, priority: i64) -> Vec<PodRef> {
    let urgent = GroupInput {
        priority,
        ..group("b", "q", 1)
    };
    known(engine, &urgent);
    see(engine, &pod(&urgent, 0, "1"));
    let evicted = engine.cycle(NOW).evict;
    assert!(
        engine.model().broken_rules().is_empty(),
        "{:?}",
        engine.model().broken_rules()
    );
    evicted.into_iter().map(|evict| evict.pod).collect()
}

#[test]
fn running_pods_beyond_quota_cannot_become_non_preemptible() {
    let says_so = |engine: &mut Engine, group: GroupInput, _: &PodInput| known(engine, &group);
    assert!(is_evicted("0 L-1", says_so));
    assert!(!is_evicted("1 L-1", says_so), "the quota covers it");
    assert!(
        is_evicted("0 L-1", |engine, group, pod| {
            known(engine, &group);
            touched(engine, pod);
        }),
        "whatever else changes"
    );
    assert!(
        is_evicted("0 L-1", |engine, group, pod| {
            engine.apply(Event::GroupGone(group.key.clone()), NOW);
            touched(engine, pod);
            known(
                engine,
                &GroupInput {
                    uid: "another".into(),
                    ..group
                },
            );
        }),
        "with a new pod group of the same name"
    );
    let with_a_new_queue = |engine: &mut Engine, group: GroupInput, _: &PodInput| {
        engine.apply(open_queue("new"), NOW);
        known(engine, &group);
    };
    assert!(
        is_evicted("0 L-1", with_a_new_queue),
        "while the tree of queues changes"
    );
    assert!(!is_evicted("1 L-1", with_a_new_queue), "the quota covers it then, too");
}

#[test]
fn a_non_preemptible_group_whose_class_is_listed_late_is_no_victim_although_its_quota_was_lowered() {
    let mut engine = world("1", "0 L-1");
    let without_its_class = group("a", "q", 0);
    known(&mut engine, &without_its_class);
    see(&mut engine, &running(&without_its_class, 0));
    let with_it = GroupInput {
        preemptible: false,
        priority: 100,
        ..without_its_class
    };
    known(&mut engine, &with_it);
    assert_eq!(evicted_for_urgent(&mut engine, 125), []);
}

#[test]
fn preemptibility_follows_the_group_once_pods_beyond_quota_have_ended() {
    let mut engine = world("1", "0 L-1");
    let over = group("a", "q", 0);
    let holder = runs(&mut engine, &over);
    bound(&mut engine);
    let protected = GroupInput {
        preemptible: false,
        ..over
    };
    known(&mut engine, &protected);
    engine.apply(Event::PodGone(holder.pod.uid.clone()), NOW);
    see(&mut engine, &pod(&protected, 1, "1"));
    assert_eq!(bound(&mut engine), 0, "work that is no victim has no quota here");
}

#[test]
fn start_times_in_the_future_are_ignored() {
    let mut engine = world("1", "-1 L-1");
    let over = group("a", "q", 0);
    let holder = runs(&mut engine, &over);
    let late = GroupInput {
        last_start: Some(Time(NOW.0 * 2)),
        ..over
    };
    known(&mut engine, &late);
    assert_eq!(evicted_for_urgent(&mut engine, 75), [holder.pod]);
}

#[test]
fn names_of_missing_queues_are_forgotten() {
    let mut engine = world("1", "-1 L-1");
    for number in 0..5_000 {
        known(&mut engine, &group("a", &format!("nosuch-{number}"), 0));
    }
    let queues = engine.model().queues().ids().count();
    assert!(queues < 2_000, "{queues} queues");
    known(&mut engine, &group("a", "q", 0));
    see(&mut engine, &pod(&group("a", "q", 0), 0, "1"));
    assert_eq!(bound(&mut engine), 1);
}

/// What the pods of the queue hold, in thousandths of a GPU.
fn charged(engine: &Engine) -> i64 {
    let queues = engine.model().queues();
    queues[queues.id("q").expect("a known queue")].allocated[GPUS] / (GPU / 1_000)
}

/// A pod that runs, with memory of one GPU.
fn running_by_memory(group: &GroupInput, memory: &str, on: &str) -> PodInput {
    PodInput {
        gpu_groups: vec!["g".into()],
        ..placed(pod(group, 0, memory), on)
    }
}

#[test]
fn gpu_memory_on_an_unknown_node_counts_against_the_limit_of_its_queue() {
    let mut engine = world("4 of 1000", "-1 L1");
    let honest = group("a", "q", 0);
    known(&mut engine, &honest);
    see(&mut engine, &running_by_memory(&honest, "500M", "nosuch"));
    see(&mut engine, &pod(&honest, 1, "600M"));
    assert_eq!((bound(&mut engine), charged(&engine)), (0, 500), "1.1 of 1 GPU");
    engine.apply(Event::Node(Box::new(node("n0", "4 of 2000"))), NOW);
    assert_eq!((bound(&mut engine), charged(&engine)), (1, 550), "0.55 of 1 GPU");
}

#[test]
fn gpu_memory_on_an_unknown_node_counts_in_gpus_of_the_smallest_size_also_when_that_changes() {
    let mut engine = world("4 of 1000", "-1 L-1");
    engine.apply(Event::Node(Box::new(node("n1", "4 of 2000"))), NOW);
    let honest = group("a", "q", 0);
    known(&mut engine, &honest);
    let running = running_by_memory(&honest, "500M", "n1");
    let resized = |gpus: &str| Event::Node(Box::new(node("n0", gpus)));
    for (event, expected) in [
        (Event::Pod(Box::new(running.clone())), 250),
        (Event::NodeGone("n1".into()), 500),
        (resized("4 of 400"), 1_250),
        (resized("4 of 1000"), 500),
    ] {
        engine.apply(event, NOW);
        bound(&mut engine);
        assert_eq!(charged(&engine), expected);
    }
    let mut anew = world("4 of 1000", "-1 L-1");
    known(&mut anew, &honest);
    see(&mut anew, &running);
    bound(&mut anew);
    is_the_same(&engine, &anew);
    // Before the queues are counted with the new size.
    engine.apply(resized("4 of 2000"), NOW);
    engine.apply(Event::PodGone(running.pod.uid.clone()), NOW);
    assert_eq!(charged(&engine), 0);
    bound(&mut engine);
    assert_eq!(charged(&engine), 0);
}

/// A process that has just started may see bound pods before their labels are written, and before it has grouped them.
#[test]
fn a_gang_is_not_stale_before_the_sub_groups_of_its_bound_pods_are_known() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::StaleGangEviction],
        ..Policy::default()
    });
    engine.apply(open_queue("root"), NOW);
    engine.apply(Event::Queue(Box::new(queue("q", "4", Time(0)))), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "4"))), NOW);
    let gang = GroupInput {
        sub_groups: vec![sub_group("master:1"), sub_group("worker:2")],
        staleness_grace: Some(0),
        ..group("a", "q", 0)
    };
    known(&mut engine, &gang);
    let member = |number: usize, sub_group: Option<&str>| PodInput {
        sub_group: sub_group.map(Name::from),
        ..running(&gang, number)
    };
    for number in 0..3 {
        see(&mut engine, &member(number, None));
    }
    assert_eq!(engine.cycle(NOW).evict.len(), 0);
    assert_eq!(engine.stale_groups().len(), 0);
    see(&mut engine, &member(0, Some("master")));
    see(&mut engine, &member(1, Some("worker")));
    assert_eq!(engine.cycle(NOW).evict.len(), 0, "one is still unknown");
    see(&mut engine, &member(2, Some("master")));
    assert_eq!(engine.cycle(NOW).evict.len(), 3, "there is only one worker");
}
