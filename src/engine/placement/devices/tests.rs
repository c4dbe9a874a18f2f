//! The search against a plain one that tries everything, on small random cases.

use proptest::prelude::*;

use super::{DeviceDemand, Length, NoDevices, STEPS, Search, When, candidates, find, share};
use crate::engine::input::devices::{
    AllocationInput, Attribute, Capacity, CapacityPolicy, ConstraintInput, DeviceInput, OptionInput, PoolInput, Reach,
    RequestInput,
};
use crate::engine::input::{Event, Name, Taint, TaintEffect, Time, Toleration};
use crate::engine::model::Model;
use crate::engine::model::ids::NodeId;
use crate::engine::tests::scenario::{self, node};

/// A device: kind (attribute), selectors met, share of the counter, tainted, given in parts of this capacity.
type RandomDevice = (i64, u8, i128, bool, Option<i128>);
/// A request: options of (selector, count or all, admin, tolerates, share).
type RandomRequest = Vec<RandomOption>;
type RandomOption = (u32, Option<usize>, bool, bool, i128);

#[derive(Clone, Debug)]
struct Case {
    counter: i128,
    devices: Vec<RandomDevice>,
    claims: Vec<(Vec<RandomRequest>, Option<bool>)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let device = (
        0..2_i64,
        0..8_u8,
        0..3_i128,
        prop::bool::weighted(0.2),
        prop::option::weighted(0.3, 1..4_i128),
    );
    let count = prop_oneof![4 => (1..3_usize).prop_map(Some), 1 => Just(None)];
    let option = (0..3_u32, count, prop::bool::weighted(0.1), any::<bool>(), 1..3_i128);
    let request = prop::collection::vec(option, 1..3);
    let claim = (prop::collection::vec(request, 1..3), prop::option::of(any::<bool>()));
    (
        1..5_i128,
        prop::collection::vec(device, 0..6),
        prop::collection::vec(claim, 1..3),
    )
        .prop_map(|(counter, devices, claims)| Case {
            counter,
            devices,
            claims,
        })
}

fn device(at: usize, (kind, meets, draw, tainted, parts): RandomDevice) -> DeviceInput {
    DeviceInput {
        multi: parts.is_some(),
        attributes: vec![("kind".into(), Attribute::Int(kind))],
        capacities: vec![(
            "memory".into(),
            Capacity {
                value: parts.unwrap_or(9),
                policy: None,
            },
        )],
        draws: if draw > 0 { vec![(0, draw)] } else { Vec::new() },
        taints: tainted.then(taint).into_iter().collect(),
        meets: (0..3).filter(|bit| meets >> bit & 1 == 1).collect(),
        ..scenario::device(format!("d{at}"), Reach::Node("n0".into()))
    }
}

fn taint() -> Taint {
    Taint {
        key: "bad".into(),
        value: "".into(),
        effect: TaintEffect::NoSchedule,
    }
}

fn request(at: usize, options: &RandomRequest) -> RequestInput {
    let option = |(at, &(selector, count, admin, tolerates, share)): (usize, &RandomOption)| OptionInput {
        name: (options.len() > 1).then(|| format!("o{at}").into()),
        selectors: vec![selector],
        count,
        admin,
        tolerations: tolerates
            .then(|| Toleration {
                key: None,
                exists: true,
                value: "".into(),
                effect: None,
            })
            .into_iter()
            .collect(),
        capacity: vec![("memory".into(), share)],
    };
    RequestInput {
        name: format!("r{at}").into(),
        options: options.iter().enumerate().map(option).collect(),
    }
}

fn constraint(distinct: Option<bool>) -> Vec<ConstraintInput> {
    let constraint = |distinct| ConstraintInput {
        requests: Vec::new(),
        attribute: "kind".into(),
        distinct,
    };
    distinct.map(constraint).into_iter().collect()
}

