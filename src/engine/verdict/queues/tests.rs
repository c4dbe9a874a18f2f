use crate::engine::Engine;
use crate::engine::decision::Wording;
use crate::engine::input::Event;
use crate::engine::policy::Policy;
use crate::engine::tests::group;
use crate::engine::tests::scenario::{NOW, open_queue, pod};

/// With two levels only, top queues take no part.
#[test]
fn a_top_queue_is_not_said_to_be_below_itself() {
    let mut engine = Engine::new(Policy {
        full_hierarchy: false,
        ..Policy::default()
    });
    let group = group("w", "team", 0);
    engine.apply(open_queue("team"), NOW);
    engine.apply(Event::Pod(Box::new(pod(&group, 0, "1"))), NOW);
    engine.apply(Event::Group(Box::new(group)), NOW);
    let decisions = engine.cycle(NOW);
    let report = decisions.unschedulable.first().expect("it waits");
    let says = "Queue team is a top queue; workloads need a queue below one";
    assert_eq!(report.text(Wording::Plain), says);
    let kai = report.text(Wording::Kai);
    assert!(kai.contains("Queue 'team' does not exist"), "{kai}");
}
