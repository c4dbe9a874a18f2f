use tokio::sync::mpsc;

use super::*;
use crate::engine::tests::scenario::{NOW, Scenario};

/// An engine with a node of two GPUs, and a pod group of the queue `q` that waits for them.
fn engine() -> Engine {
    let text = "name: it\nnodes: {n0: 2}\nqueues: [q 8 w1]\npod_groups: [w q T2]";
    let scenario: Scenario = serde_yaml_ng::from_str(text).expect("a scenario");
    let mut engine = Engine::new(scenario.policy());
    for event in scenario.events() {
        engine.apply(event, NOW);
    }
    engine
}

/// The queue's fair share of GPUs. The request for the order of pod groups has it computed.
fn fair_share(engine: &mut Engine) -> i64 {
    let queues = engine.see_queues();
    let queue = queues.iter().find(|queue| &*queue.name == "q").expect("the queue");
    queue.fair[2]
}

#[test]
fn a_request_that_was_given_up_costs_nothing() {
    let (mut engine, stores, shard) = (engine(), Stores::default(), Shard::default());
    let (reply, given_up) = mpsc::channel(1);
    drop(given_up);
    answer(Look::JobOrder(reply), &mut engine, &stores, &shard, NOW);
    assert_eq!(fair_share(&mut engine), 0);

    let (reply, mut order) = mpsc::channel(1);
    answer(Look::JobOrder(reply), &mut engine, &stores, &shard, NOW);
    assert!(fair_share(&mut engine) > 0);
    assert_eq!(order.try_recv().map(|order| order.len()), Ok(1));
}