/// Every choice of an option for each request, and of any set of devices for each option.
fn exhaustive(case: &Case) -> bool {
    let mut spots = Vec::new();
    for (claim, (requests, _)) in case.claims.iter().enumerate() {
        spots.extend(requests.iter().map(|options| (claim, options)));
    }
    let mut chosen = Vec::new();
    try_all(case, &spots, &mut chosen)
}

type Chosen = (usize, RandomOption, u8);

fn try_all(case: &Case, spots: &[(usize, &RandomRequest)], chosen: &mut Vec<Chosen>) -> bool {
    let Some((claim, options)) = spots.get(chosen.len()) else {
        return holds(case, chosen);
    };
    for option in *options {
        for set in 0..1_u8 << case.devices.len() {
            chosen.push((*claim, *option, set));
            if suits(case, option, set) && try_all(case, spots, chosen) {
                return true;
            }
            chosen.pop();
        }
    }
    false
}

fn has(set: u8, at: usize) -> bool {
    set >> at & 1 == 1
}

/// These devices meet this option, whatever the others get.
fn suits(case: &Case, &(selector, count, _, tolerates, amount): &RandomOption, set: u8) -> bool {
    let meets = |at: usize| case.devices[at].1 >> selector & 1 == 1;
    let large_enough = |at: usize| amount <= case.devices[at].4.unwrap_or(9);
    let mut all = 0..case.devices.len();
    let right = match count {
        Some(count) => set.count_ones() as usize == count,
        None => set > 0 && all.clone().all(|at| has(set, at) == (meets(at) && large_enough(at))),
    };
    right
        && all.all(|at| {
            let tainted = case.devices[at].3;
            !has(set, at) || meets(at) && (!tainted || tolerates) && large_enough(at)
        })
}

fn holds(case: &Case, chosen: &[Chosen]) -> bool {
    let all = 0..case.devices.len();
    if !chosen.iter().all(|(_, option, set)| suits(case, option, *set)) {
        return false;
    }
    let mut drawn = 0;
    for at in all.clone() {
        let (_, _, draw, _, parts) = case.devices[at];
        let users: Vec<&Chosen> = chosen.iter().filter(|(_, _, set)| has(*set, at)).collect();
        // Several requests of a claim may each take a part.
        for claim in 0..case.claims.len() {
            if parts.is_none() && users.iter().filter(|(of, ..)| *of == claim).count() > 1 {
                return false;
            }
        }
        let takers: Vec<&&Chosen> = users.iter().filter(|(_, (_, _, admin, ..), _)| !admin).collect();
        let sum: i128 = takers.iter().map(|(_, (.., amount), _)| amount).sum();
        if takers.len() > 1 && parts.is_none() || parts.is_some_and(|parts| sum > parts) {
            return false;
        }
        drawn += if takers.is_empty() { 0 } else { draw };
    }
    if drawn > case.counter {
        return false;
    }
    case.claims.iter().enumerate().all(|(claim, (_, distinct))| {
        let sets = chosen.iter().filter(|(of, ..)| *of == claim);
        let kinds: Vec<i64> = sets
            .flat_map(|(_, _, set)| all.clone().filter(|at| has(*set, *at)).map(|at| case.devices[at].0))
            .collect();
        let alike = kinds.iter().filter(|kind| **kind == kinds[0]).count();
        match distinct {
            None => true,
            Some(false) => alike == kinds.len(),
            Some(true) => kinds.len() < 2 || (kinds.len() == 2 && alike == 1),
        }
    })
}

fn model(case: &Case) -> Model {
    let mut model = Model::new(0);
    model.apply(Event::Node(Box::new(node("n0", "0"))), Time(0));
    let pool = PoolInput {
        driver: "gpu".into(),
        pool: "n0".into(),
        complete: true,
        counters: vec![case.counter],
        devices: case
            .devices
            .iter()
            .enumerate()
            .map(|(at, random)| device(at, *random))
            .collect(),
    };
    model.apply(Event::Pool(Box::new(pool)), Time(0));
    model
}

