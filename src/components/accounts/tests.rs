use super::*;
use crate::engine::input::{Event, QueueInput, Share};
use crate::engine::policy::Policy;
use crate::usage::Window;

const HOUR: i64 = 3_600_000;

fn queue(name: &str) -> Event {
    let share = Share {
        quota: Some(0),
        limit: None,
        weight: 1,
    };
    Event::Queue(Box::new(QueueInput {
        name: name.into(),
        display: name.into(),
        parent: None,
        priority: 100,
        created: Time(0),
        cpu: share,
        memory: share,
        gpu: share,
        ..QueueInput::default()
    }))
}

/// A ledger by which a queue that is gone still holds what it held.
fn ledger() -> Ledger {
    let mut ledger = Ledger::new(Window::Sliding(10 * HOUR), None);
    ledger.capacity([0, 0, 8], Time(0));
    ledger.hold(&"gone".into(), [0, 0, 8], Time(0));
    ledger
}

#[test]
fn a_new_ledger_gets_all_current_amounts() {
    let (mut meter, accounts) = channel();
    let mut engine = Engine::new(Policy::default());
    engine.apply(queue("a"), Time(HOUR));
    engine.cycle(Time(HOUR));
    meter.read(&engine, Time(HOUR));
    assert!(accounts.ledger.ledger().is_none(), "it is closed");
    for _ in 0..2 {
        accounts.ledger.open(ledger());
        meter.read(&engine, Time(HOUR));
        // The cluster has no capacity and no allocations any more: only the first hour counts.
        assert_eq!(
            accounts.ledger.usage(Time(5 * HOUR)),
            [("gone".into(), [0, 0, 1_000_000_000])]
        );
        accounts.ledger.close();
    }
    assert_eq!(accounts.ledger.usage(Time(5 * HOUR)), []);
}

#[test]
fn cycles_wait_for_usage_unless_it_has_no_effect() {
    let (mut meter, accounts) = channel();
    assert!(meter.is_known(1));
    meter.follow(Some(&Settings::default()));
    assert!(!meter.is_known(1));
    let update = UsageUpdate {
        term: Some(1),
        shares: Arc::new(vec![("a".into(), [1, 2, 3])]),
    };
    accounts.updates.send_replace(update);
    assert!(meter.is_known(1) && !meter.is_known(2));
    assert_eq!(meter.usage(), [("a".into(), [1, 2, 3])]);
}
