use proptest::prelude::*;

use super::*;
use crate::engine::input::GroupKey;
use crate::engine::model::gang::Stage;

fn order(number: u8) -> JobOrder {
    JobOrder {
        priority: 0,
        stage: Stage::Exact,
        created: Time(i64::from(number)),
        key: GroupKey::new("ns", "job"),
    }
}

proptest! {
    /// Whoever comes and goes, the next that asks for something else is found as by looking through the line.
    #[test]
    fn the_next_unlike_is_found(moves in prop::collection::vec((0..8_u8, 0..3_i64), 0..40)) {
        let mut line = Line::default();
        for (number, amount) in moves {
            let (order_of, amount) = (order(number), [amount, 0, 0]);
            match line.waiting.get(&order_of).map(|standing| standing.amount) {
                Some(amount) => line.leave(&order_of, &amount),
                None => line.enter(order_of, Standing { gang: GangId::of(usize::from(number)), amount }),
            }
            for after in 0..8 {
                let after = order(after);
                for amount in [0, 1, 2].map(|amount| [amount, 0, 0]) {
                    let asked = line.waiting.get(&after).map_or(amount, |standing| standing.amount);
                    let plain = line.waiting.iter().find(|(other, standing)| **other > after && standing.amount != asked);
                    prop_assert_eq!(line.next_unlike(&after, &asked), plain.map(|(order, _)| order));
                }
            }
        }
    }

    /// Whether many come at once or one by one, the lines are the same.
    #[test]
    fn many_stand_as_if_they_had_come_one_by_one(crowds in prop::collection::vec(prop::collection::btree_map(any::<u8>(), 0..2_i64, 0..60), 1..4)) {
        let (mut line, mut plain) = (Line::default(), Line::default());
        let mut standings = BTreeMap::new();
        for crowd in crowds {
            for (number, amount) in crowd {
                if plain.waiting.contains_key(&order(number)) {
                    continue;
                }
                let standing = Standing { gang: GangId::of(usize::from(number)), amount: [amount, 0, 0] };
                standings.insert(standing.gang, (order(number), standing));
                line.arrivals.waiting.push(standing.gang);
                line.arrivals.victims.push(standing.gang);
                plain.enter(order(number), standing);
                plain.victims.insert(order(number), standing);
            }
            let standing = |gang: GangId| standings.get(&gang).cloned();
            line.join(standing, standing);
            prop_assert_eq!(&line.waiting, &plain.waiting);
            prop_assert_eq!(&line.victims, &plain.victims);
            prop_assert!(line.arrivals.waiting.is_empty() && line.arrivals.victims.is_empty());
            for (order, standing) in &line.waiting {
                let amounts = [standing.amount, [0; 3], [1, 0, 0]];
                for amount in amounts {
                    prop_assert_eq!(line.next_unlike(order, &amount), plain.next_unlike(order, &amount));
                }
            }
        }
    }
}
