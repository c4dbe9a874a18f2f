//! A tenant who may only write pods, jobs and pod groups of one namespace attacks the operator. Whatever is tried: it never
//! restarts, an innocent tenant's pods are bound meanwhile, the attacker's queue stays within its limit, and no GPU is given twice.
//!
//! Requests that the API server refuses are harmless, so refusals are not checked here; only the effects are.
//!
//! With `KUBEBUILDER_ASSETS` all attacks also run on a real API server, `cargo it attacks::on_a_real_api_server`; with `UNIKAI_OPERATOR`, the path of a
//! release build, innocent pods must be bound within two seconds there.

mod arena;
mod bulk;
mod changes;
mod doors;
mod rights;
mod stranger;
mod tricks;

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Map, Value, json};

use arena::{Arena, EVIL, OPERATOR, pod, with_fraction, with_gpus};
use bulk::{
    annotations_are_wrong_at_length, every_pod_is_of_another_kind, nodes_are_chosen_from_long_lists,
    owners_have_endless_names, pod_groups_say_it_at_length, pod_groups_with_many_sub_groups_change_all_the_time,
    pods_ask_for_thousands_of_resources, pods_have_thousands_of_owners, relations_are_about_every_pod,
    selectors_list_all_that_they_may, storms_of_pods_come_and_go, volumes_say_much,
};
use changes::{
    claims_are_as_deep_as_can_be_written, claims_come_and_go_by_the_thousand,
    pod_groups_of_running_pods_name_another_node_pool, pod_groups_of_running_pods_name_queues_that_are_not_there,
    pods_say_much_that_nobody_reads, statuses_say_what_nobody_counted,
};
use tricks::{
    annotations_name_what_has_no_such_name, budgets_forbid_everything, gangs_are_larger_than_the_cluster,
    owners_of_others_are_named, pods_come_again_under_their_names, sidecars_and_init_containers_hold_gpus,
    strangers_ask_for_everything,
};

/// Innocent pods are bound within this time by a release build.
const QUICK: Duration = Duration::from_secs(2);

/// Each attack is a test on the embedded API server; all of them, one after another on the same operator, are one test on a real one.
macro_rules! attacks {
    ($($name:ident),+ $(,)?) => {
        mod on_devcluster {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let arena = super::Arena::embedded().await;
                let longest = arena.innocents_during(super::$name(&arena)).await;
                arena.holds().await;
                eprintln!("{}: innocent pods waited {longest:?} at most", stringify!($name));
            })+
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn on_a_real_api_server() {
            let Some(arena) = Arena::real().await else { return };
            let mut slow = Vec::new();
            $(
                // In a box: the futures of all attacks together do not fit on a stack.
                let longest = Box::pin(async {
                    let longest = arena.innocents_during($name(&arena)).await;
                    arena.holds().await;
                    arena.clean_up().await;
                    longest
                })
                .await;
                if longest > QUICK {
                    slow.push((stringify!($name), longest));
                }
                eprintln!(
                    "{}: innocent pods waited {longest:?} at most; memory grew by {} MiB since the start",
                    stringify!($name), arena.growth()
                );
            )+
            tokio::time::sleep(Duration::from_secs(20)).await;
            let growth = arena.growth();
            assert!(growth < 100, "{growth} MiB are not given back");
            assert!(slow.is_empty() || std::env::var_os(OPERATOR).is_none(), "innocent pods waited: {slow:?}");
        }
    };
}

