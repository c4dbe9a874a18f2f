//! Many selectors: namespaces take turns, so no tenant delays another.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Mirror, PackedChange, PackedObject, Settings, gone, object};
use crate::api::limits;
use crate::engine::input::Event;
use crate::mirror::packed;

/// A mirror that knows so many devices.
fn with_devices(count: usize) -> Mirror {
    let mut mirror = Mirror::new(Settings::default());
    let class = json!({"metadata": {"name": "any"}, "spec": {}});
    mirror.apply(&PackedChange::Applied(PackedObject::DeviceClass(object(class))));
    for pool in 0..count / 100 {
        let device = |at: usize| json!({"name": format!("d{at}"), "attributes": {"n": {"int": at}}});
        mirror.apply(&slice(pool, 1, device));
    }
    mirror
}

/// A slice that is a pool of 100 devices.
fn slice(pool: usize, generation: usize, device: impl Fn(usize) -> Value) -> PackedChange {
    let devices: Vec<_> = (0..100).map(device).collect();
    let spec = json!({"driver": "d.example.com", "nodeName": "n", "devices": devices,
        "pool": {"name": format!("p{pool}"), "generation": generation, "resourceSliceCount": 1}});
    let slice = json!({"metadata": {"name": format!("s{pool}")}, "spec": spec});
    PackedChange::Applied(PackedObject::ResourceSlice(object(slice)))
}

/// Evaluates selectors until none waits.
fn evaluate_all(mirror: &mut Mirror) -> Vec<Event> {
    let mut events = Vec::new();
    while mirror.selectors_wait() {
        events.extend(mirror.ask_selectors().events);
    }
    events
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
        let claim = claim("storm", number, &text);
        mirror.apply(&claim);
        mirror.apply(&gone(&claim));
    }
    mirror.ask_selectors();
    assert!(!mirror.selectors_wait());
}

fn class(name: &str, selector: &str) -> PackedChange {
    let selectors = [json!({"cel": {"expression": selector}})];
    let class = json!({"metadata": {"name": name}, "spec": {"selectors": selectors, "extendedResourceName": "example.com/part"}});
    PackedChange::Applied(PackedObject::DeviceClass(object(class)))
}

/// The selectors of the extended resource that a pod requests, if the pod changed.
fn wanted(events: &[Event]) -> Option<Vec<u32>> {
    let mut pods = events.iter().filter_map(|event| match event {
        Event::Pod(pod) => pod.claims.as_ref()?.extended.clone(),
        _ => None,
    });
    let extended = pods.next_back()?;
    Some(extended.wanted[0].2[0].options[0].selectors.clone())
}

#[test]
fn a_selector_without_results_selects_nothing_for_extended_resources() {
    let mut mirror = with_devices(100);
    let met = |events: &[Event]| {
        let mut pools = events.iter().filter_map(|event| match event {
            Event::Pool(pool) => Some(pool.devices.iter().map(|device| device.meets.len()).sum::<usize>()),
            _ => None,
        });
        pools.next_back()
    };
    assert_eq!(met(&mirror.apply(&claim("ns", 0, "true")).events), Some(100));
    mirror.apply(&gone(&claim("ns", 0, "true")));

    // It gets the number of the former one.
    assert_eq!(met(&mirror.apply(&class("odd", "device.nosuch(")).events), Some(0));
    let resources = json!({"requests": {"example.com/part": "1"}});
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": resources}]}});
    let pod = PackedChange::Applied(PackedObject::Pod(Arc::new(packed::Pod::from(object::<Pod>(pod)))));
    assert_eq!(wanted(&mirror.apply(&pod).events), Some(vec![u32::MAX]));

    // One that waits for its turn counts when it has had it.
    let at_once = limits::CLAIM_SELECTOR_STEPS_AT_ONCE / (100 * 100);
    for number in 0..at_once {
        let text = format!("device.attributes['d.example.com'].n == {number}");
        mirror.apply(&claim("storm", number, &text));
    }
    let right = class("odd", "device.driver == 'd.example.com'");
    assert_eq!(wanted(&mirror.apply(&right).events), None, "still nothing");
    let last = evaluate_all(&mut mirror);
    assert_ne!(wanted(&last).expect("it is told"), [u32::MAX]);
}

#[test]
fn claims_of_a_namespace_have_a_limited_number_of_different_selectors() {
    let mut mirror = with_devices(100);
    let text = |number: usize| format!("device.attributes['d.example.com'].n == {number}");
    for number in 0..=limits::CLAIM_SELECTORS_PER_NAMESPACE {
        mirror.apply(&claim("storm", number, &text(number)));
    }
    evaluate_all(&mut mirror);
    let last = limits::CLAIM_SELECTORS_PER_NAMESPACE;
    let refused = |said: &[(String, Option<String>)]| {
        let problem = said.last().and_then(|(_, problem)| problem.clone());
        problem.is_some_and(|problem| problem.contains("have too many different ones"))
    };
    assert!(refused(&problems(
        &mirror.apply(&claim("storm", last + 1, &text(last))).events
    )));

    // What one namespace may not have, another one may; then the first has it, too.
    let mut said = problems(&mirror.apply(&claim("calm", 0, &text(last))).events);
    said.extend(problems(&evaluate_all(&mut mirror)));
    for key in ["calm/c0".to_owned(), format!("storm/c{last}")] {
        assert!(said.contains(&(key.clone(), None)), "{key}: {said:?}");
    }
    assert!(refused(&problems(
        &mirror.apply(&claim("storm", last + 2, &text(last + 1))).events
    )));

    // Or when another claim has gone.
    let mut said = problems(&mirror.apply(&gone(&claim("storm", 0, &text(0)))).events);
    said.extend(problems(&evaluate_all(&mut mirror)));
    assert!(said.contains(&(format!("storm/c{}", last + 2), None)), "{said:?}");
}

