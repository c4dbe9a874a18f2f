use proptest::prelude::*;

use super::*;
use crate::engine::model::gang::Stage;

fn order(number: u8) -> JobOrder {
    JobOrder {
        priority: 0,
        stage: Stage::Exact,
        created: Time(i64::from(number)),
        name: ("job".into(), "ns".into()),
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
                None => line.enter(&order_of, Standing { gang: GangId::of(usize::from(number)), amount }),
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
}