attacks! {
    labels_name_tens_of_thousands_of_gpu_groups,
    the_gpu_groups_of_a_running_pod_change_all_the_time,
    one_sharing_pod_has_a_thousand_groups,
    sub_groups_are_nested_thousands_deep,
    pod_groups_have_ten_thousand_sub_groups,
    pods_have_thousands_of_affinity_terms,
    pods_ask_for_thousands_of_resources,
    amounts_are_as_large_as_can_be_written,
    an_owner_is_touched_all_the_time,
    owners_are_named_to_be_read_as_watches,
    pods_claim_to_be_reservations,
    a_running_pod_leaves_its_queue,
    a_running_pod_leaves_its_pod_group,
    a_running_pod_shrinks_its_part,
    a_running_pod_frees_whole_gpus_by_annotation,
    a_running_pod_drops_its_gpu_group,
    what_was_changed_is_believed_after_a_restart,
    a_new_pod_names_a_gpu_group,
    parts_round_to_nothing,
    annotations_of_gpu_parts_are_nonsense,
    times_are_as_long_as_can_be_written,
    pods_do_not_go,
    pod_groups_say_anything,
    claims_choose_devices_at_great_cost,
    pods_contradict_themselves,
    webhooks_are_posted_to,
    storms_of_pods_come_and_go,
    pod_groups_of_running_pods_name_queues_that_are_not_there,
    pod_groups_of_running_pods_name_another_node_pool,
    claims_are_as_deep_as_can_be_written,
    claims_come_and_go_by_the_thousand,
    pods_say_much_that_nobody_reads,
    statuses_say_what_nobody_counted,
    owners_of_others_are_named,
    owners_have_endless_names,
    pods_have_thousands_of_owners,
    selectors_list_all_that_they_may,
    relations_are_about_every_pod,
    nodes_are_chosen_from_long_lists,
    volumes_say_much,
    annotations_are_wrong_at_length,
    pod_groups_say_it_at_length,
    every_pod_is_of_another_kind,
    pod_groups_with_many_sub_groups_change_all_the_time,
    sidecars_and_init_containers_hold_gpus,
    pods_come_again_under_their_names,
    annotations_name_what_has_no_such_name,
    budgets_forbid_everything,
    gangs_are_larger_than_the_cluster,
    strangers_ask_for_everything,
}

fn labels(count: usize, mark: &str) -> Value {
    let labels = (0..count).map(|at| (format!("runai-gpu-group/{mark}{at}"), json!(format!("{mark}{at}"))));
    let mut labels: Map<String, Value> = labels.collect();
    labels.insert("kai.scheduler/queue".to_owned(), json!("greedy"));
    labels.into()
}

