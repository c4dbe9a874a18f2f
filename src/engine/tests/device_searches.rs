//! Claims for devices that take long searches: in one cycle, only a few of them are made in full.

use std::sync::Arc;

use super::carry::engine;
use super::scenario::{self, NOW, group, node, open_queue, pod};
use crate::engine::Engine;
use crate::engine::input::devices::{
    Attribute, ClaimInput, ClaimRef, ConstraintInput, DeviceInput, OptionInput, PodClaims, PoolInput, Reach,
    RequestInput,
};
use crate::engine::input::{Event, Name};
use crate::engine::placement::devices::{STEPS, When};
use crate::engine::policy::ActionKind;

const NODES: usize = 20;
/// The steps of a short search for few devices on a small node.
const FEW_STEPS: usize = 500;

/// A card's kind, and whether it meets the selector 1.
type Card = (i64, bool);

/// A node with these cards.
fn with_cards(name: &str, cards: &[Card]) -> [Event; 2] {
    let card = |(at, (kind, special)): (usize, &Card)| DeviceInput {
        gpu: false,
        attributes: vec![("kind".into(), Attribute::Int(*kind))],
        meets: if *special { vec![0, 1] } else { vec![0] },
        ..scenario::device(format!("d{at}"), Reach::Node(name.into()))
    };
    let pool = PoolInput {
        driver: "card".into(),
        pool: name.into(),
        complete: true,
        counters: Vec::new(),
        devices: cards.iter().enumerate().map(card).collect(),
    };
    [Event::Node(Box::new(node(name, "0"))), Event::Pool(Box::new(pool))]
}

/// Cards that meet this selector.
fn request(name: &str, selector: u32, count: usize) -> RequestInput {
    RequestInput {
        name: name.into(),
        options: vec![OptionInput {
            selectors: vec![selector],
            count: Some(count),
            ..OptionInput::default()
        }],
    }
}

/// A pod that waits, with a claim of its own.
fn claiming(number: usize, requests: &[RequestInput], constraints: &[ConstraintInput]) -> [Event; 3] {
    let group = group(&format!("g{number}"), "q", number);
    let key: Name = format!("ns/c{number}").into();
    let mut pod = pod(&group, 0, "0");
    pod.claims = Some(Arc::new(PodClaims {
        named: vec![ClaimRef {
            reference: "cards".into(),
            claim: Some(key.clone()),
            shared: false,
            promised: None,
        }],
        extended: None,
    }));
    // As of the mirror: pods with equal claims are of one class.
    pod.needs_mut().constraints = Some("cards".into());
    let claim = ClaimInput {
        key,
        queue: None,
        gpus: 0,
        requests: requests.into(),
        constraints: constraints.to_vec(),
        problem: None,
        allocation: None,
        reserved: Vec::new(),
        foreign: false,
    };
    [
        Event::Claim(Box::new(claim)),
        Event::Group(Box::new(group)),
        Event::Pod(Box::new(pod)),
    ]
}

/// Nodes with equal cards.
fn nodes(cards: &[Card]) -> Vec<Event> {
    let nodes = (0..NODES).flat_map(|at| with_cards(&format!("n{at:03}"), cards));
    nodes.chain([open_queue("q")]).collect()
}

/// A hundred cards of two kinds, and a claim for three of different kinds: only a search of all combinations shows that there are none.
fn hard() -> (Vec<Card>, [RequestInput; 1], [ConstraintInput; 1]) {
    let differ = ConstraintInput {
        requests: Vec::new(),
        attribute: "kind".into(),
        distinct: true,
    };
    let cards = (0..100).map(|at| (at % 2, false)).collect();
    (cards, [request("cards", 0, 3)], [differ])
}

/// Steps of the searches without a result that were longer than a few.
fn steps(engine: &Engine, when: When) -> usize {
    let model = engine.model();
    let (_, pod) = model.pods().iter().next().expect("a pod");
    model.devices().searches.in_vain(pod.class, when as usize)
}

#[test]
fn requests_that_are_possible_only_without_each_other_need_no_long_search() {
    // Eight cards a node, of which so many meet the selector 1; so many requests for any card, and for one of those.
    for (special, any_requests, special_requests) in [(4, 3, 5), (1, 6, 2)] {
        let cards: Vec<Card> = (0..8).map(|at| (0, at >= 8 - special)).collect();
        let any = (0..any_requests).map(|at| request(&format!("any{at}"), 0, 1));
        let requests: Vec<RequestInput> = any
            .chain((0..special_requests).map(|at| request(&format!("special{at}"), 1, 1)))
            .collect();
        let mut events = nodes(&cards);
        events.extend(claiming(0, &requests, &[]));
        let mut engine = engine(&events, &ActionKind::ALL);
        let decisions = engine.cycle(NOW);
        let said = &decisions.unschedulable[0].message;
        assert!(said.contains("cannot allocate all DRA claims on node n000"), "{said}");
        assert!(!said.contains("attempts"), "{said}");
        assert_eq!(steps(&engine, When::Later), 0);
    }
}

#[test]
fn a_claim_that_is_hard_to_refuse_is_searched_for_in_full_on_one_node() {
    let (cards, requests, constraints) = hard();
    let mut events = nodes(&cards);
    for number in 0..3 {
        events.extend(claiming(number, &requests, &constraints));
    }
    let mut engine = engine(&events, &ActionKind::ALL);
    let decisions = engine.cycle(NOW);
    assert!(decisions.bind.is_empty());
    let said = &decisions.unschedulable[0].message;
    assert!(said.contains("no devices found after 20000 attempts"), "{said}");
    // By several callers, of which each would take that many on each node.
    let in_vain = steps(&engine, When::Later);
    assert!((STEPS..10 * STEPS).contains(&in_vain), "{in_vain}");
    // Whether evictions could help is found out once, for all actions and all pods of the class.
    let in_vain = steps(&engine, When::Empty);
    let once = STEPS + 1 + NODES * (FEW_STEPS + 1);
    assert!((STEPS..once).contains(&in_vain), "{in_vain}");
}

#[test]
fn devices_are_found_behind_nodes_that_are_hard_to_refuse() {
    let (cards, requests, constraints) = hard();
    let mut events = nodes(&cards);
    events.extend(with_cards("other", &[(0, false), (1, false), (1, false), (2, false)]));
    events.extend(claiming(0, &requests, &constraints));
    let decisions = engine(&events, &ActionKind::ALL).cycle(NOW);
    let [bind] = &*decisions.bind else {
        panic!("{decisions:?}")
    };
    assert_eq!(&*bind.node, "other");
    let given = bind.claims[0].allocation.results.iter();
    let given: Vec<&str> = given.map(|result| &*result.device).collect();
    assert_eq!(given, ["d0", "d1", "d3"]);
}
