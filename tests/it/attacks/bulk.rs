//! Attacks by size: much text in fields that are seldom read, and by number: many different things where workloads have few. Each object is one that the
//! API server takes.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};
use unikai::api::PodGroup;

use super::arena::{Arena, EVIL, pod, with_gpus};

/// The length of a text that no ordinary object has, and that the API server accepts.
const LONG: usize = 300_000;
/// Accepted growth of the operator's memory, in MiB.
const HARMLESS: i64 = 100;

/// A text of this length that cannot be compressed.
fn text(length: usize) -> String {
    let parts = std::iter::repeat_with(|| uuid::Uuid::new_v4().simple().to_string());
    let mut text: String = parts.take(length / 32 + 1).collect();
    text.truncate(length);
    text
}

/// The conditions of these pods are short, whatever they are about.
async fn assert_told_briefly(arena: &Arena, prefix: &str) {
    let pods = arena.pods().list(&ListParams::default()).await.expect("pods");
    for pod in pods.iter().filter(|pod| pod.name_any().starts_with(prefix)) {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let longest = conditions
            .filter_map(|condition| condition.message.as_ref())
            .map(String::len)
            .max();
        assert!(
            longest.is_none_or(|longest| longest < 2_000),
            "{longest:?} bytes in a condition of {}",
            pod.name_any()
        );
    }
}

/// Creates pods that differ from a small one in what `change` does, and waits until the operator has handled them.
async fn create_pods(arena: &Arena, name: &str, count: usize, change: impl Fn(usize, &mut Value)) {
    for at in 0..arena.size(count) {
        let mut pod = pod(&format!("{name}-{at}"), json!({"cpu": "10m"}));
        change(at, &mut pod);
        let _ = arena.create(pod).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
}

fn assert_small(arena: &Arena, what: &str) {
    let growth = arena.growth();
    assert!(growth < HARMLESS, "{growth} MiB for {what}");
}

/// Messages about such pods must be short, too.
pub async fn owners_have_endless_names(arena: &Arena) {
    let logged = arena.logged();
    create_pods(arena, "endless", 60, |at, pod| {
        let mut owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": format!("{at}"), "controller": true});
        let field = ["name", "kind", "uid"][at % 3];
        owner[field] = json!(text(LONG));
        pod["metadata"]["ownerReferences"] = json!([owner]);
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_small(arena, "names of owners");
    let logged = arena.logged() - logged;
    assert!(logged < 2 << 20, "{logged} bytes are logged");
    assert_told_briefly(arena, "endless-").await;
}

pub async fn pods_have_thousands_of_owners(arena: &Arena) {
    create_pods(arena, "owned", 60, |at, pod| {
        let owner = |number: usize| json!({"apiVersion": "v1", "kind": "Secret", "name": text(20), "uid": format!("{at}-{number}")});
        pod["metadata"]["ownerReferences"] = (0..3_000).map(owner).collect();
    })
    .await;
    assert_small(arena, "owners of pods");
}

/// Each affinity term is within its limit.
pub async fn selectors_list_all_that_they_may(arena: &Arena) {
    create_pods(arena, "choosy", 60, |_, pod| {
        let term = |_: usize| {
            let values: Vec<String> = (0..250).map(|_| text(32)).collect();
            let selector = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]});
            json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"})
        };
        pod["spec"]["affinity"] = json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": (0..64).map(term).collect::<Vec<_>>()}});
    })
    .await;
    assert_small(arena, "values of affinity terms");
}

/// Each pod is within its limits, and has terms that no other has and that select the pods of everyone.
pub async fn relations_are_about_every_pod(arena: &Arena) {
    create_pods(arena, "nosy", 500, |at, pod| {
        let term = |number: usize| {
            let selector =
                json!({"matchExpressions": [{"key": format!("x-{at}-{number}"), "operator": "DoesNotExist"}]});
            let term =
                json!({"labelSelector": selector, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname"});
            json!({"weight": 1, "podAffinityTerm": term})
        };
        pod["spec"]["affinity"] = json!({"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": (0..64).map(term).collect::<Vec<_>>()}});
    })
    .await;
    assert_small(arena, "relations to all pods");
}

/// Within the limit, and different in each pod.
pub async fn nodes_are_chosen_from_long_lists(arena: &Arena) {
    create_pods(arena, "lists", 30, |_, pod| {
        let values: Vec<String> = (0..5_000).map(|_| text(60)).collect();
        let names =
            json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": values}]});
        pod["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [names]}}});
    })
    .await;
    assert_small(arena, "values of node affinities");
}

pub async fn volumes_say_much(arena: &Arena) {
    create_pods(arena, "volumes", 60, |_, pod| {
        let volume = |number: usize| {
            let attributes: Map<String, Value> = (0..100).map(|_| (text(32), json!(text(32)))).collect();
            let items: Vec<Value> = (0..40).map(|_| json!({"key": text(16), "path": text(16)})).collect();
            match number % 2 {
                0 => {
                    json!({"name": format!("v{number}"), "csi": {"driver": "x.example.com", "volumeAttributes": attributes}})
                }
                _ => json!({"name": format!("v{number}"), "projected": {"sources": [
                    {"secret": {"name": "s", "optional": true, "items": items}}, {"configMap": {"name": "m", "optional": true, "items": items}}]}}),
            }
        };
        pod["spec"]["volumes"] = (0..100).map(volume).collect();
    })
    .await;
    assert_small(arena, "volumes of pods");
}

/// Wrong values are logged and reported in short form.
pub async fn annotations_are_wrong_at_length(arena: &Arena) {
    let logged = arena.logged();
    let mut template = pod("job", json!({"cpu": "10m"}));
    template["spec"]["restartPolicy"] = json!("Never");
    let queue = json!({"kai.scheduler/queue": "greedy"});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "minimum", "namespace": EVIL, "labels": queue, "annotations": {"kai.scheduler/batch-min-member": text(200_000)}},
        "spec": {"parallelism": 60, "completions": 60, "template": {"metadata": {"labels": queue}, "spec": template["spec"]}}});
    let _ = arena.create(job).await;
    for round in 0..4 {
        for at in 0..arena.size(40) {
            let mut wrong = pod(&format!("wrong-{at}"), json!({"cpu": "10m", "nvidia.com/gpu": "8"}));
            wrong["metadata"]["annotations"] = json!({"kai.scheduler/preemption-delay": text(20_000),
                "kai.scheduler/staleness-grace-period": text(20_000), "kai.scheduler/topology": text(20_000)});
            let _ = match round {
                0 => arena.create(wrong).await.map(drop),
                _ => arena
                    .patch(
                        &format!("wrong-{at}"),
                        json!({"metadata": {"labels": {"touched": round.to_string()}}}),
                    )
                    .await
                    .map(drop),
            };
        }
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    let logged = arena.logged() - logged;
    assert!(logged < 2 << 20, "{logged} bytes are logged");
    assert_told_briefly(arena, "minimum").await;
    assert_small(arena, "wrong annotations");
}