/// Calls a function with the claims of a case.
fn with_claims<T>(case: &Case, call: impl FnOnce(&Model, NodeId, &[DeviceDemand]) -> T) -> T {
    let model = model(case);
    let id = model.nodes().ids().next().expect("a node");
    let requests: Vec<Vec<RequestInput>> = case
        .claims
        .iter()
        .map(|(requests, _)| {
            requests
                .iter()
                .enumerate()
                .map(|(at, options)| request(at, options))
                .collect()
        })
        .collect();
    let borrowed: Vec<Vec<&RequestInput>> = requests.iter().map(|requests| requests.iter().collect()).collect();
    let constraints: Vec<_> = case.claims.iter().map(|(_, distinct)| constraint(*distinct)).collect();
    let asks: Vec<DeviceDemand> = borrowed
        .iter()
        .zip(&constraints)
        .map(|(requests, constraints)| DeviceDemand {
            name: "ns/claim",
            requests,
            constraints,
        })
        .collect();
    call(&model, id, &asks)
}

fn search(case: &Case) -> Result<Vec<AllocationInput>, NoDevices> {
    with_claims(case, |model, id, asks| {
        find(model, id, asks, &[], When::Now, Length::Full).map_err(|in_vain| in_vain.why)
    })
}

/// Whether the check before long searches lets a case pass in so many steps, and the steps that it took.
fn has_enough(case: &Case, most: usize) -> (bool, usize) {
    with_claims(case, |model, id, asks| {
        Search::new(model, id, asks, &[], When::Now, candidates(model, id)).has_enough(most)
    })
}

/// What was found, as a choice to be checked.
fn as_chosen(case: &Case, found: &[AllocationInput]) -> Vec<Chosen> {
    let mut chosen = Vec::new();
    for (claim, (requests, _)) in case.claims.iter().enumerate() {
        for (at, options) in requests.iter().enumerate() {
            for (number, option) in options.iter().enumerate() {
                let name: Name = if options.len() > 1 {
                    format!("r{at}/o{number}").into()
                } else {
                    format!("r{at}").into()
                };
                let results = found[claim].results.iter().filter(|result| result.request == name);
                let set = results
                    .map(|result| 1 << result.device[1..].parse::<u8>().expect("a number"))
                    .sum();
                if set > 0 {
                    chosen.push((claim, *option, set));
                }
            }
        }
    }
    chosen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn matching_devices_are_found_if_there_are_any(case in cases()) {
        let spots: usize = case.claims.iter().map(|(requests, _)| requests.len()).sum();
        match search(&case) {
            Ok(found) => {
                let chosen = as_chosen(&case, &found);
                prop_assert_eq!(chosen.len(), spots);
                prop_assert!(holds(&case, &chosen), "{:?}", found);
            }
            Err(NoDevices::None) => prop_assert!(!exhaustive(&case)),
            Err(NoDevices::Failed(text)) => prop_assert!(false, "{}", text),
        }
    }

    #[test]
    fn no_search_that_would_succeed_is_refused_for_too_few_devices(case in cases(), most in 0_usize..200) {
        prop_assert!(has_enough(&case, STEPS).0 || !exhaustive(&case));
        let (enough, steps) = has_enough(&case, most);
        prop_assert!(steps <= most && (enough || !exhaustive(&case)));
    }
}

#[test]
fn the_check_for_enough_devices_ends_after_a_number_of_steps() {
    // Each value is one for which two alike are looked for.
    let any = vec![(0, Some(1), false, true, 1)];
    let case = Case {
        counter: 999,
        devices: (0..200).map(|at| (at, 1, 0, false, None)).collect(),
        claims: vec![(vec![any.clone(), any], Some(false))],
    };
    assert_eq!(has_enough(&case, STEPS), (true, STEPS));
    assert!(!has_enough(&case, 20 * STEPS).0);
}