async fn labels_name_tens_of_thousands_of_gpu_groups(arena: &Arena) {
    for at in 0..3 {
        let mut pod = with_fraction(&format!("many-{at}"), "0.1");
        pod["metadata"]["labels"] = labels(15_000, &format!("g{at}-"));
        let _ = arena.create(pod).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn the_gpu_groups_of_a_running_pod_change_all_the_time(arena: &Arena) {
    let _ = arena.create(with_fraction("fickle", "0.2")).await;
    arena.runs("fickle").await;
    for round in 0..100 {
        let new = labels(700, &format!("r{round}-"));
        let _ = arena.patch("fickle", json!({"metadata": {"labels": new}})).await;
        if round > 0 {
            let old: Map<String, Value> = (0..700)
                .map(|at| (format!("runai-gpu-group/r{}-{at}", round - 1), Value::Null))
                .collect();
            let _ = arena.patch("fickle", json!({"metadata": {"labels": old}})).await;
        }
    }
}

async fn one_sharing_pod_has_a_thousand_groups(arena: &Arena) {
    let _ = arena.create(with_fraction("wide", "0.2")).await;
    arena.runs("wide").await;
    let _ = arena
        .patch("wide", json!({"metadata": {"labels": labels(1_000, "w")}}))
        .await;
    for round in 0..40 {
        let touched = json!({"metadata": {"labels": {"touched": round.to_string()}}});
        let _ = arena.patch("wide", touched).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn pod_group(name: &str, sub_groups: Vec<Value>) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": EVIL},
        "spec": {"minMember": 1, "queue": "greedy", "subGroups": sub_groups},
    })
}

fn member(name: &str, group: &str, sub_group: &str) -> Value {
    let mut pod = pod(name, json!({"cpu": "10m"}));
    pod["metadata"]["annotations"] = json!({"pod-group-name": group});
    pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!(sub_group);
    pod
}

async fn sub_groups_are_nested_thousands_deep(arena: &Arena) {
    for group in 0..4 {
        let nested = |at: usize| match at {
            0 => json!({"name": "s0", "minMember": 1}),
            _ => json!({"name": format!("s{at}"), "parent": format!("s{}", at - 1), "minMember": 1}),
        };
        let name = format!("deep-{group}");
        let _ = arena.create(pod_group(&name, (0..10_000).map(nested).collect())).await;
        let _ = arena
            .create(pod_group(&format!("{name}-less"), (0..1_500).map(nested).collect()))
            .await;
        let _ = arena.create(member(&name, &name, "s9999")).await;
        let _ = arena
            .create(member(&format!("{name}-less"), &format!("{name}-less"), "s1499"))
            .await;
    }
    // A circle.
    let circle = vec![
        json!({"name": "a", "parent": "b", "minMember": 1}),
        json!({"name": "b", "parent": "a", "minMember": 1}),
    ];
    let _ = arena.create(pod_group("circle", circle)).await;
    let _ = arena.create(member("circle", "circle", "a")).await;
}

async fn pod_groups_have_ten_thousand_sub_groups(arena: &Arena) {
    for group in 0..30 {
        let name = format!("flat-{group}");
        let flat = (0..10_000)
            .map(|at| json!({"name": format!("s{at}"), "minMember": 1}))
            .collect();
        let _ = arena.create(pod_group(&name, flat)).await;
        let _ = arena.create(member(&name, &name, "s7")).await;
    }
}

async fn pods_have_thousands_of_affinity_terms(arena: &Arena) {
    for at in 0..20 {
        let mut pod = pod(&format!("terms-{at}"), json!({"cpu": "10m"}));
        let terms = |kind: &str| -> Vec<Value> {
            (0..2_000)
                .map(|term| {
                    json!({
                        "labelSelector": {"matchLabels": {format!("{kind}-{at}-{term}"): "x"}},
                        "topologyKey": format!("zone-{term}"),
                    })
                })
                .collect()
        };
        pod["spec"]["affinity"] = json!({
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms("anti")},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                terms("near").into_iter().map(|term| json!({"weight": 1, "podAffinityTerm": term})).collect::<Vec<_>>()},
        });
        let _ = arena.create(pod).await;
    }
}

async fn amounts_are_as_large_as_can_be_written(arena: &Arena) {
    let amounts = [
        json!({"memory": "9223372036854775807"}),
        json!({"memory": "8Ei", "cpu": "9223372036854775"}),
        json!({"nvidia.com/gpu": "9223372036854775807"}),
        json!({"nvidia.com/mig-1g.5gb": "9223372036854775807"}),
        json!({"nvidia.com/mig-9999999999999g.5gb": "1"}),
        json!({"hugepages-2Mi": "9223372036854775807"}),
        json!({"ephemeral-storage": "1e18"}),
        json!({"memory": "1n", "cpu": "1n"}),
    ];
    for (at, amount) in amounts.iter().enumerate() {
        for copy in 0..5 {
            let _ = arena.create(pod(&format!("huge-{at}-{copy}"), amount.clone())).await;
        }
    }
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "minimum", "namespace": EVIL,
            "labels": {"kai.scheduler/queue": "greedy"}, "annotations": {"kai.scheduler/batch-min-member": "2147483647"}},
        "spec": {"parallelism": 2, "template": {"metadata": {"labels": {"kai.scheduler/queue": "greedy"}},
            "spec": pod("job", json!({"memory": "256Ti"}))["spec"].clone()}},
    });
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let _ = arena.create(job).await;
}

/// A pod with this owner, which need not exist.
fn owned(name: &str, owner: Value) -> Value {
    let mut pod = pod(name, json!({"cpu": "10m"}));
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod
}

