//! Each case is YAML in, YAML out: a pod, its owners bottom-up, and the pod group that they make.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use allocation_counter::measure;
use serde_json::{Value, json};

use super::*;
use crate::api::names::{annotation, third_party};
use crate::api::pod_group::{PodGroupSpec, SubGroup};

/// Pods of the large gang.
const GANG_PODS: usize = 4_000;
/// A gang of Grove that lists them.
static LARGE_GANG: LazyLock<Arc<Workload>> = LazyLock::new(|| {
    let pods = (0..GANG_PODS).map(|at| json!({"namespace": "ns", "name": format!("p-{at}")}));
    let pods = json!({"name": "workers", "minReplicas": GANG_PODS, "podReferences": pods.collect::<Vec<_>>()});
    let mut gang = owner(&json!({"kind": "scheduler.grove.io/v1alpha1/PodGang", "name": "large"}));
    gang.body = json!({"spec": {"podgroups": [pods]}});
    Arc::new(gang)
});

/// The cluster of the cases: priority classes named `known-…` exist, the namespace `labelled` names a queue, and there is one
/// pod group of an older release, and the large gang.
struct World;

impl Cluster for World {
    fn has_priority_class(&self, name: &str) -> bool {
        name.starts_with("known-")
    }

    fn pod_group(&self, _: &str, name: &str) -> Option<Arc<PodGroup>> {
        (name == "pg-old-U").then(Arc::default)
    }

    fn pods(&self, _: &str, _: &[(&str, &str)]) -> Vec<Arc<Pod>> {
        Vec::new()
    }

    fn object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError> {
        if wanted.name == "large" {
            return Ok(Arc::clone(&LARGE_GANG));
        }
        wrong(format!("no {} {}", wanted.kind, wanted.name))
    }

    fn kartas(&self, _: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        Ok(Arc::default())
    }

    fn defaults(&self) -> Result<Arc<Defaults>, RuleError> {
        Ok(Arc::default())
    }

    fn namespace_queue(&self, namespace: &str) -> Option<String> {
        (namespace == "labelled").then(|| "of-namespace".to_owned())
    }
}

/// Groups the pod of `case`, which is named `p` with uid `u` in namespace `ns` unless it says otherwise. Each owner is
/// `{kind: group/version/Kind, …metadata}`, with name `o` and uid `U` by default.
fn grouped(case: &str) -> Result<Grouped, RuleError> {
    grouped_with(&Settings::default(), case)
}

fn grouped_with(settings: &Settings, case: &str) -> Result<Grouped, RuleError> {
    let case: Value = serde_yaml_ng::from_str(case).unwrap();
    let mut pod = case["pod"].clone();
    for (key, default) in [("name", "p"), ("uid", "u"), ("namespace", "ns")] {
        if pod["metadata"][key].is_null() {
            pod["metadata"][key] = default.into();
        }
    }
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let owners = case["owners"].as_array().cloned().unwrap_or_default();
    let chain: Vec<Arc<Workload>> = owners.iter().map(|given| Arc::new(owner(given))).collect();
    group(&Input {
        pod: &pod,
        chain: &chain,
        settings,
        cluster: &World,
    })
}

fn owner(owner: &Value) -> Workload {
    let (api_version, kind) = owner["kind"].as_str().unwrap().rsplit_once('/').unwrap();
    let mut meta = owner.clone();
    for (key, default) in [("name", "o"), ("uid", "U")] {
        if meta[key].is_null() {
            meta[key] = default.into();
        }
    }
    let mut workload = Workload::new(api_version, kind, &serde_json::from_value(meta).unwrap());
    workload.body = owner["body"].clone();
    workload
}

