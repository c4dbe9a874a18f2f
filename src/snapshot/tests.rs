mod fuzz;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::format::Additions;
use super::*;
use crate::engine::decision::Decisions;
use crate::engine::input::Time;
use crate::engine::policy::{
    ActionKind, DisruptionBudgets, MinRuntime, NodePlacement, Plugins, Policy, Proportion, ResolveMethod, Strategy,
    VictimGenerator,
};
use crate::kinds::Object;
use crate::mirror::identity::{Account, OwnPods};
use crate::mirror::{FallbackQueue, Settings, Shard};
use crate::scheduler_core::SchedulerCore;

const NOW: &str = "2026-01-01T00:00:00Z";

/// Settings that all differ from the defaults.
fn unusual() -> (Settings, Policy) {
    let settings = Settings {
        scheduler_name: "other".to_owned(),
        own_pods: OwnPods {
            reservation: Account::new("gpus", "holder"),
            scaling: Account::new("scale", "scaler"),
        },
        shard: Shard {
            key: "pool".to_owned(),
            value: "a".to_owned(),
        },
        restrict_nodes: true,
        cpu_worker_label: "cpu".to_owned(),
        gpu_worker_label: "gpu".to_owned(),
        mig_label: "mig".to_owned(),
        gpu_resources: vec!["example.com/gpu".to_owned()],
        numa: Some(vec!["memory".to_owned(), "cpu".to_owned()]),
        zones_as_reported: true,
        config_maps: true,
        fallback_queue: Some(FallbackQueue {
            label: "team".to_owned(),
            default: "rest".to_owned(),
        }),
        full_hierarchy: false,
    };
    let policy = Policy {
        actions: vec![ActionKind::Reclaim, ActionKind::Allocate],
        plugins: Plugins {
            proportion: Some(Proportion {
                k_value: 1_234_567,
                saturation_multiplier: 2_500_001,
            }),
            gpu_spread: true,
            node_placement: Some(NodePlacement {
                gpu: Strategy::Spread,
                cpu: Strategy::Binpack,
            }),
            min_runtime: Some(MinRuntime {
                preempt: 1_500,
                reclaim: 60_000,
                resolve: ResolveMethod::Queue,
            }),
            device_locality: vec!["example.com/island".to_owned()],
            victim_generators: vec![VictimGenerator::MultiNodeGang, VictimGenerator::NodeLocalGreedy],
            complete_search_steps: 7,
            ..Plugins::default()
        },
        queue_depth: vec![(ActionKind::Allocate, 5)],
        full_hierarchy: false,
        consolidating_reclaim: false,
        max_consolidation_victims: None,
        // Not settings of administrators.
        max_steps_without_result: Policy::default().max_steps_without_result,
        max_steps_per_search: Policy::default().max_steps_per_search,
        disruption_budgets: DisruptionBudgets::Respect,
        staleness_grace: None,
        stuck_after: 5_000,
        restrict_nodes: true,
        csi_storage: true,
        cpu_worker_label: "cpu".to_owned(),
        gpu_worker_label: "gpu".to_owned(),
        node_pool: "a".to_owned(),
        detailed_errors: true,
    };
    (settings, policy)
}

fn cluster(settings: Settings, policy: Policy, mut objects: Vec<Object>) -> Cluster {
    objects.sort_by_key(Object::kind);
    Cluster {
        settings,
        policy,
        now: NOW.parse().expect("a time"),
        objects: Box::new(objects.into_iter()),
        places: HashMap::new(),
        drafts: Vec::new(),
    }
}

fn written(cluster: Cluster) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    write(&mut file, cluster).expect("a written file");
    file
}

/// The text in the archive.
fn json_of(file: &tempfile::NamedTempFile) -> Value {
    let mut archive = zip::ZipArchive::new(file.reopen().expect("a file")).expect("an archive");
    serde_json::from_reader(archive.by_name("snapshot.json").expect("the member")).expect("JSON")
}

#[test]
fn settings_and_policy_are_read_as_they_were_written() {
    let usual_settings = || Settings {
        fallback_queue: unusual().0.fallback_queue,
        ..Settings::default()
    };
    let without_actions = Policy {
        actions: Vec::new(),
        ..Policy::default()
    };
    for (settings, policy) in [
        (usual_settings(), Policy::default()),
        (Settings::default(), Policy::default()),
        (Settings::default(), without_actions),
        unusual(),
    ] {
        let file = written(cluster(settings.clone(), policy.clone(), Vec::new()));
        let read = read(file.path()).expect("a snapshot");
        assert_eq!((read.settings, read.policy), (settings, policy));
        assert_eq!(read.now, NOW.parse().ok());
        assert_eq!(read.notes, Vec::<String>::new());
    }
}

#[test]
fn the_fallback_queue_is_read_under_its_earlier_name_too() {
    let (settings, policy) = unusual();
    let written = json!(Additions::of(&settings, &policy));
    let mut earlier = written.clone();
    let members = earlier.as_object_mut().expect("an object");
    let fallback_queue = members.remove("fallbackQueue").expect("a fallback queue");
    members.insert("home".to_owned(), fallback_queue);
    let read: Additions = serde_json::from_value(earlier).expect("additions");
    assert_eq!(json!(read), written);
}

