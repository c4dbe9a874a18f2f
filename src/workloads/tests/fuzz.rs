//! Manifests of workloads, as users may write them and send them to the operator.

use allocation_counter::measure;
use serde_json::Value;

use super::made;
use crate::api::limits;
use crate::fuzz::Target;
use crate::mirror::bounds;
use crate::workloads::budget::Budget;
use crate::workloads::imagine::PODS_MAX;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "apiVersion", "kind", "metadata", "name", "spec", "replicas", "parallelism", "completions", "template", "containers", "labels", "annotations",
    "batch/v1", "Job", "apps/v1", "Deployment", "StatefulSet", "v1", "Pod", "List", "items", "JobSet", "PyTorchJob", "RayCluster", "LeaderWorkerSet",
    "MPIJob", "replicatedJobs", "pytorchReplicaSpecs", "workerGroupSpecs", "minReplicas", "kai.scheduler/min-member", "kai.scheduler/subgroups",
    "kai.scheduler/subgroup-label", "kai.scheduler/segment-size", "kai.scheduler/queue", "kai.scheduler/topology", "leader=1,worker=3", "a=1,a=2",
    "role", "priorityClassName", "Master", "Worker", "Launcher", "ownerReferences", "uid", "4097", "2", "-1", "gpu-fraction", "0.5",
];

#[test]
fn fuzz_manifests() {
    let target = Target {
        name: "manifests",
        rounds: 1_500,
        words: WORDS,
    };
    target.objects(|manifest: &Value| match made(&manifest.to_string(), "team") {
        Err(error) => {
            assert!(!format!("{error:#}").is_empty());
            false
        }
        Ok(made) => {
            assert!(made.pods.len() <= PODS_MAX);
            for group in &made.groups {
                let spec = &group.spec;
                assert!(spec.min_member.is_none_or(|min| min >= 0), "{spec:?}");
                assert!(spec.sub_groups.len() <= limits::SUB_GROUPS_PER_POD_GROUP);
                let exceeded = bounds::of_group(spec).map(|exceeded| exceeded.to_string());
                let of_texts = bounds::of_texts(spec).map(|exceeded| exceeded.to_string());
                assert_eq!(exceeded, of_texts, "no more sub-groups are made than are scheduled");
                for sub in &spec.sub_groups {
                    let same = spec.sub_groups.iter().filter(|other| other.name == sub.name).count();
                    assert_eq!(same, 1, "{} is there once: {spec:?}", sub.name);
                    let exists = |parent: &String| spec.sub_groups.iter().any(|other| other.name == *parent);
                    assert!(sub.parent.as_ref().is_none_or(exists), "{sub:?}");
                    assert!(sub.min_member.is_none_or(|min| min >= 0), "{sub:?}");
                }
            }
            true
        }
    });
}

#[test]
fn fuzz_yaml_against_its_budget() {
    let target = Target {
        name: "yaml",
        rounds: 1_500,
        words: &[
            "&a ",
            "*a",
            "&b ",
            "*b",
            "<<: *a",
            "- ",
            "? ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "\n",
            "  ",
            "|",
            ">-",
            "\"",
            "'",
            "!!binary ",
            "!!int ",
            "%YAML 1.2",
            "---",
            "...",
            "#",
            "~",
            ".inf",
            "0o7",
            "a",
            "b",
        ],
    };
    target.texts(|text| {
        let mut valid = false;
        let taken = measure(|| {
            let budget = Budget::of(text);
            for document in serde_yaml_ng::Deserializer::from_str(text) {
                let read = budget.take(document);
                valid = read.is_ok();
                if let Err(error) = read {
                    assert!(!error.to_string().is_empty());
                    break;
                }
            }
        });
        let most = 1_000 * (text.len() as u64 + 1_024);
        assert!(taken.bytes_max <= most, "{taken:?} for {} bytes", text.len());
        valid
    });
}
