//! Devices written as `numa/root`, `-` where one is not said, `!` before those that are taken.

use proptest::prelude::*;

use super::*;
use crate::engine::input::devices::{DeviceInput, OptionInput, PoolInput, Reach, RequestInput};
use crate::engine::input::{Event, Time};
use crate::engine::placement::devices::{Length, find};
use crate::engine::policy::{DEVICE_LOCALITY, Policy};
use crate::engine::tests::scenario::{self, node};

fn device(at: usize, text: &str) -> DeviceInput {
    let (numa, root) = text.trim_start_matches('!').split_once('/').expect("numa/root");
    let numa = numa
        .parse()
        .ok()
        .map(|numa| (DEVICE_LOCALITY[0].into(), Attribute::Int(numa)));
    let root = Some(root).filter(|root| *root != "-");
    let root = root.map(|root| (DEVICE_LOCALITY[1].into(), Attribute::Text(root.into())));
    DeviceInput {
        attributes: numa.into_iter().chain(root).collect(),
        meets: if text.starts_with('!') { Vec::new() } else { vec![0] },
        ..scenario::device(format!("d{at}"), Reach::Node("n0".into()))
    }
}

fn model(devices: &[&str]) -> Model {
    let mut model = Model::new(0);
    model.apply(Event::Node(Box::new(node("n0", "0"))), Time(0));
    let devices = devices.iter().enumerate().map(|(at, text)| device(at, text));
    let pool = PoolInput {
        driver: "gpu".into(),
        pool: "n0".into(),
        complete: true,
        counters: Vec::new(),
        devices: devices.collect(),
    };
    model.apply(Event::Pool(Box::new(pool)), Time(0));
    model.prepare(&Policy::default());
    model
}

fn request(name: &str, counts: &[Option<usize>]) -> RequestInput {
    let option = |count: &Option<usize>| OptionInput {
        selectors: vec![0],
        count: *count,
        name: (counts.len() > 1).then(|| "one".into()),
        ..OptionInput::default()
    };
    RequestInput {
        name: name.into(),
        options: counts.iter().map(option).collect(),
    }
}

/// The devices that a claim with these requests gets.
fn given(model: &Model, requests: &[RequestInput]) -> Option<Vec<String>> {
    let requests: Vec<&RequestInput> = requests.iter().collect();
    let ask = DeviceDemand {
        name: "ns/claim",
        requests: &requests,
        constraints: &[],
    };
    let node = model.nodes().ids().next().expect("a node");
    let found = find(model, node, &[ask], &[], When::Now, Length::Full).ok()?;
    Some(
        found[0]
            .results
            .iter()
            .map(|result| result.device.to_string())
            .collect(),
    )
}

#[test]
fn devices_with_equal_attributes_are_allocated_together() {
    for (devices, count, expected) in [
        ("0/a 1/b 1/c 0/d", 2, "d0 d3"),
        ("0/a 0/b 0/b 1/c", 2, "d1 d2"),
        // The same root has no effect where the more important attribute differs.
        ("0/a 1/a 1/b 2/c", 2, "d1 d2"),
        // The smaller of two equal sets, so that the larger one stays whole.
        ("0/a 0/a 0/a 1/b 1/b", 2, "d3 d4"),
        ("!0/a 0/a 0/a 1/b 1/b 1/b", 2, "d1 d2"),
        ("0/a 0/a 1/b 1/b", 2, "d0 d1"),
        // No set has three.
        ("0/a 0/b 1/c 1/d", 3, "d0 d1 d2"),
        ("!0/a 0/b 1/c 1/d 1/d", 3, "d2 d3 d4"),
        // One device is as good as another.
        ("0/a 1/b 1/b", 1, "d0"),
        // No locality attributes, or too few.
        ("-/- -/- -/-", 2, "d0 d1"),
        ("-/a 0/- -/a 0/-", 2, "d1 d3"),
        ("-/a -/b -/b", 2, "d1 d2"),
        // Devices without locality attributes are ignored.
        ("-/- 0/a 1/b 1/b", 2, "d2 d3"),
        ("0/c 0/a 0/a -/-", 2, "d1 d2"),
        ("-/- 0/a 1/b", 2, "d0 d1"),
        ("0/a 1/b 0/a", 4, ""),
    ] {
        let devices: Vec<&str> = devices.split(' ').collect();
        let found = given(&model(&devices), &[request("gpus", &[Some(count)])]);
        assert_eq!(found.unwrap_or_default().join(" "), expected, "{count} of {devices:?}");
    }
}

#[test]
fn several_requests_of_a_pod_count_together() {
    let model = model(&["0/a", "1/b", "1/b", "0/c"]);
    let two = [request("gpu", &[Some(1)]), request("nic", &[Some(1)])];
    assert_eq!(given(&model, &two).unwrap(), ["d1", "d2"]);
    let all = [request("every", &[None])];
    assert_eq!(given(&model, &all).unwrap().len(), 4);
    // What is asked for first among several kinds matters more.
    let choice = [request("gpu", &[Some(2), Some(1)])];
    assert_eq!(given(&model, &choice).unwrap(), ["d0", "d1"]);
}

