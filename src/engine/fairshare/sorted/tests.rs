use proptest::prelude::*;

use super::*;
use crate::engine::input::GroupKey;
use crate::engine::model::pod_group::Stage;

fn order(number: u8) -> PodGroupOrder {
    PodGroupOrder {
        priority: 0,
        stage: Stage::Exact,
        created: Time(i64::from(number)),
        key: GroupKey::new("ns", "job"),
    }
}

#[test]
fn a_walk_from_one_request_to_the_next_looks_at_each_pod_group_twice_at_most() {
    let pod_groups: u8 = 200;
    for alike in 1..20_i64 {
        let mut line = QueuePodGroups::default();
        for number in 0..pod_groups {
            let sorted_entry = SortedEntry {
                pod_group: PodGroupId::of(usize::from(number)),
                amount: [i64::from(number) / alike, 0, 0],
            };
            line.enter(order(number), sorted_entry);
        }
        let (mut at, mut looked_at) = (Some(order(0)), 0);
        while let Some(after) = at {
            let amount = line.waiting[&after].amount;
            let (next, steps) = line.next_unlike(&after, &amount);
            looked_at += steps;
            at = next.cloned();
        }
        assert!(
            looked_at <= 2 * usize::from(pod_groups),
            "{looked_at} steps, {alike} alike"
        );
    }
}

proptest! {
    /// However pod groups are inserted and removed, `next_unlike` finds what a scan of the queue finds.
    #[test]
    fn the_next_different_pod_group_is_found(moves in prop::collection::vec((0..8_u8, 0..3_i64), 0..40)) {
        let mut line = QueuePodGroups::default();
        for (number, amount) in moves {
            let (order_of, amount) = (order(number), [amount, 0, 0]);
            match line.waiting.get(&order_of).map(|sorted_entry| sorted_entry.amount) {
                Some(amount) => line.leave(&order_of, &amount),
                None => line.enter(order_of, SortedEntry { pod_group: PodGroupId::of(usize::from(number)), amount }),
            }
            for after in 0..8 {
                let after = order(after);
                for amount in [0, 1, 2].map(|amount| [amount, 0, 0]) {
                    let asked = line.waiting.get(&after).map_or(amount, |sorted_entry| sorted_entry.amount);
                    let plain = line.waiting.iter().find(|(other, sorted_entry)| **other > after && sorted_entry.amount != asked);
                    prop_assert_eq!(line.next_unlike(&after, &asked).0, plain.map(|(order, _)| order));
                }
            }
        }
    }

    /// One merge of many insertions gives the same order as single insertions.
    #[test]
    fn bulk_insertion_equals_single_insertions(crowds in prop::collection::vec(prop::collection::btree_map(any::<u8>(), 0..2_i64, 0..60), 1..4)) {
        let (mut line, mut plain) = (QueuePodGroups::default(), QueuePodGroups::default());
        let mut standings = BTreeMap::new();
        for crowd in crowds {
            for (number, amount) in crowd {
                if plain.waiting.contains_key(&order(number)) {
                    continue;
                }
                let sorted_entry = SortedEntry { pod_group: PodGroupId::of(usize::from(number)), amount: [amount, 0, 0] };
                standings.insert(sorted_entry.pod_group, (order(number), sorted_entry));
                line.insertions.waiting.push(sorted_entry.pod_group);
                line.insertions.victims.push(sorted_entry.pod_group);
                plain.enter(order(number), sorted_entry);
                plain.victims.insert(order(number), sorted_entry);
            }
            let sorted_entry = |pod_group: PodGroupId| standings.get(&pod_group).cloned();
            line.join_waiting(sorted_entry);
            line.join_victims(sorted_entry);
            prop_assert_eq!(&line.waiting, &plain.waiting);
            prop_assert_eq!(&line.victims, &plain.victims);
            prop_assert!(line.insertions.waiting.is_empty() && line.insertions.victims.is_empty());
            for (order, sorted_entry) in &line.waiting {
                let amounts = [sorted_entry.amount, [0; 3], [1, 0, 0]];
                for amount in amounts {
                    prop_assert_eq!(line.next_unlike(order, &amount).0, plain.next_unlike(order, &amount).0);
                }
            }
        }
    }
}
