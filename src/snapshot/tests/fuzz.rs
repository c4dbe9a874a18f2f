//! Snapshots of clusters with unusual objects: they are read, scheduled, and leave no trace once they are gone.

use std::io::Write as _;

use serde_json::Value;
use zip::write::SimpleFileOptions;

use crate::engine::input::Time;
use crate::fuzz::Target;
use crate::mirror::PackedChange;
use crate::scheduler_core::SchedulerCore;
use crate::snapshot::format::MEMBER;
use crate::snapshot::read::{Snapshot, parse};

const NOW: Time = Time(1_767_225_600_000);

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "a", "b", "c", "d", "n1", "n2", "team", "pg-a", "pg-b", "pg-c", "research", "inference", "company", "train", "g1", "zone", "rack",
    "kubernetes.io/hostname", "racks", "shelf", "leader", "workers", "w0", "kai-scheduler", "kai-resource-reservation", "gpu-fraction", "gpu-memory",
    "gpu-fraction-num-devices", "gpu-fraction-container-name", "pod-group-name", "runai-gpu-group", "kai.scheduler/queue", "kai.scheduler/node-pool",
    "kai.scheduler/subgroup-name", "unikai.dev/hold", "unikai.dev/allowed-namespaces", "unikai.dev/quota-schedule", "nvidia.com/gpu",
    "nvidia.com/mig-1g.5gb", "nvidia.com/mig-9999g.1gb", "cpu", "memory", "pods", "1", "0.5", "0.999", "1.5", "-1", "100m", "1Gi", "1e30", "5m", "2d",
    "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "NoSchedule", "Running", "Pending", "Succeeded", "Failed", "True", "False",
    "Required", "DoNotSchedule", "preemptible", "non-preemptible", "All", "ExactCount", "claim1", "claim2", "gpu.example.com",
    "device.driver == 'gpu.example.com'", "gpu-0", "fast", "pv1", "data", "WaitForFirstConsumer", "Immediate", "50%", "2026-01-01T00:00:00Z",
    "single-numa-node", "Node", "minMember", "minSubGroup", "subGroups", "parent", "priority", "nodeName", "labels", "annotations", "requests",
    "limits", "parentQueue", "queue", "topology", "count", "name", "namespace", "uid",
];

fn zipped(json: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive
        .start_file(MEMBER, SimpleFileOptions::default())
        .expect("a member");
    archive.write_all(json).expect("a member");
    archive.finish().expect("an archive").into_inner()
}

fn core(snapshot: &Snapshot) -> SchedulerCore {
    SchedulerCore::new(snapshot.settings.clone(), snapshot.policy.clone())
}

/// The broken rules of the model that nothing in the cluster may break.
fn check_model(core: &SchedulerCore, when: &str) {
    let mut broken = core.engine.model().broken_rules();
    broken.retain(|rule, _| !rule.can_be_broken_from_outside());
    assert!(broken.is_empty(), "{when}: {broken:?}");
}

/// Loads a cluster and schedules it.
fn check_scheduling(snapshot: &Snapshot) {
    let mut core = core(snapshot);
    for rejection in core.load(&snapshot.changes, NOW) {
        assert!(!rejection.to_string().is_empty());
    }
    check_model(&core, "once loaded");
    for second in 0..3 {
        let _ = core.cycle(Time(NOW.0 + second * 1_000), &mut |_| {});
        check_model(&core, "after a cycle");
    }
}

/// After the cluster was there and is gone, another one is as if it had always been alone.
fn check_history(snapshot: &Snapshot, other: &[PackedChange]) {
    let (mut after, mut alone) = (core(snapshot), core(snapshot));
    after.load(&snapshot.changes, NOW);
    for change in snapshot.changes.iter().rev() {
        if let PackedChange::Applied(object) = change {
            after.apply(&PackedChange::Deleted(object.clone()), NOW);
        }
    }
    after.load(other, NOW);
    alone.load(other, NOW);
    check_model(&after, "after another cluster");
    let differences = after.engine.digest(NOW).differences(alone.engine.digest(NOW), 3);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn fuzz_snapshots() {
    let seed: Value =
        serde_yaml_ng::from_str(include_str!("../../fuzz/corpora/snapshot/cluster.yaml")).expect("a cluster");
    let usual = parse(seed.to_string().into_bytes()).expect("a snapshot");
    assert_eq!(usual.notes, Vec::<String>::new(), "the corpus is valid");
    let target = Target {
        name: "snapshot",
        rounds: 400,
        words: WORDS,
    };
    target.objects(|object| {
        let json = object.to_string().into_bytes();
        let archive = zipped(&json);
        let mut broken = archive.clone();
        let at = json.len() * 7_919 % broken.len();
        broken[at] ^= 1 << (json.len() % 8);
        let _ = parse(broken);
        let from_archive = parse(archive).map(|read| (read.changes.len(), read.notes));
        let from_archive = from_archive.map_err(|error| format!("{error:#}"));
        match parse(json) {
            Err(error) => {
                let error = format!("{error:#}");
                assert!(!error.is_empty());
                assert_eq!(from_archive, Err(error));
                false
            }
            Ok(snapshot) => {
                assert_eq!(from_archive, Ok((snapshot.changes.len(), snapshot.notes.clone())));
                assert!(snapshot.notes.iter().all(|note| !note.is_empty()));
                check_scheduling(&snapshot);
                check_history(&snapshot, &usual.changes);
                snapshot.notes.is_empty()
            }
        }
    });
}