#[test]
fn a_search_for_devices_ends_after_a_number_of_steps() {
    // A hundred devices of two kinds, and three of different kinds are wanted.
    let case = Case {
        counter: 99,
        devices: (0..100).map(|at| (at % 2, 1, 0, false, None)).collect(),
        claims: vec![(vec![vec![(0, Some(3), false, true, 1)]], Some(true))],
    };
    let Err(NoDevices::Failed(text)) = search(&case) else {
        panic!("there are none");
    };
    assert!(text.contains("attempts"), "{text}");
}

#[test]
fn a_request_that_no_device_meets_ends_the_search_whatever_comes_before() {
    let any = vec![(0, Some(1), false, true, 1)];
    let none = vec![(1, Some(1), false, true, 1)];
    let mut requests = vec![any; 8];
    requests.push(none);
    let case = Case {
        counter: 99,
        devices: (0..9).map(|_| (0, 1, 0, false, None)).collect(),
        claims: vec![(requests, None)],
    };
    assert!(matches!(search(&case), Err(NoDevices::None)));
}

/// Devices that all meet the selector 0, and the last `special` of them the selector 1, too.
fn devices(all: usize, special: usize) -> Vec<RandomDevice> {
    let meets = |at: usize| if at < all - special { 1 } else { 3 };
    (0..all).map(|at| (at as i64 % 2, meets(at), 0, false, None)).collect()
}

#[test]
fn requests_that_are_possible_only_without_each_other_are_refused_for_too_few_devices() {
    let any = || vec![(0, Some(1), false, true, 1)];
    let special = || vec![(1, Some(1), false, true, 1)];
    let large = |amount: i128| vec![(0, Some(1), false, true, amount)];
    let claim = |parts: [(usize, RandomRequest); 2]| {
        let requests = parts.into_iter().flat_map(|(count, request)| vec![request; count]);
        (requests.collect::<Vec<_>>(), None)
    };
    let mut one_large = devices(8, 0);
    one_large[..7].iter_mut().for_each(|device| device.4 = Some(3));
    let cases = [
        (devices(8, 4), vec![claim([(3, any()), (5, special())])]),
        (devices(8, 1), vec![claim([(6, any()), (2, special())])]),
        (devices(8, 4), vec![claim([(4, special()), (5, any())])]),
        // One device has enough of a capacity.
        (one_large, vec![claim([(6, any()), (2, large(5))])]),
        // Claims of one pod.
        (
            devices(8, 4),
            vec![
                claim([(3, any()), (1, special())]),
                claim([(1, special()), (3, special())]),
            ],
        ),
        // More than a claim can have.
        (devices(36, 0), vec![(vec![vec![(0, Some(33), false, true, 1)]], None)]),
        // Of one kind, of which there are 18.
        (
            devices(36, 0),
            vec![(vec![vec![(0, Some(19), false, true, 1)]], Some(false))],
        ),
    ];
    for (devices, claims) in cases {
        let case = Case {
            counter: 99,
            devices,
            claims,
        };
        assert!(!has_enough(&case, STEPS).0, "{case:?}");
        assert_eq!(search(&case), Err(NoDevices::None), "{case:?}");
    }
}

#[test]
fn a_long_search_takes_the_first_devices_that_leave_enough_for_further_requests() {
    let any = vec![(0, Some(1), false, true, 1)];
    let special = vec![(1, Some(2), false, true, 1)];
    let mut devices = devices(6, 2);
    devices.reverse();
    let case = Case {
        counter: 99,
        devices,
        claims: vec![(vec![any.clone(), any.clone(), any.clone(), any, special], None)],
    };
    let found = search(&case).expect("there are enough");
    let names = found[0].results.iter().map(|result| &*result.device);
    assert_eq!(names.collect::<Vec<_>>(), ["d2", "d3", "d4", "d5", "d0", "d1"]);
}