/// Checks name, owner, and those fields of the spec that `expected` names.
#[track_caller]
fn check(case: &str, name: &str, owned_by: &str, expected: &str) {
    let found = grouped(case).unwrap().group;
    assert_eq!(found.metadata.name.as_deref(), Some(name));
    assert_eq!(found.metadata.namespace.as_deref(), Some("ns"));
    let owners = found.metadata.owner_references.unwrap();
    assert_eq!(
        owners
            .iter()
            .map(|o| format!("{}/{}/{}", o.api_version, o.kind, o.name))
            .collect::<Vec<_>>(),
        [owned_by]
    );
    let expected: Value = serde_yaml_ng::from_str(expected).unwrap();
    let spec = serde_json::to_value(found.spec).unwrap();
    for (field, value) in expected.as_object().into_iter().flatten() {
        assert_eq!(spec.get(field).unwrap_or(&Value::Null), value, "{field} of {name}");
    }
}

#[test]
fn a_bare_pod_is_its_own_group() {
    let expected =
        "{minMember: 1, queue: default-queue, priorityClassName: train, preemptibility: null, subGroups: null}";
    check("pod: {metadata: {name: a}}", "pg-a-u", "v1/Pod/a", expected);
}

#[test]
fn a_pod_owned_by_a_pod_joins_its_group() {
    check(
        "{pod: {}, owners: [{kind: v1/Pod, name: parent}]}",
        "pg-parent-U",
        "v1/Pod/parent",
        "{minMember: 1}",
    );
}

#[test]
fn spark_pods_share_the_group_of_their_application() {
    let labels = "{spark-app-name: pi, spark-app-selector: spark-abc}";
    check(
        &format!("pod: {{metadata: {{labels: {labels}}}}}"),
        "spark-abc",
        "v1/Pod/p",
        "{minMember: 1}",
    );
}

#[test]
fn each_pod_of_a_deployment_is_a_group() {
    let labels = "{kai.scheduler/queue: team-a, kai.scheduler/preemptibility: preemptible}";
    let owners = format!("[{{kind: apps/v1/ReplicaSet}}, {{kind: apps/v1/Deployment, name: web, labels: {labels}}}]");
    check(
        &format!("{{pod: {{metadata: {{name: web-6d-abc, uid: u1}}}}, owners: {owners}}}"),
        "pg-web-6d-abc-u1",
        "v1/Pod/web-6d-abc",
        "{minMember: 1, queue: team-a, priorityClassName: inference, preemptibility: preemptible}",
    );
}

#[test]
fn replica_sets_stateful_sets_and_unknown_kinds_are_one_group_each() {
    for kind in [
        "apps/v1/ReplicaSet",
        "apps/v1/StatefulSet",
        "example.com/v1beta3/Whatever",
    ] {
        let case = format!("{{pod: {{}}, owners: [{{kind: {kind}, name: db}}]}}");
        check(
            &case,
            "pg-db-U",
            &format!("{kind}/db"),
            "{minMember: 1, priorityClassName: train}",
        );
    }
}

#[test]
fn the_topology_constraint_is_read_from_the_owner() {
    let annotations = "{kai.scheduler/topology: net, kai.scheduler/topology-required-placement: rack}";
    check(
        &format!("{{pod: {{}}, owners: [{{kind: apps/v1/StatefulSet, name: db, annotations: {annotations}}}]}}"),
        "pg-db-U",
        "apps/v1/StatefulSet/db",
        "topologyConstraint: {topology: net, requiredTopologyLevel: rack}",
    );
}

