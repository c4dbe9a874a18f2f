//! Many selectors: namespaces take turns, so no tenant delays another.

use serde_json::json;

use super::{Mirror, PackedChange, PackedObject, Settings, object};
use crate::api::limits;
use crate::engine::input::Event;

/// A mirror that knows so many devices.
fn with_devices(count: usize) -> Mirror {
    let mut mirror = Mirror::new(Settings::default());
    let class = json!({"metadata": {"name": "any"}, "spec": {}});
    mirror.apply(&PackedChange::Applied(PackedObject::DeviceClass(object(class))));
    for pool in 0..count / 100 {
        let devices: Vec<_> = (0..100)
            .map(|at| json!({"name": format!("d{at}"), "attributes": {"n": {"int": at}}}))
            .collect();
        let spec = json!({"driver": "d.example.com", "nodeName": "n", "devices": devices,
            "pool": {"name": format!("p{pool}"), "generation": 1, "resourceSliceCount": 1}});
        let slice = json!({"metadata": {"name": format!("s{pool}")}, "spec": spec});
        mirror.apply(&PackedChange::Applied(PackedObject::ResourceSlice(object(slice))));
    }
    mirror
}

fn claim(namespace: &str, name: usize, selector: &str) -> PackedChange {
    let exactly = json!({"deviceClassName": "any", "selectors": [{"cel": {"expression": selector}}]});
    let spec = json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}});
    let metadata = json!({"name": format!("c{name}"), "namespace": namespace, "uid": format!("{namespace}{name}")});
    PackedChange::Applied(PackedObject::ResourceClaim(object(
        json!({"metadata": metadata, "spec": spec}),
    )))
}

/// What is said against each claim in what happened.
fn problems(events: &[Event]) -> Vec<(String, Option<String>)> {
    let claims = events.iter().filter_map(|event| match event {
        Event::Claim(claim) => Some((claim.key.to_string(), claim.problem.as_ref().map(ToString::to_string))),
        _ => None,
    });
    claims.collect()
}

#[test]
fn selectors_of_one_namespace_do_not_hold_up_those_of_another() {
    let mut mirror = with_devices(1_000);
    let at_once = limits::CLAIM_SELECTOR_STEPS_AT_ONCE / (1_000 * 100);
    let mut waiting = 0;
    for number in 0..20 {
        let text = format!("device.attributes['d.example.com'].n == {number}");
        let said = problems(&mirror.apply(&claim("storm", number, &text)).events);
        let waits = said.iter().any(|(_, problem)| problem.is_some());
        assert!(waits || number < at_once, "{number}: {said:?}");
        waiting += usize::from(waits);
    }
    assert!(waiting >= 20 - at_once && mirror.selectors_wait());
    let said = problems(
        &mirror
            .apply(&claim("calm", 0, "device.driver == 'd.example.com'"))
            .events,
    );
    let problem = said[0].1.as_deref().unwrap_or_default();
    assert!(problem.contains("waits for its turn"), "{said:?}");
    let turns = std::iter::from_fn(|| Some(problems(&mirror.ask_selectors().events)));
    let turn = turns
        .take(4)
        .position(|told| told.contains(&("calm/c0".to_owned(), None)));
    assert!(turn.is_some(), "its turn comes among the first");
    for _ in 0..40 {
        mirror.ask_selectors();
    }
    assert!(!mirror.selectors_wait(), "all have had their turn");
}

#[test]
fn a_selector_that_could_cost_too_much_is_an_error_of_its_claim() {
    let mut mirror = with_devices(100);
    let inner = "[1, 2].all(z, z > 0)";
    let text = format!("[1, 2].all(x, [1, 2].all(y, {inner}))");
    let said = problems(&mirror.apply(&claim("ns", 0, &text)).events);
    assert!(
        said[0].1.as_deref().unwrap().contains("could cost too much"),
        "{said:?}"
    );
    assert!(!mirror.selectors_wait());
}

#[test]
fn selectors_that_nobody_uses_any_more_do_not_wait() {
    let mut mirror = with_devices(1_000);
    for number in 0..50 {
        let text = format!("device.attributes['d.example.com'].n == {number}");
        let PackedChange::Applied(object) = claim("storm", number, &text) else {
            unreachable!()
        };
        mirror.apply(&PackedChange::Applied(object.clone()));
        mirror.apply(&PackedChange::Deleted(object));
    }
    mirror.ask_selectors();
    assert!(!mirror.selectors_wait());
}
