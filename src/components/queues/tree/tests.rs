use proptest::prelude::*;

use super::*;
use crate::api::limits;
use crate::components::bus::{Amounts, Waits};
use crate::engine::decision::Cause;

fn usage(group: &str, queue: Option<&str>, gpus: i64) -> Usage {
    let amounts = if gpus == 0 {
        Amounts::new()
    } else {
        Amounts::one("gpu", Amount::from_units(gpus))
    };
    Usage {
        group: GroupKey::new("ns", group),
        queue: queue.map(ToOwned::to_owned),
        requested: amounts.clone(),
        allocated: amounts,
        allocated_non_preemptible: Amounts::new(),
        waits: (gpus == 0).then_some(Waits {
            cause: Cause::Unknown,
            since: 0,
        }),
    }
}

fn gpus(tree: &Tree, queue: &str) -> i64 {
    tree.totals(queue)
        .allocated
        .amounts()
        .get("gpu")
        .map_or(0, Amount::units)
}

#[test]
fn pod_groups_that_wait_are_counted_up_the_tree() {
    let mut tree = Tree::default();
    tree.put("top", None);
    tree.put("leaf", Some("top"));
    let waiting = |tree: &Tree| ["leaf", "top"].map(|queue| tree.totals(queue).waiting.units());
    tree.count(usage("a", Some("leaf"), 0));
    tree.count(usage("b", Some("leaf"), 0));
    tree.count(usage("c", Some("top"), 0));
    assert_eq!(waiting(&tree), [2, 3]);
    tree.count(usage("a", Some("leaf"), 1));
    tree.count(usage("b", None, 0));
    assert_eq!(waiting(&tree), [0, 1]);
}

#[test]
fn totals_go_up_the_tree_and_follow_moves() {
    let mut tree = Tree::default();
    tree.put("top", None);
    tree.put("mid", Some("top"));
    tree.put("leaf", Some("mid"));
    tree.put("other", Some("top"));
    assert_eq!(
        tree.count(usage("g", Some("leaf"), 4)),
        BTreeSet::from(["leaf", "mid", "top"].map(String::from))
    );
    assert!(tree.count(usage("g", Some("leaf"), 4)).is_empty(), "nothing changed");
    assert_eq!(
        ["leaf", "mid", "other", "top"].map(|queue| gpus(&tree, queue)),
        [4, 4, 0, 4]
    );
    tree.count(usage("g", Some("other"), 3));
    assert_eq!(
        ["leaf", "mid", "other", "top"].map(|queue| gpus(&tree, queue)),
        [0, 0, 3, 3]
    );
    tree.put("other", Some("mid"));
    assert_eq!(
        ["leaf", "mid", "other", "top"].map(|queue| gpus(&tree, queue)),
        [0, 3, 3, 3]
    );
    tree.count(usage("g", None, 0));
    assert_eq!(["leaf", "mid", "other", "top"].map(|queue| gpus(&tree, queue)), [0; 4]);
    assert_eq!(tree.children("mid"), ["leaf", "other"]);
}

#[test]
fn a_loop_of_queues_counts_nothing_twice() {
    let mut tree = Tree::default();
    tree.put("self", Some("self"));
    tree.put("a", Some("b"));
    tree.put("b", Some("a"));
    tree.put("below", Some("a"));
    tree.count(usage("g", Some("self"), 1));
    tree.count(usage("h", Some("a"), 2));
    tree.count(usage("i", Some("below"), 4));
    assert_eq!(
        ["self", "a", "b", "below"].map(|queue| gpus(&tree, queue)),
        [1, 2, 0, 4]
    );
    let changed = tree.put("b", None);
    assert_eq!(changed, BTreeSet::from(["a", "b", "below"].map(String::from)));
    assert_eq!(
        ["self", "a", "b", "below"].map(|queue| gpus(&tree, queue)),
        [1, 6, 6, 4]
    );
}

#[test]
fn queues_without_pod_groups_leave_no_sums_behind() {
    let mut tree = Tree::default();
    tree.put("top", None);
    for name in ["passing", "elsewhere"] {
        tree.put(name, Some("top"));
        tree.count(usage("g", Some(name), 2));
        tree.remove(name);
    }
    tree.count(usage("waits", Some("missing"), 0));
    tree.count(usage("g", None, 0));
    tree.count(usage("waits", None, 0));
    assert_eq!((tree.own.len(), tree.totals.len(), tree.children.len()), (0, 0, 0));
}