#[test]
fn a_claim_with_too_many_selectors_waits_with_the_reason() {
    let mut mirror = with_devices(100);
    let selectors = vec![json!({"cel": {"expression": "true"}}); limits::CLAIM_SELECTORS + 1];
    let exactly = json!({"deviceClassName": "any", "selectors": selectors});
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
    let claim = PackedChange::Applied(PackedObject::ResourceClaim(object(claim)));
    let said = problems(&mirror.apply(&claim).events);
    assert_eq!(said[0].1.as_deref(), Some("claim ns/c has more than 128 selectors"));
}

/// The first slice, with a first device that has another attribute in each version; `tainted`: the second device is tainted.
fn changed_slice(version: usize, tainted: bool) -> PackedChange {
    slice(0, 2 + version, |at| {
        let n = if at == 0 { 1_000 + version } else { at };
        let taints = (tainted && at == 1).then(|| json!([{"key": "sick", "effect": "NoSchedule"}]));
        json!({"name": format!("d{at}"), "attributes": {"n": {"int": n}}, "taints": taints})
    })
}

/// How many selectors the first two devices of the first pool meet, if that changed.
fn last_met(events: &[Event]) -> Option<[usize; 2]> {
    let mut pools = events.iter().filter_map(|event| match event {
        Event::Pool(pool) if &*pool.pool == "p0" => Some([0, 1].map(|at| pool.devices[at].meets.len())),
        _ => None,
    });
    pools.next_back()
}

#[test]
fn a_changed_slice_waits_for_its_turn_and_delays_only_claims_for_all_devices() {
    let mut mirror = with_devices(200);
    mirror.apply(&claim("ns", 0, "device.driver == 'd.example.com'"));
    let exactly = json!({"deviceClassName": "any", "allocationMode": "All",
        "selectors": [{"cel": {"expression": "device.driver == 'd.example.com'"}}]});
    let all = json!({"metadata": {"name": "all", "namespace": "ns", "uid": "all"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
    let said = problems(
        &mirror
            .apply(&PackedChange::Applied(PackedObject::ResourceClaim(object(all))))
            .events,
    );
    assert_eq!(said, [("ns/all".to_owned(), None)]);
    // With steps left, its devices are known at once.
    let events = mirror.apply(&changed_slice(0, false)).events;
    assert_eq!((last_met(&events), problems(&events)), (Some([1, 1]), Vec::new()));

    let storm = |number: usize| format!("device.attributes['d.example.com'].n != {number}");
    for number in 0..20 {
        mirror.apply(&claim("storm", number, &storm(number)));
    }
    // Without, the devices that have changed meet nothing, the others what they met; claims for all wait, and only they.
    let events = mirror.apply(&changed_slice(1, false)).events;
    let [changed, other] = last_met(&events).expect("it is told");
    assert!(changed == 0 && other >= 1, "{changed} {other}");
    let said = problems(&events);
    assert!(said.iter().all(|(claim, _)| claim == "ns/all"), "{said:?}");
    let problem = said
        .last()
        .and_then(|(_, problem)| problem.as_deref())
        .unwrap_or_default();
    assert!(problem.contains("waits for its turn"), "{said:?}");
    let last = evaluate_all(&mut mirror);
    assert_eq!(last_met(&last), Some([21, 20]), "the second device meets all but one");
    assert!(problems(&last).contains(&("ns/all".to_owned(), None)));
}

#[test]
fn devices_that_selectors_see_as_before_are_not_evaluated_again() {
    let mut mirror = with_devices(100);
    mirror.apply(&changed_slice(0, false));
    for number in 0..limits::CLAIM_SELECTOR_STEPS_AT_ONCE / (100 * 100) {
        let text = format!("device.attributes['d.example.com'].n != {number}");
        mirror.apply(&claim("storm", number, &text));
    }
    evaluate_all(&mut mirror);
    // More steps than there are at once.
    for round in 0..4 {
        let events = mirror.apply(&changed_slice(0, round % 2 == 0)).events;
        assert_eq!((last_met(&events), problems(&events)), (Some([20, 19]), Vec::new()));
        assert!(!mirror.selectors_wait());
    }
}

#[test]
fn a_pool_that_is_gone_is_not_waited_for() {
    let mut mirror = with_devices(100);
    for number in 0..20 {
        let text = format!("device.attributes['d.example.com'].n != {number}");
        mirror.apply(&claim("storm", number, &text));
    }
    mirror.apply(&changed_slice(0, false));
    let events = mirror.apply(&gone(&changed_slice(0, false))).events;
    assert!(matches!(events[..], [.., Event::PoolGone(..)]), "{events:?}");
    evaluate_all(&mut mirror);
    let mut last = mirror.apply(&changed_slice(1, false)).events.to_vec();
    last.extend(evaluate_all(&mut mirror));
    assert_eq!(last_met(&last), Some([20, 19]));
}