#[test]
fn without_the_plugin_the_first_matching_device_is_allocated() {
    let mut model = model(&["0/a", "1/b", "1/b"]);
    let mut policy = Policy::default();
    policy.plugins.device_locality.clear();
    model.prepare(&policy);
    assert_eq!(given(&model, &[request("gpus", &[Some(2)])]).unwrap(), ["d0", "d1"]);
    model.prepare(&Policy::default());
    assert_eq!(given(&model, &[request("gpus", &[Some(2)])]).unwrap(), ["d1", "d2"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// No other choice would be closer.
    #[test]
    fn the_closest_devices_are_allocated(
        all_values in prop::collection::vec((prop::bool::weighted(0.2), 0..4_u8, 0..4_u8), 1..8),
        count in 1..4_usize,
    ) {
        let part = |value: u8| if value == 3 { "-".to_owned() } else { value.to_string() };
        let texts: Vec<String> = all_values
            .iter()
            .map(|(taken, numa, root)| format!("{}{}/{}", if *taken { "!" } else { "" }, part(*numa), part(*root)))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let model = model(&texts);
        let ids = model.devices().of_node(&"n0".into()).to_vec();
        let free = |set: usize| (0..ids.len()).filter(|at| set >> at & 1 == 1).all(|at| !texts[at].starts_with('!'));
        let members = |set: usize| -> Vec<DeviceId> {
            (0..ids.len()).filter(|at| set >> at & 1 == 1).map(|at| ids[at]).collect()
        };
        let sets = (0..1_usize << ids.len()).filter(|set| set.count_ones() as usize == count && free(*set));
        let best = sets.map(|set| closeness(&model, &members(set))).max();
        let found = given(&model, &[request("gpus", &[Some(count)])]);
        let found = found.map(|names| {
            let devices: Vec<DeviceId> = names.iter().map(|name| ids[name[1..].parse::<usize>().expect("a number")]).collect();
            closeness(&model, &devices)
        });
        prop_assert_eq!(found, best);
    }
}

/// A pod that claims two devices, and the node that it is bound to.
fn bound_to(nodes: &[(&str, &[&str])]) -> String {
    use std::sync::Arc;

    use crate::engine::Engine;
    use crate::engine::input::devices::{ClaimInput, ClaimRef, PodClaims};
    use crate::engine::tests::scenario::{NOW, group, open_queue, pod};

    let mut engine = Engine::new(Policy::default());
    engine.apply(open_queue("q"), NOW);
    for (name, devices) in nodes {
        engine.apply(Event::Node(Box::new(node(name, "0"))), NOW);
        let mut devices: Vec<DeviceInput> = devices.iter().enumerate().map(|(at, text)| device(at, text)).collect();
        devices.iter_mut().for_each(|device| {
            device.reach = Reach::Node((*name).into());
            device.gpu = false;
        });
        let pool = PoolInput {
            driver: "card".into(),
            pool: (*name).into(),
            complete: true,
            counters: Vec::new(),
            devices,
        };
        engine.apply(Event::Pool(Box::new(pool)), NOW);
    }
    let group = group("g", "q", 0);
    let mut pod = pod(&group, 0, "0");
    pod.claims = Some(Arc::new(PodClaims {
        named: vec![ClaimRef {
            reference: "cards".into(),
            claim: Some("ns/cards".into()),
            shared: false,
            promised: None,
        }],
        extended: None,
    }));
    let claim = ClaimInput {
        key: "ns/cards".into(),
        queue: None,
        gpus: 0,
        requests: Arc::from([request("cards", &[Some(2)])]),
        constraints: Vec::new(),
        problem: None,
        allocation: None,
        reserved: Vec::new(),
        foreign: false,
    };
    for event in [
        Event::Claim(Box::new(claim)),
        Event::Group(Box::new(group)),
        Event::Pod(Box::new(pod)),
    ] {
        engine.apply(event, NOW);
    }
    engine.cycle(NOW).bind[0].node.to_string()
}

#[test]
fn a_node_where_the_devices_are_closer_is_preferred() {
    for (nodes, expected) in [
        (&[("n0", &["0/a", "1/b"][..]), ("n1", &["0/a", "0/a"])][..], "n1"),
        (&[("n0", &["0/a", "0/b"]), ("n1", &["0/a", "0/a"])], "n1"),
        (&[("n0", &["0/a", "0/b"]), ("n1", &["0/a", "1/b"])], "n0"),
        // Agreement in the more important attribute outweighs that in the other.
        (&[("n0", &["-/a", "-/a"]), ("n1", &["0/a", "0/b"])], "n1"),
        (&[("n0", &["-/-", "-/-"]), ("n1", &["0/a", "0/a"])], "n1"),
        (&[("n0", &["-/-", "-/-"]), ("n1", &["-/-", "-/-"])], "n0"),
        (&[("n0", &["0/a", "0/a"]), ("n1", &["0/a", "0/a"])], "n0"),
    ] {
        assert_eq!(bound_to(nodes), expected, "{nodes:?}");
    }
}