#[test]
fn amounts_that_together_exceed_the_greatest_quantity_leave_no_sums_behind() {
    let mut tree = Tree::default();
    tree.put("top", None);
    tree.put("q", Some("top"));
    for group in ["a", "b"] {
        tree.count(usage(group, Some("q"), i64::MAX));
    }
    tree.count(usage("c", Some("q"), 3));
    assert_eq!(["q", "top"].map(|queue| gpus(&tree, queue)), [i64::MAX; 2]);
    for group in ["a", "b"] {
        tree.count(usage(group, None, 0));
    }
    assert_eq!(["q", "top"].map(|queue| gpus(&tree, queue)), [3; 2]);
    tree.count(usage("c", None, 0));
    assert_eq!(tree.totals("q"), Totals::default());
    assert_eq!((tree.own.len(), tree.totals.len()), (0, 0));
}

#[test]
fn a_queue_counts_all_names_of_resources_and_shows_a_limited_number_of_them_in_any_order() {
    let groups = 2 * limits::RESOURCE_NAMES_PER_STATUS;
    let counted = |numbers: &mut dyn Iterator<Item = usize>| {
        let mut tree = Tree::default();
        tree.put("top", None);
        tree.put("q", Some("top"));
        for number in numbers {
            let amounts = [format!("a.example/{number}"), "gpu".to_owned()].map(|name| (name, Amount::from_units(1)));
            tree.count(Usage {
                requested: amounts.into_iter().collect(),
                ..usage(&format!("g{number}"), Some("q"), 0)
            });
        }
        tree
    };
    let mut tree = counted(&mut (0..groups));
    assert_eq!(statuses(&tree), statuses(&counted(&mut (0..groups).rev())));
    let shown = tree.totals("top").requested.amounts();
    assert_eq!(shown.len(), limits::RESOURCE_NAMES_PER_STATUS);

    (1..groups).for_each(|number| drop(tree.count(usage(&format!("g{number}"), None, 0))));
    assert_eq!(
        statuses(&tree),
        statuses(&counted(&mut (0..1))),
        "as if they had never been"
    );
    tree.count(usage("g0", None, 0));
    assert_eq!((tree.own.len(), tree.totals.len()), (0, 0));
}

#[test]
fn usage_of_a_queue_that_comes_later_is_not_lost() {
    let mut tree = Tree::default();
    tree.count(usage("g", Some("late"), 2));
    tree.put("top", None);
    let changed = tree.put("late", Some("top"));
    assert_eq!(changed, BTreeSet::from(["late", "top"].map(String::from)));
    assert_eq!((gpus(&tree, "late"), gpus(&tree, "top")), (2, 2));
    tree.remove("late");
    assert_eq!(gpus(&tree, "top"), 0);
}

/// The totals counted from nothing: each queue for itself and for all above it that exist, unless these form a cycle.
fn counted(tree: &Tree) -> BTreeMap<String, Totals> {
    let mut totals = BTreeMap::new();
    for (queue, own) in tree.usage.values() {
        let mut names = vec![queue];
        let mut above = tree.parents.get(queue).and_then(Option::as_ref);
        while let Some(name) = above.filter(|name| tree.parents.contains_key(*name)) {
            if names.contains(&name) {
                names.truncate(1);
                break;
            }
            names.push(name);
            above = tree.parents.get(name).and_then(Option::as_ref);
        }
        for name in names {
            update(&mut totals, name, own, Amount::wide_add);
        }
    }
    totals
}

/// What the statuses of all queues show.
fn statuses(tree: &Tree) -> BTreeMap<String, (Totals, Vec<String>)> {
    let status = |name: String| {
        let is_below = |parent: &Option<String>| parent.as_deref() == Some(&*name);
        let below = tree.parents.iter().filter(|(_, parent)| is_below(parent));
        let below: Vec<String> = below.map(|(child, _)| child.clone()).collect();
        (name.clone(), (tree.totals(&name), below))
    };
    tree.queues().into_iter().map(status).collect()
}

/// Amounts of which a few together exceed what a quantity can hold, too.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..9i64, 1 => Just(i64::MAX)]
}

proptest! {
    /// However queues and usage change, also in cycles and below queues that do not exist, the totals kept by difference are those counted from
    /// nothing, and each queue is named whose status differs.
    #[test]
    fn differences_add_up(steps in prop::collection::vec((0..4u8, 0..7usize, 0..8usize, amount()), 1..80)) {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let mut tree = Tree::default();
        for (what, one, other, amount) in steps {
            let before = statuses(&tree);
            let changed = match what {
                0 | 1 => tree.put(names[one], names.get(other).copied()),
                2 => tree.remove(names[one]),
                _ => tree.count(usage(&format!("g{one}"), names.get(other).copied(), amount)),
            };
            let expected = counted(&tree);
            prop_assert_eq!(&tree.totals, &expected);
            prop_assert!(tree.own.values().chain(tree.totals.values()).all(|sums| *sums != Totals::default()));
            for (name, status) in statuses(&tree) {
                prop_assert!(changed.contains(&name) || before.get(&name) == Some(&status), "{}", name);
                let (_, below) = status;
                prop_assert_eq!(tree.children(&name), below);
            }
        }
    }
}
