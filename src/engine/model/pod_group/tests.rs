use super::{Member, PodGroup, PodIds, Status};
use crate::api::limits::{SUB_GROUP_DEPTH, SUB_GROUPS_PER_POD_GROUP};
use crate::engine::input::{GroupInput, Name};
use crate::engine::model::ids::PodId;
use crate::engine::tests::{group, sub_group};

/// A pod group of `subs` (see [`sub_group`]), with a need of the root.
fn pod_group(need: Option<i64>, subs: &[&str]) -> PodGroup {
    let input = GroupInput {
        min_sub_group: need,
        sub_groups: subs.iter().map(|text| sub_group(text)).collect(),
        ..group("g", "q", 0)
    };
    let mut pod_group = PodGroup::unknown(input.key.clone());
    pod_group.input = Some(Box::new(input));
    pod_group.build_tree();
    pod_group
}

/// Pods of sub-groups as `a3 b1`: three of a, one of b.
fn counts(pod_group: &PodGroup, text: &str) -> Vec<usize> {
    let mut counts = vec![0; pod_group.tree.len()];
    for word in text.split_whitespace() {
        let (name, count) = word.split_at(1);
        let member = pod_group.pod_set(Some(&name.into())).expect("a pod set");
        counts[member as usize] = count.parse().expect("a count");
    }
    counts
}

fn words(pod_group: &PodGroup, pods: &[PodId]) -> String {
    let name = |pod: &PodId| pod_group.tree[pod.at() / 100].name.to_string();
    pods.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn pods(member: Member, count: usize) -> PodIds {
    (0..count)
        .map(|number| PodId::of(member as usize * 100 + number))
        .collect()
}

#[test]
fn the_next_pods_to_place() {
    /// (need of the root, sub-groups, active, pending, next)
    type Row = (
        Option<i64>,
        &'static [&'static str],
        &'static str,
        &'static str,
        &'static str,
    );
    let rows: &[Row] = &[
        (None, &["a:2", "b:2"], "a2", "a1 b2", "b b"),
        (None, &["a:2", "b:1"], "a1", "a4 b2", "a b"),
        (None, &["a:1", "b:2"], "a2 b2", "a1 b3", "b"),
        (Some(1), &["a:2", "b:2"], "", "a2 b2", "a a"),
        (Some(1), &["a:2", "b:2"], "a2", "b2", "b b"),
        (Some(0), &["a:2", "b:2"], "", "a2 b2", "a a"),
        (Some(1), &["a:2", "b:2"], "", "a1 b2", "b b"),
        (Some(2), &["a:2", "b:2", "c:2"], "c2", "a2 b2", "a a"),
        (
            None,
            &["x/1", "x.a:1", "x.b:1", "y", "y.c:1", "y.d:1"],
            "a1",
            "b2 c2 d2",
            "c d",
        ),
        (
            None,
            &["x/1", "x.a:1", "x.b:1", "y", "y.c:1", "y.d:1"],
            "a2 b1 c1 d1",
            "a2 c2",
            "c",
        ),
    ];
    for (need, subs, active, pending, next) in rows {
        let pod_group = pod_group(*need, subs);
        let waiting = counts(&pod_group, pending);
        let take = |member: Member, most: usize| pods(member, waiting[member as usize].min(most));
        let chunk = pod_group.chunk(&counts(&pod_group, active), &take);
        assert_eq!(
            words(&pod_group, &chunk),
            *next,
            "{need:?} of {subs:?}, active {active}, pending {pending}"
        );
    }
}

#[test]
fn the_next_pods_to_evict() {
    /// (need of the root, sub-groups, active, the first units)
    type Row = (
        Option<i64>,
        &'static [&'static str],
        &'static str,
        &'static [&'static str],
    );
    let rows: &[Row] = &[
        (None, &["a:2"], "a4", &["a", "a", "a a"]),
        (None, &["a:1", "b:1"], "a2 b2", &["b", "a", "a b"]),
        (Some(1), &["a:1", "b:1"], "a1 b1", &["b", "a"]),
        (None, &["x/1", "x.a:2", "x.b:2"], "a2 b2", &["b b", "a a"]),
        (
            Some(1),
            &["x", "x.a:1", "x.b:1", "y", "y.c:1", "y.d:1"],
            "a1 b1 c1 d1",
            &["c d", "a b"],
        ),
        (None, &["a:2"], "a1", &["a"]),
    ];
    for (need, subs, active, units) in rows {
        let pod_group = pod_group(*need, subs);
        let mut left = counts(&pod_group, active);
        for unit in *units {
            let chunk = pod_group.evict_chunk(&left, &|member| pods(member, left[member as usize]));
            assert_eq!(
                words(&pod_group, &chunk),
                *unit,
                "{need:?} of {subs:?}, {active} at first"
            );
            for pod in chunk {
                left[pod.at() / 100] -= 1;
            }
        }
    }
}