pub async fn pod_groups_say_it_at_length(arena: &Arena) {
    let logged = arena.logged();
    for at in 0..arena.size(40) {
        let long = || json!(text(LONG));
        let spec = match at % 4 {
            0 => json!({"minMember": 1, "queue": "greedy", "priorityClassName": long()}),
            1 => json!({"minMember": 1, "queue": long()}),
            2 => {
                json!({"minMember": 1, "queue": "greedy", "topologyConstraint": {"topology": long(), "requiredTopologyLevel": long()}})
            }
            _ => {
                json!({"minMember": 1, "queue": "greedy", "subGroups": [{"name": long(), "minMember": 1}, {"name": "s", "parent": long(), "minMember": 1}]})
            }
        };
        let name = format!("long-{at}");
        let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": EVIL}, "spec": spec});
        let _ = arena.create(group).await;
        let mut member = pod(&name, json!({"cpu": "10m"}));
        member["metadata"]["annotations"] = json!({"pod-group-name": name});
        let _ = arena.create(member).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_small(arena, "fields of pod groups");
    let logged = arena.logged() - logged;
    assert!(logged < 2 << 20, "{logged} bytes are logged");
}

/// No cached result for one pod can be used for another, and none of them fits.
pub async fn every_pod_is_of_another_kind(arena: &Arena) {
    for at in 0..arena.size(500) {
        let mut other = with_gpus(&format!("kind-{at}"), 8);
        other["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!(format!("{}m", 10 + at));
        other["spec"]["containers"][0]["resources"]["limits"][format!("x{at}.example.com/a")] = json!("1");
        other["spec"]["nodeSelector"] = json!({format!("a{at}"): format!("b{at}")});
        other["spec"]["tolerations"] = json!([{"key": format!("t{at}"), "operator": "Exists"}]);
        let _ = arena.create(other).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_small(arena, "kinds of pods");
}

pub async fn pod_groups_with_many_sub_groups_change_all_the_time(arena: &Arena) {
    let subs = |minimum: usize| -> Value {
        (0..1_000)
            .map(|at| json!({"name": format!("s{at}"), "minMember": minimum}))
            .collect()
    };
    let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "large", "namespace": EVIL},
        "spec": {"queue": "greedy", "subGroups": subs(1)}});
    let _ = arena.create(group).await;
    for at in 0..200 {
        let mut member = with_gpus(&format!("member-{at}"), 1);
        member["metadata"]["annotations"] = json!({"pod-group-name": "large"});
        member["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!(format!("s{at}"));
        let _ = arena.create(member).await;
    }
    let groups: Api<PodGroup> = Api::namespaced(arena.tenant.clone(), EVIL);
    for round in 0..50 {
        let changed = Patch::Merge(json!({"spec": {"subGroups": subs(1 + round % 2)}}));
        let _ = groups.patch("large", &PatchParams::default(), &changed).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_small(arena, "a pod group that changes");
}

pub async fn pods_ask_for_thousands_of_resources(arena: &Arena) {
    for at in 0..40 {
        let resources: Map<String, Value> = (0..8_000)
            .map(|name| (format!("x{at}.example.com/r{name}"), json!("1")))
            .collect();
        let _ = arena.create(pod(&format!("names-{at}"), resources.into())).await;
    }
}

pub async fn storms_of_pods_come_and_go(arena: &Arena) {
    for round in 0..5 {
        let pods = (0..60).map(|at| {
            pod(
                &format!("storm-{round}-{at}"),
                json!({"cpu": "1m", "nvidia.com/gpu": "8"}),
            )
        });
        futures::future::join_all(pods.map(|pod| async { drop(arena.create(pod).await) })).await;
        let _ = arena
            .pods()
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await;
    }
}