#[test]
fn the_file_has_the_members_of_the_format() {
    let (settings, policy) = unusual();
    let file = json_of(&written(cluster(settings, policy, Vec::new())));
    assert_eq!(file["config"]["actions"], "reclaim, allocate");
    assert_eq!(
        file["config"]["tiers"][0]["plugins"][1],
        json!({"name": "proportion", "arguments": {"kValue": "1.234567", "relcaimerSaturationMultiplier": "2.500001"}})
    );
    assert_eq!(
        file["schedulerParams"],
        json!({
            "schedulerName": "other", "restrictSchedulingNodes": true, "detailedFitErrors": true, "scheduleCSIStorage": true,
            "partitionParams": {"NodePoolLabelKey": "pool", "NodePoolLabelValue": "a"}, "maxNumberConsolidationPreemptees": -1,
            "globalDefaultStalenessGracePeriod": -1, "stuckInReleasingThreshold": 5_000_000_000_i64,
            "useSchedulingSignatures": true, "schedulePeriod": 1_000_000_000, "queueLabelKey": "team",
        })
    );
    let raw = file["rawObjects"].as_object().expect("lists");
    let kai = [
        "pods",
        "nodes",
        "queues",
        "podGroups",
        "bindRequests",
        "priorityClasses",
        "configMaps",
        "persistentVolumeClaims",
        "persistentVolumes",
        "csiStorageCapacities",
        "storageClasses",
        "csiDrivers",
        "resourceClaims",
        "resourceSlices",
        "deviceClasses",
        "topologies",
        "nodeResourceTopologies",
    ];
    for name in kai {
        assert_eq!(raw[name], json!([]), "{name}");
    }
    // Kinds that are not watched are `null`.
    let usual = json_of(&written(cluster(Settings::default(), Policy::default(), Vec::new())));
    let raw = &usual["rawObjects"];
    assert_eq!(
        (&raw["configMaps"], &raw["nodeResourceTopologies"]),
        (&json!(null), &json!(null))
    );
}

fn node(name: &str, labels: Value) -> Object {
    let node = json!({
        "metadata": {"name": name, "uid": name, "labels": labels},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    Object::Node(Arc::new(serde_json::from_value(node).expect("a node")))
}

fn group(name: &str) -> Arc<crate::api::PodGroup> {
    let group =
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"queue": "q", "minMember": 1}});
    Arc::new(serde_json::from_value(group).expect("a pod group"))
}

fn pod(name: &str, group: Option<&str>) -> Object {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Pending"},
    });
    if let Some(group) = group {
        pod["metadata"]["annotations"] = json!({"pod-group-name": group});
    }
    Object::Pod(Arc::new(serde_json::from_value(pod).expect("a pod")))
}

fn decided(file: &tempfile::NamedTempFile) -> Decisions {
    let snapshot = read(file.path()).expect("a snapshot");
    assert_eq!(snapshot.notes, Vec::<String>::new());
    let now = Time(snapshot.now.map_or(0, Timestamp::as_millisecond));
    let mut core = SchedulerCore::new(snapshot.settings, snapshot.policy);
    assert_eq!(core.load(&snapshot.changes, now), Vec::new());
    core.cycle(now, &mut |_| ())
}

#[test]
fn pods_are_in_their_groups_before_and_after_the_pod_group_is_written() {
    let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let queue = |name: &str, parent: Value| {
        let queue = json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"parentQueue": parent, "resources": {"cpu": free, "memory": free, "gpu": free}},
        });
        Object::Queue(Arc::new(serde_json::from_value(queue).expect("a queue")))
    };
    let objects = vec![
        queue("all", json!(null)),
        queue("q", json!("all")),
        node("ours", json!({})),
        node("elsewhere", json!({"kai.scheduler/node-pool": "b"})),
        Object::PodGroup(group("known")),
        pod("said", Some("known")),
        pod("not-yet", None),
    ];
    let mut whole = cluster(Settings::default(), Policy::default(), objects);
    let place = Place {
        group: "draft".to_owned(),
        sub_group: None,
    };
    whole.places.insert("not-yet".to_owned(), place.clone());
    whole.places.insert("said".to_owned(), place);
    whole.drafts.push(group("draft"));
    let file = written(whole);
    let raw = &json_of(&file)["rawObjects"];
    let names = |list: &str| {
        let list = raw[list].as_array().expect("a list");
        list.iter()
            .map(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names("nodes"), names("podGroups")),
        (vec!["ours".to_owned()], vec!["known".to_owned(), "draft".to_owned()])
    );
    assert!(raw["pods"][0].get("kind").is_none() && raw["pods"][0].get("apiVersion").is_none());
    let mut bound: Vec<_> = decided(&file)
        .bind
        .iter()
        .map(|bind| (bind.pod.name.to_string(), bind.node.to_string()))
        .collect();
    bound.sort();
    assert_eq!(
        bound,
        [
            ("not-yet".to_owned(), "ours".to_owned()),
            ("said".to_owned(), "ours".to_owned())
        ]
    );
}

/// A writer that discards its input and records the process's peak memory.
struct Meter {
    written: usize,
    most: usize,
}

/// Memory of the process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("pages");
    pages * 4_096
}

impl std::io::Write for Meter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.written += bytes.len();
        self.most = self.most.max(resident());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "looks at the memory of the whole process: run it alone"]
fn five_thousand_nodes_are_written_in_little_memory() {
    let mut objects: Vec<_> = (0..5_000).map(|index| node(&format!("n{index}"), json!({}))).collect();
    for index in 0..40_000 {
        objects.push(Object::PodGroup(group(&format!("g{index}"))));
        objects.push(pod(&format!("p{index}"), Some(&format!("g{index}"))));
    }
    // As the stores do.
    let kept = objects.clone();
    let before = resident();
    let mut meter = Meter {
        written: 0,
        most: before,
    };
    write(&mut meter, cluster(Settings::default(), Policy::default(), objects)).expect("written");
    let extra = meter.most - before;
    println!(
        "{} objects, {} bytes written, {} KiB beside them",
        kept.len(),
        meter.written,
        extra >> 10
    );
    assert!(extra < 64 << 20, "{extra} bytes");
}
