//! Violations are seen, and seen to be over.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::components::pods::OwnPods;

struct World {
    groups: Groups,
    stores: Stores,
    audit: Audit,
}

impl World {
    fn new() -> Self {
        Self::with_memory("81559")
    }

    /// The memory of each GPU, as the node's label has it.
    fn with_memory(memory: &str) -> Self {
        let node = json!({"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.memory": memory}}});
        let stores = Stores::default();
        stores.nodes.insert(serde_json::from_value(node).unwrap());
        Self {
            groups: Groups::new(Duration::from_secs(40), OwnPods::default()),
            stores,
            audit: Audit::default(),
        }
    }

    fn see(&mut self, value: Value) {
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(value).unwrap());
        self.stores.pods.insert(Pod::clone(&pod));
        for id in self.groups.pod(&pod, Instant::now()) {
            self.audit.look(&id, &self.groups, &self.stores, Instant::now());
        }
    }

    fn reserve(&mut self, name: &str, group: &str, device: &str) {
        self.see(json!({
            "metadata": {"namespace": "kai-resource-reservation", "name": name, "uid": name,
                "labels": {"runai-gpu-group": group}, "annotations": {"run.ai/reserve_for_gpu_index": device}},
            "spec": {"nodeName": "n1", "containers": [], "serviceAccountName": "kai-resource-reservation"}, "status": {"phase": "Running"},
        }));
    }

    fn user(&mut self, name: &str, annotations: Value, phase: &str) {
        self.see(json!({
            "metadata": {"namespace": "team", "name": name, "uid": name, "labels": {"runai-gpu-group": "g"}, "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": phase},
        }));
    }

    /// What is reported once the present state has lasted for some time.
    fn violations(&mut self) -> Vec<String> {
        self.audit.report(Instant::now() + LASTS);
        let broken = self.audit.broken.values();
        broken.map(|(rule, what)| format!("{rule}: {what}")).collect()
    }
}

#[test]
fn a_device_of_two_groups_is_a_violation() {
    let mut world = World::new();
    world.reserve("r1", "g", "GPU-1");
    world.reserve("r2", "h", "GPU-2");
    assert!(world.violations().is_empty());
    world.reserve("r2", "h", "GPU-1");
    assert_eq!(world.violations().len(), 2, "{:?}", world.violations());
    world.reserve("r2", "h", "GPU-2");
    assert!(world.violations().is_empty());
}

#[test]
fn a_short_violation_is_not_reported() {
    let mut world = World::new();
    world.reserve("r1", "g", "GPU-1");
    world.reserve("r2", "h", "GPU-1");
    world.audit.report(Instant::now());
    assert!(world.audit.broken.is_empty());
    assert!(world.audit.next().is_some_and(|next| next > Instant::now()));
    world.reserve("r1", "g", "GPU-2");
    assert!(world.audit.next().is_none());
    assert!(world.violations().is_empty());
}

#[test]
fn a_group_of_two_devices_is_a_violation() {
    let mut world = World::new();
    world.reserve("r1", "g", "GPU-1");
    world.reserve("r2", "g", "GPU-2");
    assert_eq!(
        world.violations(),
        ["G-1: the group has 2 devices: {\"GPU-1\", \"GPU-2\"}"]
    );
}

#[test]
fn portions_above_one_are_a_violation() {
    let mut world = World::new();
    world.reserve("r1", "g", "GPU-1");
    world.user("a", json!({"gpu-fraction": "0.7"}), "Running");
    world.user("b", json!({"gpu-memory": "24467"}), "Running");
    assert!(world.violations().is_empty(), "{:?}", world.violations());
    world.user("c", json!({"gpu-fraction": "0.1"}), "Running");
    assert_eq!(world.violations().len(), 1);
    world.user("a", json!({"gpu-fraction": "0.7"}), "Succeeded");
    assert!(world.violations().is_empty(), "one has ended");
}

#[test]
fn a_change_is_checked_against_the_objects_concerned_only() {
    let mut world = World::new();
    let groups: Vec<String> = (0..2_000).map(|number| format!("g{number}")).collect();
    for group in &groups {
        world.reserve(&format!("r-{group}"), group, &format!("GPU-{group}"));
    }
    assert!(world.violations().is_empty());
    let id = |group: &str| GroupId {
        node: "n1".into(),
        group: group.into(),
    };
    let concerned = world.audit.index(&id("g7"), ["GPU-g8".to_owned()].into());
    assert_eq!(concerned, [id("g7"), id("g8")].into());
    world.audit.index(&id("g7"), ["GPU-g7".to_owned()].into());

    world.reserve("r-g7", "g7", "GPU-g8");
    assert_eq!(world.violations().len(), 2);
    world.reserve("r-g8", "g8", "GPU-g7");
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}