async fn an_owner_is_touched_all_the_time(arena: &Arena) {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "busy", "namespace": EVIL, "labels": {"kai.scheduler/queue": "greedy"}},
        "spec": {"parallelism": 50, "suspend": false, "template": {"metadata": {"labels": {"kai.scheduler/queue": "greedy"}},
            "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "ubuntu", "args": ["sleep", "infinity"],
                    "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}},
    });
    let _ = arena.create(job).await;
    let jobs: kube::Api<k8s_openapi::api::batch::v1::Job> = kube::Api::namespaced(arena.tenant.clone(), EVIL);
    for round in 0..200 {
        let touched = kube::api::Patch::Merge(json!({"metadata": {"annotations": {"touched": round.to_string()}}}));
        let _ = jobs.patch("busy", &kube::api::PatchParams::default(), &touched).await;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

async fn owners_are_named_to_be_read_as_watches(arena: &Arena) {
    for at in 0..40 {
        for (kind, owner) in [
            "?watch=true",
            "a/../../pods?watch=true&x=",
            "%3Fwatch=true",
            "x/log?follow=true",
        ]
        .iter()
        .enumerate()
        {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": format!("00000000-0000-0000-0000-{at:012}"), "controller": true});
            let _ = arena.create(owned(&format!("watcher-{at}-{kind}"), owner)).await;
        }
        let foreign = json!({"apiVersion": "v1?watch=true&", "kind": "Secret", "name": "x", "uid": format!("{at}"), "controller": true});
        let _ = arena.create(owned(&format!("secret-{at}"), foreign)).await;
    }
}

async fn pods_claim_to_be_reservations(arena: &Arena) {
    for (at, app) in [
        "kai-resource-reservation",
        "scaling-pod",
        "kai-scale-adjust",
        "runai-reservation",
    ]
    .iter()
    .enumerate()
    {
        for (scheduler, name) in [("kai-scheduler", "ours"), ("default-scheduler", "theirs")] {
            let mut whole = with_gpus(&format!("utility-{at}-{name}"), 2);
            whole["metadata"]["labels"]["app"] = json!(app);
            whole["metadata"]["labels"]["runai-gpu-group"] = json!("made-up");
            whole["spec"]["schedulerName"] = json!(scheduler);
            let _ = arena.create(whole).await;
            let mut plain = pod(&format!("plain-{at}-{name}"), json!({"cpu": "10m"}));
            plain["metadata"]["labels"]["app"] = json!(app);
            plain["metadata"]["labels"]["runai-gpu-group"] = json!("made-up");
            let _ = arena.create(plain).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for at in 0..6 {
        let _ = arena.create(with_gpus(&format!("more-{at}"), 1)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// The attacker asks for more than is left to them, in whole GPUs and in parts.
async fn ask_for_more(arena: &Arena, mark: &str) {
    for at in 0..4 {
        let _ = arena.create(with_gpus(&format!("more-{mark}-{at}"), 1)).await;
        let _ = arena.create(with_fraction(&format!("part-{mark}-{at}"), "0.6")).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// Fills the queue up to its limit.
async fn fill(arena: &Arena) {
    for (name, pod) in [
        ("whole-a", with_gpus("whole-a", 2)),
        ("whole-b", with_gpus("whole-b", 1)),
        ("half", with_fraction("half", "0.5")),
        ("other-half", with_fraction("other-half", "0.5")),
    ] {
        arena
            .create(pod)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        arena.runs(name).await;
    }
}

async fn a_running_pod_leaves_its_queue(arena: &Arena) {
    fill(arena).await;
    for name in ["whole-a", "half"] {
        let _ = arena
            .patch(
                name,
                json!({"metadata": {"labels": {"kai.scheduler/queue": "innocent"}}}),
            )
            .await;
        let _ = arena
            .patch(name, json!({"metadata": {"labels": {"kai.scheduler/queue": null}}}))
            .await;
        let _ = arena
            .patch(
                name,
                json!({"metadata": {"labels": {"kai.scheduler/node-pool": "elsewhere"}}}),
            )
            .await;
    }
    ask_for_more(arena, "queue").await;
}

async fn a_running_pod_leaves_its_pod_group(arena: &Arena) {
    fill(arena).await;
    let _ = arena
        .patch(
            "whole-a",
            json!({"metadata": {"annotations": {"pod-group-name": "nosuch"}}}),
        )
        .await;
    let _ = arena
        .patch(
            "whole-b",
            json!({"metadata": {"labels": {"kai.scheduler/subgroup-name": "nosuch"}}}),
        )
        .await;
    let _ = arena
        .patch(
            "half",
            json!({"metadata": {"annotations": {"pod-group-name": "nosuch"}, "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "nosuch", "uid": "0"}]}}),
        )
        .await;
    ask_for_more(arena, "group").await;
}

async fn a_running_pod_shrinks_its_part(arena: &Arena) {
    for name in ["large", "larger"] {
        arena.create(with_fraction(name, "0.9")).await.expect("created");
        arena.runs(name).await;
    }
    let _ = arena
        .patch("large", json!({"metadata": {"annotations": {"gpu-fraction": "0.01"}}}))
        .await;
    let _ = arena
        .patch(
            "larger",
            json!({"metadata": {"annotations": {"gpu-fraction": null, "gpu-memory": "1"}}}),
        )
        .await;
    for at in 0..5 {
        let _ = arena.create(with_fraction(&format!("joining-{at}"), "0.8")).await;
    }
    ask_for_more(arena, "part").await;
}

async fn a_running_pod_frees_whole_gpus_by_annotation(arena: &Arena) {
    fill(arena).await;
    for annotations in [
        json!({"nvidia.com/mig-none": "1"}),
        json!({"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-none": "-5"}),
        json!({"gpu-fraction": "0.001"}),
        json!({"received-resource-type": "MigInstance"}),
        json!({"received-resource-type": "Fraction", "gpu-fraction": "0.1"}),
    ] {
        let _ = arena
            .patch("whole-a", json!({"metadata": {"annotations": annotations}}))
            .await;
        ask_for_more(arena, &format!("free-{}", uuid::Uuid::new_v4().simple())).await;
    }
}

async fn a_running_pod_drops_its_gpu_group(arena: &Arena) {
    fill(arena).await;
    let groups = arena.pods().get("half").await.expect("the pod");
    let dropped: Map<String, Value> = groups
        .labels()
        .keys()
        .filter(|key| key.starts_with("runai-gpu-group"))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    let _ = arena.patch("half", json!({"metadata": {"labels": dropped}})).await;
    let _ = arena
        .patch(
            "other-half",
            json!({"metadata": {"labels": {"runai-gpu-group": "another"}}}),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    ask_for_more(arena, "drop").await;
}

async fn what_was_changed_is_believed_after_a_restart(arena: &Arena) {
    fill(arena).await;
    let annotations = json!({"gpu-fraction": "0.01", "pod-group-name": "nosuch", "nvidia.com/mig-none": "1", "received-resource-type": null});
    let labels =
        json!({"runai-gpu-group": null, "kai.scheduler/queue": "innocent", "kai.scheduler/subgroup-name": "nosuch"});
    for name in ["whole-a", "whole-b", "half", "other-half"] {
        let _ = arena
            .patch(
                name,
                json!({"metadata": {"annotations": annotations, "labels": labels}}),
            )
            .await;
        let _ = arena
            .patch(name, json!({"metadata": {"annotations": annotations}}))
            .await;
        let _ = arena.patch(name, json!({"metadata": {"labels": labels}})).await;
    }
    arena.restart().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    ask_for_more(arena, "restart").await;
}

async fn a_new_pod_names_a_gpu_group(arena: &Arena) {
    fill(arena).await;
    let half = arena.pods().get("half").await.expect("the pod");
    let group = half.labels().get("runai-gpu-group").cloned().unwrap_or_default();
    for (at, labels) in [
        json!({"runai-gpu-group": group, "kai.scheduler/queue": "greedy"}),
        json!({format!("runai-gpu-group/{group}"): group, "kai.scheduler/queue": "greedy"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut joins = with_fraction(&format!("joins-{at}"), "0.4");
        joins["metadata"]["labels"] = labels.clone();
        joins["metadata"]["annotations"]["received-resource-type"] = json!("Fraction");
        let _ = arena.create(joins).await;
        let mut bound = with_fraction(&format!("bound-{at}"), "0.4");
        bound["metadata"]["labels"] = labels;
        bound["spec"]["nodeName"] = half.spec.as_ref().map(|spec| json!(spec.node_name)).unwrap_or_default();
        // Nothing was ever given to it, so it is not counted among the attacker's GPUs.
        let _ = arena
            .pods()
            .create(
                &kube::api::PostParams::default(),
                &serde_json::from_value(bound).expect("a pod"),
            )
            .await;
    }
    ask_for_more(arena, "name").await;
}

async fn parts_round_to_nothing(arena: &Arena) {
    for at in 0..8 {
        let mut pod = with_fraction(&format!("crumbs-{at}"), "0.004");
        pod["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("4");
        let _ = arena.create(pod).await;
        let _ = arena.create(with_fraction(&format!("crumb-{at}"), "0.0000001")).await;
    }
    ask_for_more(arena, "crumbs").await;
}

async fn annotations_of_gpu_parts_are_nonsense(arena: &Arena) {
    let nonsense = [
        "NaN",
        "inf",
        "-inf",
        "-0",
        "-1",
        "1e-9",
        "1e999",
        "0x1p-2",
        "0.5e0",
        "1",
        "2",
        "+0.5",
        " 0.5",
        "0,5",
        "٠٫٥",
        "9223372036854775808",
        "",
    ];
    let more = [
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "-1",
        "0",
        "1.5",
        "1Gi",
    ];
    for (at, text) in nonsense.iter().chain(&more).enumerate() {
        for key in [
            "gpu-fraction",
            "gpu-memory",
            "gpu-fraction-num-devices",
            "gpu-fraction-container-name",
        ] {
            let key_name = key.replace('-', "");
            let mut pod = pod(&format!("nonsense-{at}-{key_name}"), json!({}));
            pod["metadata"]["annotations"] = json!({key: text});
            if key == "gpu-fraction-num-devices" {
                pod["metadata"]["annotations"]["gpu-fraction"] = json!("0.5");
            }
            let _ = arena.create(pod).await;
        }
    }
    let mut both = with_gpus("both", 1);
    both["metadata"]["annotations"] = json!({"gpu-fraction": "0.1"});
    let _ = arena.create(both).await;
    let mut foreign = with_gpus("foreign", 2);
    foreign["metadata"]["annotations"] = json!({"gpu-fraction": "0.1"});
    foreign["spec"]["schedulerName"] = json!("default-scheduler");
    // A pod of another scheduler is in no queue: it must count on its node.
    let _ = arena
        .pods()
        .create(
            &kube::api::PostParams::default(),
            &serde_json::from_value(foreign).expect("a pod"),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for at in 0..4 {
        let _ = arena.create(with_gpus(&format!("after-{at}"), 1)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn times_are_as_long_as_can_be_written(arena: &Arena) {
    for (at, text) in [
        "9223372036854775807s",
        "99999999999999999999h",
        "2562047h47m16.854775807s",
        "-1h",
        "1e9h",
        "NaNs",
    ]
    .iter()
    .enumerate()
    {
        let mut pod = with_gpus(&format!("times-{at}"), 1);
        pod["metadata"]["annotations"] = json!({
            "kai.scheduler/preemption-delay": text,
            "kai.scheduler/staleness-grace-period": text,
            "kai.scheduler/last-start-timestamp": text,
            "kai.scheduler/stale-podgroup-timestamp": text,
        });
        let _ = arena.create(pod).await;
        let mut slow = with_gpus(&format!("slow-{at}"), 1);
        slow["spec"]["terminationGracePeriodSeconds"] = json!(i64::MAX);
        slow["spec"]["activeDeadlineSeconds"] = json!(i64::MAX);
        let _ = arena.create(slow).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn pods_do_not_go(arena: &Arena) {
    for at in 0..4 {
        let mut stays = with_gpus(&format!("stays-{at}"), 1);
        stays["metadata"]["finalizers"] = json!(["example.com/never"]);
        let _ = arena.create(stays).await;
        let mut shares = with_fraction(&format!("shares-{at}"), "0.5");
        shares["metadata"]["finalizers"] = json!(["example.com/never"]);
        let _ = arena.create(shares).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _ = arena
        .pods()
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ask_for_more(arena, "stay").await;
}

async fn pod_groups_say_anything(arena: &Arena) {
    let specs = [
        json!({"minMember": i32::MAX, "queue": "greedy"}),
        json!({"minMember": -1, "queue": "greedy"}),
        json!({"minMember": 0, "queue": ""}),
        json!({"minMember": 1, "queue": "nosuch", "priorityClassName": "nosuch", "preemptibility": "maybe"}),
        json!({"queue": "greedy", "minSubGroup": i32::MAX, "subGroups": [{"name": "a"}, {"name": "a"}, {"name": "", "parent": ""}]}),
        json!({"queue": "greedy", "subGroups": [{"name": "a", "parent": "a", "minMember": -7, "minSubGroup": -7}]}),
        json!({"minMember": 1, "queue": "greedy", "stalenessGracePeriod": "-9223372036854775808ns", "preemptionDelay": "2562047h47m16.9s"}),
        json!({"minMember": 1, "queue": "greedy", "schedulingBackoff": i32::MIN, "markUnschedulable": true,
            "topologyConstraint": {"topology": "nosuch", "requiredTopologyLevel": "x".repeat(10_000), "preferredTopologyLevel": ""}}),
        json!({"minMember": 1, "queue": "default"}),
        json!({"minMember": 1, "queue": "innocent/../greedy"}),
    ];
    for (at, spec) in specs.iter().enumerate() {
        let name = format!("odd-{at}");
        let mut group = pod_group(&name, Vec::new());
        group["spec"] = spec.clone();
        group["metadata"]["annotations"] = json!({
            "kai.scheduler/last-start-timestamp": "9999-12-31T23:59:59Z",
            "kai.scheduler/stale-podgroup-timestamp": "-9999-01-01T00:00:00Z",
            "kai.scheduler/top-owner-metadata": "x".repeat(100_000),
        });
        let _ = arena.create(group).await;
        for copy in 0..2 {
            let mut pod = member(&format!("{name}-{copy}"), &name, "a");
            pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
            let _ = arena.create(pod).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for at in 0..specs.len() {
        let groups: kube::Api<unikai::api::PodGroup> = kube::Api::namespaced(arena.tenant.clone(), EVIL);
        let odd =
            kube::api::Patch::Merge(json!({"spec": {"minMember": at, "subGroups": [{"name": "b", "minMember": 1}]}}));
        let _ = groups
            .patch(&format!("odd-{at}"), &kube::api::PatchParams::default(), &odd)
            .await;
        let _ = groups.delete(&format!("odd-{at}"), &DeleteParams::default()).await;
    }
    ask_for_more(arena, "odd").await;
}

async fn claims_choose_devices_at_great_cost(arena: &Arena) {
    let expressions = [
        "device.attributes['x.example.com'].name.matches('(a|a|a|a)*(a|a|a)*b')".to_owned(),
        "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, \
         [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, a + b + c + d + e + f >= 0))))))"
            .to_owned(),
        format!("{}true{}", "(".repeat(2_000), ")".repeat(2_000)),
        "!".repeat(9_000) + "true",
        "'x'".to_owned() + &" + 'x'".repeat(1_500) + " != ''",
    ];
    for (at, expression) in expressions.iter().enumerate() {
        for copy in 0..20 {
            let name = format!("costly-{at}-{copy}");
            let device =
                json!({"deviceClassName": "x.example.com", "selectors": [{"cel": {"expression": expression}}]});
            let claim = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": EVIL},
                "spec": {"devices": {"requests": [{"name": "one", "exactly": device}]}},
            });
            let _ = arena.create(claim).await;
            let mut pod = pod(&name, json!({"cpu": "10m"}));
            pod["spec"]["resourceClaims"] = json!([{"name": "one", "resourceClaimName": name}]);
            pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "one"}]);
            let _ = arena.create(pod).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
}

async fn pods_contradict_themselves(arena: &Arena) {
    let mut node_of_nobody = with_gpus("on-a-node-that-is-not-there", 1);
    node_of_nobody["spec"]["nodeName"] = json!("nosuch");
    let mut gated = with_gpus("gated", 1);
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    gated["metadata"]["labels"]["kai.scheduler/queue"] = json!("default");
    let mut own_anti_affinity = with_gpus("alone", 1);
    own_anti_affinity["metadata"]["labels"]["a"] = json!("b");
    own_anti_affinity["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "x", "operator": "Gt", "values": ["99999999999999999999999"]}]}, {"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}]}}});
    let mut spread = with_gpus("spread", 1);
    spread["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": i32::MAX, "minDomains": i32::MAX, "topologyKey": "x",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, "matchLabelKeys": ["a", "b"]}]);
    let mut priority = with_gpus("priority", 1);
    priority["metadata"]["labels"]["priorityClassName"] = json!("system-node-critical");
    priority["metadata"]["labels"]["kai.scheduler/priority"] = json!("9223372036854775808");
    priority["metadata"]["labels"]["kai.scheduler/preemptibility"] = json!("non-preemptible");
    let mut grouped = with_gpus("grouped", 1);
    grouped["metadata"]["annotations"] = json!({"pod-group-name": "../../team/x", "kai.scheduler/batch-min-member": "-1",
        "kai.scheduler/topology": "nosuch", "kai.scheduler/topology-required-placement": "nosuch"});
    let mut volumes = with_gpus("volumes", 1);
    volumes["spec"]["volumes"] = json!([{"name": "x", "persistentVolumeClaim": {"claimName": "nosuch"}}]);
    let mut named = with_gpus("named", 1);
    named["metadata"]["name"] = json!("n".repeat(253));
    for pod in [
        node_of_nobody,
        gated,
        own_anti_affinity,
        spread,
        priority,
        grouped,
        volumes,
        named,
    ] {
        let _ = arena.create(pod).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    ask_for_more(arena, "odd").await;
}

/// Connects to the webhooks as any pod of the cluster could.
async fn webhooks_are_posted_to(arena: &Arena) {
    let port = arena.webhooks;
    let request = |length: usize, body: &str| {
        let head = "POST /mutate--v1-pod HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length";
        format!("{head}: {length}\r\n\r\n{body}").into_bytes()
    };
    let large = format!("[{}{{}}]", "{\"\":0},".repeat(1_000_000));
    let deep = "[".repeat(1_000_000);
    let sent = [
        (100, request(1_000_000, "{\"half\":")),
        (40, request(large.len(), &large)),
        (10, request(deep.len(), &deep)),
    ];
    let open = tokio::task::spawn_blocking(move || {
        let each = sent
            .iter()
            .flat_map(|(times, bytes)| std::iter::repeat_n(bytes, *times));
        each.filter_map(|bytes| stranger::send(port, bytes)).collect::<Vec<_>>()
    });
    let _open = open.await.expect("sent");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let growth = arena.growth();
    assert!(growth < 200, "{growth} MiB for what a stranger posts");
}
