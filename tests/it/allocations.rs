//! What the key paths allocate, and what they keep: counts of allocations and bytes, which do not depend on the machine. A change that exceeds a limit is a
//! regression, or raises the limit here with a reason. With `--nocapture` the figures are printed.

#[path = "../../benches/engine/objects.rs"]
#[allow(dead_code, reason = "the benches use the rest")]
mod objects;
#[path = "../../benches/operator/served.rs"]
mod served;

use std::ops::Range;
use std::sync::Arc;

use allocation_counter::{AllocationInfo, measure};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::Value;
use unikai::api::PodGroup;
use unikai::components::watches::{Store, Stores, Watched};
use unikai::engine::Engine;
use unikai::engine::policy::Policy;
use unikai::kinds::Object;
use unikai::mirror::{Entry as _, PackedChange, Settings};
use unikai::scheduler_core::SchedulerCore;

use objects::{GPUS_PER_NODE, NOW, cluster, workload};

/// Objects of each measurement.
const OBJECTS: usize = 1_000;

/// The most that something may take, for each object.
struct Limit {
    allocations: u64,
    bytes_kept: i64,
}

impl Limit {
    fn of(allocations: u64, bytes_kept: i64) -> Self {
        Self {
            allocations,
            bytes_kept,
        }
    }
}

fn check(what: &str, objects: usize, taken: AllocationInfo, limit: &Limit) {
    let allocations = taken.count_total / objects as u64;
    let bytes_kept = taken.bytes_current / objects as i64;
    println!("{what}: {allocations} allocations and {bytes_kept} bytes kept for each of {objects}");
    assert!(
        allocations <= limit.allocations && bytes_kept <= limit.bytes_kept,
        "{what}: {allocations} allocations and {bytes_kept} bytes for each, more than {} and {}",
        limit.allocations,
        limit.bytes_kept
    );
}

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object")
}

/// A pod as its watch reads it.
fn pod(at: usize) -> Pod {
    pod_of(&served::pod(at, 100).to_string())
}

fn pod_of(text: &str) -> Pod {
    let mut pod = Pod::read(text).expect("a pod");
    pod.trim();
    pod.metadata.managed_fields = None;
    pod
}

fn change(object: Object) -> PackedChange {
    PackedChange::Applied(object.into())
}

#[test]
fn the_stores_keep_pods_and_pod_groups_compressed() {
    fn insert<K: Watched + Clone>(store: &Store<K>, what: &str, objects: &[K], limit: &Limit) {
        // The allocations of the copy count as well.
        let taken = measure(|| {
            for object in objects {
                store.insert(object.clone());
            }
        });
        check(what, objects.len(), taken, limit);
    }
    let stores = Stores::default();
    let (first, further) = (0..OBJECTS, OBJECTS..2 * OBJECTS);
    // The last few stay parsed, however many there are.
    let (with_parsed, limit) = (Limit::of(110, 480 + 2_000), Limit::of(110, 480));
    let pods = |range: Range<usize>| -> Vec<Pod> { range.map(pod).collect() };
    insert(
        &stores.pods,
        "one of the first pods in its store",
        &pods(first.clone()),
        &with_parsed,
    );
    insert(&stores.pods, "a pod in its store", &pods(further.clone()), &limit);
    let groups = |range: Range<usize>| -> Vec<PodGroup> { range.map(|at| read(served::pod_group(at))).collect() };
    let what = "one of the first pod groups in its store";
    insert(&stores.pod_groups, what, &groups(first), &with_parsed);
    insert(&stores.pod_groups, "a pod group in its store", &groups(further), &limit);
}

#[test]
fn a_pod_is_read_without_unused_fields() {
    let texts: Vec<String> = (0..OBJECTS).map(|at| served::pod(at, 100).to_string()).collect();
    let taken = measure(|| {
        for text in &texts {
            drop(pod_of(text));
        }
    });
    check("reading a pod", OBJECTS, taken, &Limit::of(105, 0));
}

#[test]
fn mirror_and_engine_use_little_memory_per_pod() {
    let mut core = SchedulerCore::new(Settings::default(), Policy::default());
    for at in 0..100 {
        core.apply(&change(Object::Node(Arc::new(read(served::node(at))))), NOW);
    }
    let groups: Vec<PodGroup> = (0..OBJECTS).map(|at| read(served::pod_group(at))).collect();
    let pods: Vec<Pod> = (0..OBJECTS).map(pod).collect();
    let again: Vec<PackedChange> = pods
        .iter()
        .map(|pod| change(Object::Pod(Arc::new(pod.clone()))))
        .collect();
    let mut events = Vec::with_capacity(3 * OBJECTS);
    let taken = measure(|| {
        // Copies, since the objects are dropped here.
        let groups = groups.iter().map(|group| Object::PodGroup(Arc::new(group.clone())));
        let pods = pods.iter().map(|pod| Object::Pod(Arc::new(pod.clone())));
        for object in groups.chain(pods) {
            events.extend(core.mirror.apply(&change(object)).events);
        }
    });
    check(
        "a pod and its group in the mirror, and as events",
        OBJECTS,
        taken,
        &Limit::of(190, 2_200),
    );
    let taken = measure(|| {
        for event in events {
            core.engine.apply(event, NOW);
        }
    });
    // Some ten bytes of them to find the pods of a namespace.
    check("the same in the engine", OBJECTS, taken, &Limit::of(4, 345));
    let taken = measure(|| {
        for pod in &again {
            core.apply(pod, NOW);
        }
    });
    check("a pod that has not changed", OBJECTS, taken, &Limit::of(75, 100));
}

/// An engine with 100 nodes and as many pods as fit, pending.
fn full(gang: usize) -> Engine {
    let mut engine = Engine::new(Policy::default());
    for event in cluster(100, gang, 10) {
        engine.apply(event, NOW);
    }
    engine
}

#[test]
fn a_cycle_allocates_little_for_each_pod_that_it_binds() {
    for (gang, limit) in [(1, Limit::of(3, 330)), (16, Limit::of(3, 70))] {
        let mut engine = full(gang);
        let mut bound = 0;
        let taken = measure(|| bound = engine.cycle(NOW).bind.len());
        assert_eq!(bound, 100 * GPUS_PER_NODE);
        check(&format!("binding, gangs of {gang}"), bound, taken, &limit);
        let taken = measure(|| drop(engine.cycle(NOW)));
        check("a cycle without news", 1, taken, &Limit::of(0, 0));
        let add = |engine: &mut Engine, name: &str| {
            for event in workload(name, 1, 10, 100 * GPUS_PER_NODE) {
                engine.apply(event, NOW);
            }
        };
        // The first search sorts the victims.
        add(&mut engine, "first");
        engine.cycle(NOW);
        add(&mut engine, "more");
        let taken = measure(|| drop(engine.cycle(NOW)));
        check("a pod for which there is no place", 1, taken, &Limit::of(450, 6_500));
    }
}