#[test]
fn pods_wait_if_a_minimum_at_or_above_their_pod_set_is_met_only_with_pipelined_pods() {
    /// (need of the root, sub-groups, allocated, pipelined, pod sets that wait)
    type Row = (
        Option<i64>,
        &'static [&'static str],
        &'static str,
        &'static str,
        &'static str,
    );
    let nested: &[&str] = &["x:1", "p", "p.c:1", "p.d:1"];
    let rows: &[Row] = &[
        (None, &["a:1", "b:1"], "a1 b1", "", ""),
        (None, &["a:1", "b:1"], "a1", "b1", "a b"),
        (None, &["a:1"], "a1", "a1", ""),
        (Some(1), &["a:1", "b:2"], "a1 b1", "b1", "b"),
        (Some(1), nested, "x1 c1", "d1", "c d"),
        (Some(1), nested, "x1 c1 d1", "c1", ""),
        (Some(1), nested, "x1 c1", "", ""),
        (Some(1), &["x:1", "p/1", "p.c:1", "p.d:1"], "x1 c1", "d1", "d"),
        (Some(1), &["x:1", "p", "p.q", "q.c:1", "p.d:1"], "x1 c1", "d1", "c d"),
    ];
    for (need, subs, allocated, pipelined, waiting) in rows {
        let mut pod_group = pod_group(*need, subs);
        for (status, text) in [(Status::Allocated, allocated), (Status::Pipelined, pipelined)] {
            for (member, count) in counts(&pod_group, text).into_iter().enumerate() {
                if let Some(pods) = pod_group.pods_mut(member as Member) {
                    pods.counts[status as usize] = count as u32;
                }
            }
        }
        let members = pod_group.waiting_for_plans();
        let waits = pod_group.pod_sets().filter(|(member, _)| members[*member as usize]);
        let names: Vec<&str> = waits
            .map(|(member, _)| pod_group.tree[member as usize].name.as_str())
            .collect();
        assert_eq!(
            names.join(" "),
            *waiting,
            "{need:?} of {subs:?}, allocated {allocated}, pipelined {pipelined}"
        );
    }
}

#[test]
fn contradictory_sub_groups_are_named() {
    let broken = |subs: &[&str]| pod_group(None, subs).broken;
    assert_eq!(broken(&["a:1", "a:2"]).as_deref(), Some("subgroup a already exists"));
    assert_eq!(broken(&["x.a:1"]).as_deref(), Some("parent subgroup x of a not found"));
    assert_eq!(broken(&["x", "x.a:1"]), None);
}

#[test]
fn sub_groups_beyond_the_limits_are_an_error_of_the_pod_group() {
    let chain = |length: usize| -> Vec<String> {
        let sub = |at: usize| match at {
            0 => "s0".to_owned(),
            _ => format!("s{}.s{at}", at - 1),
        };
        (0..length).map(sub).collect()
    };
    let broken = |subs: Vec<String>| {
        let subs: Vec<&str> = subs.iter().map(String::as_str).collect();
        pod_group(None, &subs).broken
    };
    assert_eq!(broken(chain(SUB_GROUP_DEPTH)), None);
    let deep = format!("subgroups are nested more than {SUB_GROUP_DEPTH} deep");
    assert_eq!(broken(chain(SUB_GROUP_DEPTH + 1)).as_deref(), Some(&*deep));
    assert_eq!(broken(chain(2_000)).as_deref(), Some(&*deep));
    let flat = |count: usize| -> Vec<String> { (0..count).map(|at| format!("s{at}:1")).collect() };
    assert_eq!(broken(flat(SUB_GROUPS_PER_POD_GROUP)), None);
    let many = broken(flat(10_000)).unwrap();
    assert!(
        many.starts_with("there are 10000 subgroups, and at most 4096 are possible"),
        "{many}"
    );
}

#[test]
fn pods_of_a_gang_with_contradictory_sub_groups_are_in_one_pod_set() {
    let pod_group = pod_group(None, &["a:1", "a:2"]);
    assert!(pod_group.broken.is_some());
    for label in [None, Some("a"), Some("b")] {
        assert_eq!(pod_group.pod_set(label.map(Name::from).as_ref()), Some(1), "{label:?}");
    }
}