#[test]
fn a_violation_ends_with_its_group() {
    let mut world = World::new();
    world.reserve("r1", "g", "GPU-1");
    world.reserve("r2", "h", "GPU-1");
    assert_eq!(world.violations().len(), 2);
    let gone = json!({"metadata": {"namespace": "kai-resource-reservation", "name": "r2", "uid": "r2"}});
    let gone: Pod = serde_json::from_value(gone).unwrap();
    for id in world.groups.pod_gone(&gone, Instant::now()) {
        world.audit.look(&id, &world.groups, &world.stores, Instant::now());
    }
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}

#[test]
fn the_whole_of_a_device_is_no_violation() {
    let mut world = World::new();
    world.reserve("r1", "g", "GPU-1");
    world.user("a", json!({"gpu-fraction": "0.5"}), "Running");
    world.user("b", json!({"gpu-fraction": "0.5"}), "Running");
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}

#[test]
fn memory_is_compared_with_that_of_the_gpu_in_mib_or_in_bytes() {
    let violations = |memory: &str, asked: [&str; 2]| {
        let mut world = World::with_memory(memory);
        world.reserve("r1", "g", "GPU-1");
        for (name, mib) in ["a", "b"].into_iter().zip(asked) {
            world.user(name, json!({"gpu-memory": mib}), "Running");
        }
        world.violations().len()
    };
    assert_eq!(violations("16384", ["8192", "8192"]), 0);
    assert_eq!(violations("16384", ["8192", "8193"]), 1);
    assert_eq!(violations("17179869184", ["8192", "8192"]), 0, "bytes");
    assert_eq!(violations("17179869184", ["8192", "8193"]), 1, "bytes");
    assert_eq!(
        violations("1048575", ["524287", "524287"]),
        0,
        "the largest number of MiB"
    );
    assert_eq!(violations("1048576", ["1", "1"]), 1, "the smallest number of bytes");
    assert_eq!(violations("0", ["8192", "8192"]), 0, "unknown");
}

#[test]
fn each_violation_is_reported_once_when_it_has_lasted() {
    let mut world = World::new();
    let began = Instant::now();
    share_a_device(&mut world, "GPU-1", ["g", "h"], began);
    share_a_device(&mut world, "GPU-2", ["i", "j"], began + LASTS / 2);
    // They are looked at again, and are as before.
    look_again(&mut world, ["g", "h"], began + LASTS / 2);
    assert_eq!(world.audit.next(), Some(began + LASTS));
    world.audit.report(began + LASTS);
    assert_eq!(world.audit.broken.len(), 2, "the others have not lasted yet");
    look_again(&mut world, ["g", "h"], began + LASTS);
    assert_eq!(
        world.audit.next(),
        Some(began + LASTS / 2 + LASTS),
        "what is reported is not new"
    );
    world.audit.report(began + LASTS / 2 + LASTS);
    assert_eq!(world.audit.broken.len(), 4);
    assert_eq!(world.audit.next(), None);
}

/// Two groups get the same device at that time.
fn share_a_device(world: &mut World, device: &str, groups: [&str; 2], at: Instant) {
    for group in groups {
        world.reserve(group, group, device);
    }
    world.audit.new.retain(|id, _| !groups.contains(&&*id.group));
    look_again(world, groups, at);
}

fn look_again(world: &mut World, groups: [&str; 2], at: Instant) {
    for group in groups {
        let id = GroupId {
            node: "n1".into(),
            group: group.into(),
        };
        world.audit.look(&id, &world.groups, &world.stores, at);
    }
}

#[test]
fn devices_that_are_not_reserved_any_more_are_forgotten() {
    let mut world = World::new();
    world.reserve("r1", "g", "GPU-1");
    world.user("a", json!({"gpu-fraction": "0.5"}), "Running");
    let gone = json!({"metadata": {"namespace": "kai-resource-reservation", "name": "r1", "uid": "r1"}});
    let gone: Pod = serde_json::from_value(gone).unwrap();
    for id in world.groups.pod_gone(&gone, Instant::now()) {
        world.audit.look(&id, &world.groups, &world.stores, Instant::now());
    }
    assert!(world.audit.groups.is_empty() && world.audit.devices.is_empty());
}