/// The devices that a request of the claim `ns/claim` gets on the first node.
pub fn found(model: &Model, request: &RequestInput) -> Result<Vec<Name>, NoDevices> {
    let ask = DeviceDemand {
        name: "ns/claim",
        requests: &[request],
        constraints: &[],
    };
    let id = model.nodes().ids().next().expect("a node");
    let found = find(model, id, &[ask], &[], When::Now, Length::Full);
    let found = found.map_err(|in_vain| in_vain.why)?;
    Ok(found[0].results.iter().map(|result| result.device.clone()).collect())
}

#[test]
fn a_request_for_all_devices_fails_while_a_pool_with_devices_for_the_node_is_incomplete() {
    let mut model = Model::new(0);
    model.apply(Event::Node(Box::new(node("n0", "0"))), Time(0));
    let pool = |at: usize, reach: Reach, complete: bool| {
        let device = DeviceInput {
            reach,
            ..device(at, (0, 1, 0, false, None))
        };
        Event::Pool(Box::new(PoolInput {
            driver: "gpu".into(),
            pool: format!("p{at}").into(),
            complete,
            counters: Vec::new(),
            devices: vec![device],
        }))
    };
    let (one, all) = ((0, Some(1), false, true, 1), (0, None, false, true, 1));
    let given = |model: &Model, options: &RandomRequest| -> String {
        match found(model, &request(0, options)) {
            Ok(names) => names.join(" "),
            Err(why) => why.to_string(),
        }
    };
    let refused = |request: &str, pool: &str| {
        format!("claim ns/claim, request {request}: asks for all devices, but pool gpu/{pool} is incomplete or invalid")
    };
    let here = || Reach::Node("n0".into());
    model.apply(pool(0, here(), true), Time(0));
    model.apply(pool(1, Reach::Node("n1".into()), false), Time(0));
    model.apply(pool(2, Reach::Selected(Vec::new()), false), Time(0));
    assert_eq!(given(&model, &vec![all]), "d0", "the others are of other nodes");
    model.apply(pool(1, here(), false), Time(0));
    assert_eq!(given(&model, &vec![one]), "d0");
    assert_eq!(given(&model, &vec![all]), refused("r0", "p1"));
    assert_eq!(given(&model, &vec![all, one]), refused("r0/o0", "p1"));
    assert_eq!(given(&model, &vec![one, all]), "d0");
    model.apply(pool(2, Reach::All, false), Time(0));
    model.apply(pool(1, here(), true), Time(0));
    assert_eq!(given(&model, &vec![all]), refused("r0", "p2"));
    model.apply(pool(2, Reach::All, true), Time(0));
    assert_eq!(given(&model, &vec![all]), "d0 d1 d2");
}

#[test]
fn shares_of_a_capacity() {
    let capacity = |policy| Capacity { value: 100, policy };
    let range = |most, step| {
        capacity(Some(CapacityPolicy {
            default: Some(10),
            range: Some((8, most, step)),
            values: Vec::new(),
        }))
    };
    let values = capacity(Some(CapacityPolicy {
        default: None,
        range: None,
        values: vec![10, 20, 40],
    }));
    let table = [
        (capacity(None), None, Some(100)),
        (capacity(None), Some(30), Some(30)),
        (range(None, None), None, Some(10)),
        (range(None, None), Some(3), Some(8)),
        (range(None, Some(4)), Some(13), Some(16)),
        (range(Some(20), Some(4)), Some(20), Some(20)),
        (range(Some(20), Some(4)), Some(21), None),
        (values.clone(), Some(11), Some(20)),
        (values.clone(), Some(41), None),
        (values, None, Some(100)),
    ];
    for (capacity, asked, wanted) in table {
        assert_eq!(share(&capacity, asked), wanted, "{capacity:?} {asked:?}");
    }
}
