//! What admission lets through, the scheduler counts, and holds back what admission refuses; whatever stands in the annotations.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::engine::input::{Event, PodInput};
use crate::engine::model::resources::{GPUS, ResourceNames};
use crate::engine::model::shape::{Shape, memory_as_gpus};
use crate::mirror::{Mirror, PackedChange, PackedObject};

/// Numbers as people and attackers write them.
const NUMBERS: &str =
    "0\\.[0-9]{1,12}|[1-9][0-9]{0,20}|[-+ ]?(0|1|0x)?[0-9._]{0,22}([eEpPmkMG][-+]?[0-9]{0,4}|i|u|inf|NaN|%)?";

fn words() -> impl Strategy<Value = Vec<String>> {
    let annotation =
        |key: &'static str| prop::option::of(NUMBERS).prop_map(move |text| text.map(|text| format!("{key}={text}")));
    let limit = |name: &'static str| {
        prop::option::weighted(0.2, 0..9_u32).prop_map(move |n| n.map(|n| format!("limit={name}:{n}")))
    };
    (
        annotation("gpu-fraction"),
        annotation("gpu-memory"),
        annotation("gpu-fraction-num-devices"),
        prop::option::weighted(0.1, NUMBERS).prop_map(|text| text.map(|text| format!("nvidia.com/mig-1g.5gb={text}"))),
        limit("nvidia.com/gpu"),
        limit("amd.com/gpu"),
        limit("nvidia.com/mig-1g.5gb"),
    )
        .prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].into_iter().flatten().collect())
}

/// The pod as the scheduler takes it in.
fn taken_in(pod: &Value) -> PodInput {
    let mut pod = pod.clone();
    pod["metadata"]["uid"] = json!("u");
    let resources = &mut pod["spec"]["containers"][0]["resources"];
    // As the API server does.
    resources["requests"] = resources["limits"].clone();
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let change = PackedChange::Applied(PackedObject::Pod(Arc::new(Arc::new(pod).into())));
    let events = Mirror::new(crate::mirror::Settings::default()).apply(&change).events;
    let pods = events.into_iter().filter_map(|event| match event {
        Event::Pod(pod) => Some(*pod),
        _ => None,
    });
    pods.last().expect("the pod is told")
}

/// What a pod is charged in its queue, in millionths of a GPU, while devices have 80,000 MiB. It must be admitted, and not be held back.
fn charged(words: &[&str]) -> i64 {
    let pod = pod(words);
    assert_eq!(denial(validate(&create(&pod), None, &settings())), None, "{words:?}");
    let input = taken_in(&pod);
    assert_eq!(input.blocked, None, "{words:?}");
    let shape = Shape::new(&input.needs.request, &input.needs.gpu, &mut ResourceNames::default());
    gpus(&shape, 80_000)
}

/// What a pod of this shape counts while it waits, with devices of so many MiB.
fn gpus(shape: &Shape, device: i64) -> i64 {
    shape.quota[GPUS] + memory_as_gpus(shape.memory_sum(), Some(device))
}

#[test]
fn the_smallest_fractions_are_charged_exactly() {
    assert_eq!(charged(&["gpu-fraction=0.5"]), 500_000);
    assert_eq!(charged(&["gpu-fraction=0.333"]), 330_000, "in hundredths");
    assert_eq!(charged(&["gpu-fraction=0.004"]), 4_000);
    assert_eq!(charged(&["gpu-fraction=0.004", "gpu-fraction-num-devices=8"]), 32_000);
    assert_eq!(charged(&["gpu-fraction=5e-324", "gpu-fraction-num-devices=8"]), 8);
    assert_eq!(charged(&["gpu-memory=1"]), 12);
}

#[test]
fn memory_beyond_any_device_is_neither_a_whole_gpu_nor_zero() {
    for mib in ["9223372036854775807", "9223372036854775808", "18446744073709551615"] {
        assert!(charged(&[&format!("gpu-memory={mib}")]) > 3_000_000_000, "{mib}");
    }
}

#[test]
fn whole_gpus_of_pods_of_other_schedulers_are_counted() {
    let mut other = pod(&["limit=nvidia.com/gpu:8", "gpu-fraction=0.01"]);
    assert!(denial(validate(&create(&other), None, &settings())).is_some());
    other["spec"]["schedulerName"] = json!("default-scheduler");
    assert_eq!(denial(validate(&create(&other), None, &settings())), None);
    let input = taken_in(&other);
    assert_eq!((input.needs.gpu.count, input.blocked), (8, None));
}

proptest! {
    #[test]
    fn admission_refuses_what_the_scheduler_holds_back(words in words()) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let pod = pod(&words);
        let refused = denial(validate(&create(&pod), None, &settings()));
        let input = taken_in(&pod);
        let limits = pod["spec"]["containers"][0]["resources"]["limits"].clone();
        let amount = |name: &str| limits[name].as_str().map_or(0, |text| text.parse::<i64>().unwrap());
        let whole = amount("nvidia.com/gpu") + amount("amd.com/gpu");
        // What containers alone contradict, annotations cannot mend, and the webhook is not asked about.
        let containers = whole > 0 && amount("nvidia.com/mig-1g.5gb") > 0;
        prop_assert_eq!(refused.is_some() || containers, input.blocked.is_some(), "{:?}, {:?}", refused, input.blocked);

        let gpu = &input.needs.gpu;
        let annotated = words.iter().any(|word| word.starts_with("gpu-"));
        let shape = Shape::new(&input.needs.request, gpu, &mut ResourceNames::default());
        if whole > 0 {
            prop_assert_eq!(gpu.count, whole, "what containers ask for stays");
        } else if annotated && refused.is_none() {
            prop_assert!(gpu.count > 0 && (gpu.portion > 0 || gpu.memory > 0), "{:?}", gpu);
            prop_assert!(gpus(&shape, 100) > 0, "a share is never free: {:?}", gpu);
        }
    }

    #[test]
    fn annotations_of_pods_of_other_schedulers_change_nothing(words in words()) {
        let of_other = |words: &[&str]| {
            let mut pod = pod(words);
            pod["spec"]["schedulerName"] = json!("default-scheduler");
            taken_in(&pod)
        };
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let limits: Vec<_> = words.iter().copied().filter(|word| word.starts_with("limit=")).collect();
        let (with, without) = (of_other(&words), of_other(&limits));
        prop_assert_eq!((with.needs, with.blocked), (without.needs, without.blocked));
    }
}