#[test]
fn a_job_is_one_group_of_the_size_that_it_asks_for() {
    let job = |annotations: &str| {
        format!("{{pod: {{}}, owners: [{{kind: batch/v1/Job, name: j, annotations: {annotations}}}]}}")
    };
    check(&job("{}"), "pg-j-U", "batch/v1/Job/j", "{minMember: 1}");
    check(
        &job(r#"{kai.scheduler/batch-min-member: "3"}"#),
        "pg-j-U",
        "batch/v1/Job/j",
        "{minMember: 3}",
    );
    check(
        &job(r#"{kai.scheduler/batch-min-member: "0"}"#),
        "pg-j-U",
        "batch/v1/Job/j",
        "{minMember: 0}",
    );
    for wrong in ["1.5", "", "many"] {
        let error = grouped(&job(&format!("{{kai.scheduler/batch-min-member: {wrong:?}}}"))).unwrap_err();
        assert!(
            error.to_string().starts_with("invalid min-member annotation value: "),
            "{error}"
        );
    }
}

#[test]
fn segments_have_minimums_unless_later_pods_of_a_job_follow_earlier_ones() {
    let minimums = |parallelism: i32, annotations: &str| {
        let spec = format!("{{parallelism: {parallelism}, completions: 10}}");
        let case = format!(
            "pod: {{metadata: {{labels: {{batch.kubernetes.io/job-completion-index: '3'}}}}}}\nowners: [{{kind: batch/v1/Job, \
             annotations: {{kai.scheduler/segment-size: '2'{annotations}}}, body: {{spec: {spec}}}}}]"
        );
        let found = grouped(&case).unwrap();
        assert_eq!(found.sub_group.as_deref(), Some("segment-1"));
        let spec = found.group.spec;
        let segments = spec.sub_groups.iter().filter_map(|segment| segment.min_member);
        (spec.min_member, segments.collect::<Vec<_>>())
    };
    let stated = ", kai.scheduler/batch-min-member: '4'";
    assert_eq!(minimums(10, ""), (Some(10), vec![2; 5]));
    assert_eq!(minimums(10, stated), (Some(4), vec![2, 2, 0, 0, 0]));
    let own = ", kai.scheduler/batch-min-member: '2', kai.scheduler/min-member: '6'";
    assert_eq!(minimums(10, own), (Some(6), vec![2, 2, 2, 0, 0]));
    assert_eq!(minimums(4, ""), (Some(0), vec![0; 5]));
    assert_eq!(minimums(4, stated), (Some(0), vec![0; 5]));
}

/// Pods that have ended do not count, so a job set may come down to the one job that waited for all others.
#[test]
fn a_job_set_needs_no_more_jobs_at_once_than_there_may_be() {
    let minimum_for = |pod_of: &str, settings: &Settings, jobs: &str| {
        let labels = format!("{{jobset.sigs.k8s.io/replicatedjob-name: {pod_of}, jobset.sigs.k8s.io/job-index: '0'}}");
        let set = format!("{{kind: jobset.x-k8s.io/v1alpha2/JobSet, body: {{spec: {{replicatedJobs: [{jobs}]}}}}}}");
        let case = format!("{{pod: {{metadata: {{labels: {labels}}}}}, owners: [{{kind: batch/v1/Job}}, {set}]}}");
        grouped_with(settings, &case).unwrap().group.spec.min_sub_group
    };
    let ours_for = |pod_of: &str, jobs: &str| minimum_for(pod_of, &Settings::default(), jobs);
    let ours = |jobs: &str| ours_for("a", jobs);
    let after_both = |status: &str| {
        format!("{{name: a}}, {{name: b}}, {{name: c, dependsOn: [{{name: a{status}}}, {{name: b{status}}}]}}")
    };
    assert_eq!(ours("{name: a}, {name: b}"), Some(2));
    assert_eq!(ours(&after_both(", status: Ready")), Some(2), "all three run at once");
    for complete in [", status: Complete", ""] {
        let jobs = after_both(complete);
        assert_eq!(ours(&jobs), Some(2), "the first two are a gang");
        assert_eq!(ours_for("c", &jobs), Some(1), "it is alone");
        let and_one_with_it = format!("{jobs}, {{name: d, dependsOn: [{{name: c, status: Ready}}]}}");
        assert_eq!(ours(&and_one_with_it), Some(2));
        for last in ["c", "d"] {
            assert_eq!(ours_for(last, &and_one_with_it), Some(1), "{last}");
        }
    }
    // The jobs b and c may run at once, or one of them alone.
    let after_one = "{name: a}, {name: b}, {name: c, dependsOn: [{name: a, status: Complete}]}";
    for pod_of in ["a", "b", "c"] {
        assert_eq!(ours_for(pod_of, after_one), Some(1), "{pod_of}");
    }
    let one_by_one = "{name: a}, {name: b, dependsOn: [{name: a, status: Complete}]}, \
                      {name: c, dependsOn: [{name: b, status: Complete}]}";
    assert_eq!(ours(one_by_one), Some(1));
    let first_scaled_to_none = "{name: z, replicas: 0}, {name: a, dependsOn: [{name: z, status: Ready}]}, \
                                {name: b, dependsOn: [{name: a, status: Ready}]}";
    assert_eq!(ours(first_scaled_to_none), Some(1));
    let as_kai = Settings {
        exactly_as_kai: true,
        ..Settings::default()
    };
    assert_eq!(minimum_for("a", &as_kai, &after_both(", status: Complete")), Some(3));
}

#[test]
fn a_long_chain_of_jobs_of_a_job_set_is_grouped_or_refused() {
    let chain = |length: usize, replicas: usize| {
        let mut jobs = "{name: j0}".to_owned();
        for number in 1..length {
            let after = format!("dependsOn: [{{name: j{}, status: Complete}}]", number - 1);
            jobs += &format!(", {{name: j{number}, replicas: {replicas}, {after}}}");
        }
        let labels = "{jobset.sigs.k8s.io/replicatedjob-name: j0, jobset.sigs.k8s.io/job-index: '0'}";
        let set = format!("{{kind: jobset.x-k8s.io/v1alpha2/JobSet, body: {{spec: {{replicatedJobs: [{jobs}]}}}}}}");
        grouped(&format!(
            "{{pod: {{metadata: {{labels: {labels}}}}}, owners: [{{kind: batch/v1/Job}}, {set}]}}"
        ))
    };
    for (length, replicas) in [(2_000, 1), (5_000, 0)] {
        assert_eq!(chain(length, replicas).unwrap().group.spec.min_sub_group, Some(1));
    }
    let refused = chain(5_000, 1).unwrap_err().to_string();
    assert!(refused.contains("has too many replicas: 10000"), "{refused}");
}

#[test]
fn a_worker_of_a_group_without_pods_may_have_been_seen_before_its_cluster() {
    let cluster = |labels: &str| {
        let spec = "{headGroupSpec: {}, workerGroupSpecs: [{groupName: w, replicas: 0}]}";
        let owners = format!("[{{kind: ray.io/v1/RayCluster, name: r, body: {{spec: {spec}}}}}]");
        grouped(&format!(
            "{{pod: {{metadata: {{labels: {labels}}}}}, owners: {owners}}}"
        ))
        .unwrap()
    };
    let worker = cluster("{ray.io/group: w}");
    assert_eq!(
        (worker.group.metadata.name.as_deref(), worker.doubtful),
        (Some("pg-p-u"), true)
    );
    assert!(!cluster("{}").doubtful, "a submitter");
}

#[test]
fn a_pod_stays_in_the_group_that_an_older_release_made_for_it() {
    let annotations = r#"{kai.scheduler/batch-min-member: "3"}"#;
    let case = format!(
        "{{pod: {{metadata: {{name: old}}}}, owners: [{{kind: batch/v1/Job, name: j, annotations: {annotations}}}]}}"
    );
    check(&case, "pg-old-U", "batch/v1/Job/j", "{minMember: 1}");
}

#[test]
fn each_run_of_a_cron_job_is_grouped_like_a_job() {
    let job = r#"{kind: batch/v1/Job, name: cron-1, uid: J, annotations: {kai.scheduler/batch-min-member: "3"}}"#;
    let case = format!("{{pod: {{}}, owners: [{job}, {{kind: batch/v1/CronJob, name: cron}}]}}");
    check(&case, "pg-cron-1-J", "batch/v1/Job/cron-1", "{minMember: 3}");
}

#[test]
fn the_queue_is_found_in_order() {
    let check = |namespace: &str, owner: &str, pod: &str, expected: &str| {
        let case = format!(
            "{{pod: {{metadata: {{namespace: {namespace}, labels: {pod}}}}}, owners: [{{kind: x/v1/X, labels: {owner}}}]}}"
        );
        let queue = grouped(&case).unwrap().group.spec.queue;
        assert_eq!(queue.as_deref(), Some(expected), "owner {owner}, pod {pod}");
    };
    check("ns", "{kai.scheduler/queue: a}", "{kai.scheduler/queue: b}", "a");
    check("ns", "{}", "{kai.scheduler/queue: b, project: p}", "b");
    check("ns", "{project: p}", "{kai.scheduler/node-pool: np}", "p-np");
    check("ns", r#"{project: ""}"#, "{project: p}", "default-queue");
    check("ns", r#"{kai.scheduler/queue: ""}"#, "{kai.scheduler/queue: b}", "b");
    check("ns", "{}", "{}", "default-queue");
    check("labelled", "{}", "{}", "of-namespace");
    check("labelled", "{}", "{kai.scheduler/queue: b}", "b");
}

#[test]
fn the_label_of_the_namespace_names_no_queue_where_pods_are_grouped_exactly_as_kai_does() {
    let settings = Settings {
        exactly_as_kai: true,
        ..Settings::default()
    };
    let found = grouped_with(
        &settings,
        "{pod: {metadata: {namespace: labelled}}, owners: [{kind: x/v1/X}]}",
    );
    assert_eq!(found.unwrap().group.spec.queue.as_deref(), Some("default-queue"));
}

#[test]
fn the_priority_class_is_the_first_that_exists() {
    let check = |owners: &str, pod: &str, expected: &str| {
        let case = format!("{{pod: {pod}, owners: {owners}}}");
        let class = grouped(&case).unwrap().group.spec.priority_class_name;
        assert_eq!(class.as_deref(), Some(expected), "owners {owners}, pod {pod}");
    };
    let spec = "{spec: {priorityClassName: known-spec, containers: []}}";
    let label = "{metadata: {labels: {priorityClassName: known-low}}}";
    check(
        "[{kind: x/v1/X, labels: {priorityClassName: known-hi}}]",
        spec,
        "known-hi",
    );
    check("[{kind: x/v1/X}]", spec, "known-spec");
    check("[{kind: x/v1/X, labels: {priorityClassName: bogus}}]", label, "train");
    check(
        "[{kind: apps/v1/ReplicaSet}, {kind: x/v1/X, labels: {priorityClassName: known-hi}}]",
        label,
        "known-low",
    );
    check(
        "[{kind: apps/v1/ReplicaSet}, {kind: x/v1/X, labels: {priorityClassName: known-hi}}]",
        "{}",
        "known-hi",
    );
}

#[test]
fn owners_without_labels_leave_class_and_preemptibility_to_the_pods() {
    let check = |owners: &str, expected: (bool, bool)| {
        let stated = "{priorityClassName: known-low, kai.scheduler/preemptibility: preemptible}";
        for labels in ["{}", stated] {
            let case = format!("{{pod: {{metadata: {{labels: {labels}}}}}, owners: {owners}}}");
            let found = grouped(&case).unwrap();
            let left = (found.class_of_pods, found.preemptibility_of_pods);
            assert_eq!(left, expected, "owners {owners}, pod {labels}");
        }
    };
    check("[{kind: x/v1/X}]", (true, true));
    check("[{kind: x/v1/X, labels: {priorityClassName: known-hi}}]", (false, true));
    check("[{kind: x/v1/X, labels: {priorityClassName: bogus}}]", (false, true));
    check(
        "[{kind: x/v1/X, labels: {kai.scheduler/preemptibility: non-preemptible}}]",
        (true, false),
    );
    check(
        "[{kind: apps/v1/ReplicaSet}, {kind: x/v1/X, labels: {priorityClassName: known-hi}}]",
        (true, true),
    );
    let body = "body: {spec: {headGroupSpec: {}}}";
    check(
        &format!("[{{kind: ray.io/v1/RayCluster, labels: {{ray.io/priority-class-name: any}}, {body}}}]"),
        (false, true),
    );
}

#[test]
fn preemptibility_is_the_first_valid_label() {
    let check = |owner: &str, pod: &str, expected: Option<&str>| {
        let key = "kai.scheduler/preemptibility";
        let labels = |value: &str| {
            if value == "-" {
                "{}".to_owned()
            } else {
                format!("{{{key}: {value:?}}}")
            }
        };
        let case = format!(
            "{{pod: {{metadata: {{labels: {}}}}}, owners: [{{kind: x/v1/X, labels: {}}}]}}",
            labels(pod),
            labels(owner)
        );
        assert_eq!(
            grouped(&case).unwrap().group.spec.preemptibility.as_deref(),
            expected,
            "owner {owner}, pod {pod}"
        );
    };
    check("non-preemptible", "preemptible", Some("non-preemptible"));
    check("invalid-value", "preemptible", Some("preemptible"));
    check("", "preemptible", None);
    check("-", "preemptible", Some("preemptible"));
    check("-", "Preemptible", None);
    check("-", "-", None);
}

#[test]
fn the_preemption_delay_is_the_first_valid_annotation_in_canonical_form() {
    let check = |owner: &str, pod: &str, expected: Option<&str>| {
        let key = "kai.scheduler/preemption-delay";
        let annotations = |value: &str| {
            if value == "-" {
                "{}".to_owned()
            } else {
                format!("{{{key}: {value:?}}}")
            }
        };
        let case = format!(
            "{{pod: {{metadata: {{annotations: {}}}}}, owners: [{{kind: x/v1/X, annotations: {}}}]}}",
            annotations(pod),
            annotations(owner)
        );
        assert_eq!(
            grouped(&case).unwrap().group.spec.preemption_delay.as_deref(),
            expected,
            "owner {owner}, pod {pod}"
        );
    };
    check("5m", "-", Some("5m0s"));
    check("-", "90s", Some("1m30s"));
    check("1h", "5m", Some("1h0m0s"));
    check("abc", "30s", Some("30s"));
    check("-", "0", Some("0s"));
    check("-", "5", None);
    check("-", "-3m", None);
}

#[test]
fn labels_and_annotations_of_the_owner_are_the_groups_but_not_those_of_its_tools() {
    let case = r#"
        pod: {metadata: {labels: {user: ann, x: "1"}, annotations: {user: ben}}}
        owners:
          - kind: scheduling.run.ai/v2alpha2/hantar
            name: bla
            uid: "1"
            labels: {team: t}
            annotations:
              note: n
              kubectl.kubernetes.io/last-applied-configuration: "{}"
              argocd.argoproj.io/tracking-id: t
    "#;
    let meta = grouped(case).unwrap().group.metadata;
    let keys =
        |map: Option<std::collections::BTreeMap<String, String>>| map.unwrap().into_keys().collect::<BTreeSet<_>>();
    let annotations = meta.annotations.clone().unwrap();
    assert_eq!(keys(meta.labels), BTreeSet::from(["team", "user"].map(String::from)));
    assert_eq!(
        keys(meta.annotations),
        BTreeSet::from(["note", "user", "kai.scheduler/top-owner-metadata"].map(String::from))
    );
    let expected = "name: bla\nuid: \"1\"\ngroup: scheduling.run.ai\nversion: v2alpha2\nkind: hantar\n";
    assert_eq!(annotations["kai.scheduler/top-owner-metadata"], expected);
}

#[test]
fn a_bare_pods_top_owner_is_the_pod_itself() {
    let group = grouped("pod: {metadata: {name: yes}}").unwrap().group;
    let expected = "name: \"yes\"\nuid: u\ngroup: \"\"\nversion: v1\nkind: Pod\n";
    assert_eq!(
        group.metadata.annotations.unwrap()["kai.scheduler/top-owner-metadata"],
        expected
    );
}

#[test]
fn what_the_scheduler_writes_on_a_group_is_not_inherited() {
    let owner = "annotations: {kai.scheduler/last-start-timestamp: '2099-01-01T00:00:00Z', kai.scheduler/stale-podgroup-timestamp: x,
        kai.scheduler/last-eviction-timestamp: x, kai.scheduler/top-owner-metadata: 'name: another', team.io/cost: '1'}";
    let above = ["batch/v1/Job", "apps/v1/StatefulSet", "argoproj.io/v1alpha1/Workflow"];
    for kind in above {
        let group = grouped(&format!("{{pod: {{}}, owners: [{{kind: {kind}, {owner}}}]}}"))
            .unwrap()
            .group;
        let annotations = group.metadata.annotations.unwrap();
        let keys: Vec<&str> = annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, [annotation::TOP_OWNER_METADATA, "team.io/cost"], "{kind}");
        assert!(
            !annotations[annotation::TOP_OWNER_METADATA].contains("another"),
            "{kind}"
        );
    }
}

#[test]
fn a_pod_of_a_large_gang_of_grove_is_grouped_without_a_copy_of_the_list_of_its_pods() {
    let labels = json!({third_party::GROVE_POD_GANG: "large"});
    let pod = json!({"metadata": {"name": "p-7", "uid": "u", "namespace": "ns", "labels": labels}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let chain = [Arc::new(owner(&json!({"kind": "grove.io/v1alpha1/PodCliqueSet"})))];
    let input = Input {
        pod: &pod,
        chain: &chain,
        settings: &Settings::default(),
        cluster: &World,
    };
    let own = || group(&input).unwrap().sub_group;
    // This also makes the gang.
    assert_eq!(own().as_deref(), Some("workers"));
    let taken = measure(|| drop(own()));
    assert!(taken.count_total < 1_000, "{} allocations", taken.count_total);
}

/// A pod group with these sub-groups.
fn with_sub_groups(sub_groups: Vec<SubGroup>) -> PodGroup {
    let spec = PodGroupSpec {
        sub_groups,
        ..PodGroupSpec::default()
    };
    PodGroup {
        spec,
        ..PodGroup::default()
    }
}

fn checked(sub_groups: Vec<SubGroup>) -> Result<(), String> {
    tree::check(&with_sub_groups(sub_groups)).map_err(|error| error.to_string())
}

#[test]
fn a_sub_group_with_pods_has_a_name_that_fits_into_their_label() {
    let (fits, long) = ("a".repeat(63), "a".repeat(64));
    assert_eq!(checked(vec![tree::leaf(&*fits, 1)]), Ok(()));
    let says = format!("{long:?} cannot be a sub-group: it has 64 characters, and the label of its pods holds 63");
    assert_eq!(checked(vec![tree::leaf(&*long, 1)]), Err(says));
    let below = tree::below(&long, tree::leaf("part", 1));
    assert_eq!(checked(vec![tree::inner(&*long, 1), below]), Ok(()), "it has no pods");
}

#[test]
fn the_first_sub_group_below_one_that_does_not_exist_is_named() {
    let below = |parent: &str, name: &str| tree::below(parent, tree::leaf(name, 1));
    let parts = vec![
        tree::inner("all", 3),
        below("all", "a"),
        below("none", "b"),
        below("any", "c"),
    ];
    let says = "sub-group b is below none, which there is not".to_owned();
    assert_eq!(checked(parts), Err(says));
}

/// Each pod of a job set has the whole tree checked.
#[test]
fn a_tree_is_checked_with_few_allocations_however_many_sub_groups_it_has() {
    let replicas = tree::MAX - 1;
    let replica = |at: usize| tree::below("workers", tree::leaf(format!("workers-replica-{at}"), 1));
    let mut parts = vec![tree::inner("workers", tree::count(replicas))];
    parts.extend((0..replicas).map(replica));
    let group = with_sub_groups(parts);
    let taken = measure(|| tree::check(&group).unwrap());
    assert!(taken.count_total < 64, "{} allocations", taken.count_total);
}
