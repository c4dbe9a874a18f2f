//! The API for people's tools, over HTTP, as users with different rights see it.

mod commands;
mod holds;
mod page;
pub mod people;
mod reviews;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use unikai::api::Queue;
use unikai::operator::settings::Settings;

use crate::support::{Cluster, create, eventually};
use people::{Person, get};

/// A pod of a pod group of its own.
async fn pod(cluster: &Cluster, namespace: &str, name: &str, queue: &str, limits: Value, annotations: Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kai.scheduler/queue": queue}, "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}]},
    });
    create(&cluster.admin, pod).await.unwrap();
}

/// A pod group without pods.
async fn pod_group(cluster: &Cluster, namespace: &str, name: &str, queue: &str) {
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": 1, "queue": queue},
    });
    create(&cluster.admin, group).await.unwrap();
}

/// A cluster of a node with eight GPUs and a queue for each of two tenants, with work that runs and work that waits.
async fn busy_cluster() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.namespace("other", json!({})).await;
    cluster.queue("root", None).await;
    cluster.queue("team", Some("root")).await;
    cluster.queue("other", Some("root")).await;
    cluster.node("n1").await;
    cluster
}

async fn named(person: &Person, path: &str, list: &str, name: &str) -> Option<Value> {
    let answer = get(person, path).await;
    let items = answer[list].as_array().unwrap_or_else(|| panic!("{path}: {answer}"));
    items.iter().find(|item| item["name"] == name).cloned()
}

/// A field of each element of a list.
fn each(list: &Value, field: &str) -> Vec<Value> {
    let elements = list.as_array().unwrap().iter();
    elements.map(|element| element[field].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_nodes_and_workloads_are_shown_with_their_figures() {
    let cluster = busy_cluster().await;
    let running = cluster.ready_operator(Settings::embedded()).await;
    let viewer = Person::who_sees_all(&cluster, &running).await;
    pod(
        &cluster,
        "team",
        "whole",
        "team",
        json!({"nvidia.com/gpu": 5}),
        json!({}),
    )
    .await;
    cluster.bound("team", "whole").await;
    pod(
        &cluster,
        "other",
        "waits",
        "other",
        json!({"nvidia.com/gpu": 4}),
        json!({}),
    )
    .await;

    let waits = eventually("the pod that waits is told why", async || {
        let all = get(&viewer, "/api/v1/workloads?namespace=other").await;
        let waits = all["workloads"].get(0)?.clone();
        (waits["verdict"]["sentence"].is_string() && waits["position"].is_u64()).then_some(waits)
    })
    .await;
    assert_eq!(waits["state"], "Waiting", "{waits}");
    assert_eq!(
        (&waits["queue"], &waits["position"]),
        (&json!("other"), &json!(1)),
        "{waits}"
    );
    assert_eq!(waits["requested"]["gpu"], json!(4.0), "{waits}");
    assert_eq!(waits["pods"]["waiting"], 1, "{waits}");

    let root = named(&viewer, "/api/v1/queues", "queues", "root").await.unwrap();
    assert_eq!(
        (&root["depth"], &root["waiting"], &root["running"]),
        (&json!(0), &json!(1), &json!(1)),
        "{root}"
    );
    assert_eq!(
        (&root["allocated"]["gpu"], &root["requested"]["gpu"]),
        (&json!(5.0), &json!(9.0)),
        "{root}"
    );
    let other = named(&viewer, "/api/v1/queues", "queues", "other").await.unwrap();
    assert_eq!(
        (&other["parent"], &other["depth"]),
        (&json!("root"), &json!(1)),
        "{other}"
    );
    assert_eq!(
        (&other["limit"]["gpu"], &other["fairShare"]["gpu"]),
        (&Value::Null, &json!(4.0)),
        "{other}"
    );

    let node = get(&viewer, "/api/v1/nodes/n1").await;
    let gpus = &node["gpus"];
    assert_eq!((&gpus["total"], &gpus["free"]), (&json!(8.0), &json!(3.0)), "{node}");
    assert_eq!(gpus["users"][0]["pod"], "whole", "{node}");
    assert_eq!((&node["ready"], node.get("cordoned")), (&json!(true), None), "{node}");
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes.patch("n1", &PatchParams::default(), &cordon).await.unwrap();
    eventually("the node is shown as cordoned", async || {
        let node = get(&viewer, "/api/v1/nodes/n1").await;
        (node["cordoned"] == true).then_some(())
    })
    .await;

    let path = format!("/api/v1/workloads/other/{}", waits["name"].as_str().unwrap());
    let details = get(&viewer, &path).await;
    assert_eq!(details["pods"][0]["name"], "waits", "{details}");
    assert_eq!(details["queues"][1]["name"], "root", "{details}");
    assert_eq!(details["timeline"][0]["kind"], "Created", "{details}");
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_its_own_namespace_only() {
    let cluster = busy_cluster().await;
    let running = cluster.ready_operator(Settings::embedded()).await;
    let viewer = Person::who_sees_all(&cluster, &running).await;
    let tenant = Person::of_namespace(&cluster, &running, "team").await;
    let nobody = Person::without_rights(&cluster, &running);
    for namespace in ["team", "other"] {
        pod(
            &cluster,
            namespace,
            "train",
            namespace,
            json!({"nvidia.com/gpu": 2}),
            json!({}),
        )
        .await;
        cluster.bound(namespace, "train").await;
    }
    eventually("both workloads are shown to who may see all", async || {
        (get(&viewer, "/api/v1/workloads").await["total"] == 2).then_some(())
    })
    .await;
    let own = get(&tenant, "/api/v1/workloads").await;
    assert_eq!(each(&own["workloads"], "namespace"), ["team"], "{own}");
    assert_eq!(get(&nobody, "/api/v1/workloads").await["total"], 0);

    let refused = tenant.ask("/api/v1/workloads?namespace=other").await;
    let why = "you need the right to list podgroups.scheduling.run.ai or pods in the namespace other";
    assert_eq!(refused, (403, json!({"error": why})));
    assert_eq!(
        tenant.ask("/api/v1/workloads/other/any").await,
        (403, json!({"error": why}))
    );
    for (path, kind) in [
        ("queues", "queues.scheduling.run.ai"),
        ("nodes", "nodes"),
        ("nodes/n1", "nodes"),
    ] {
        let why = format!("you need the right to list {kind} in the cluster");
        assert_eq!(
            tenant.ask(&format!("/api/v1/{path}")).await,
            (403, json!({"error": why}))
        );
    }

    // Whoever may list nodes, but not all workloads, sees how much others use and not who.
    let keeper = Person::of_nodes_and_namespace(&cluster, &running, "team").await;
    let node = get(&keeper, "/api/v1/nodes/n1").await;
    assert_eq!(node["gpus"]["users"].as_array().unwrap().len(), 1, "{node}");
    assert_eq!(node["gpus"]["users"][0]["namespace"], "team", "{node}");
    assert_eq!(node["gpus"]["usedByOthers"], json!(2.0), "{node}");

    let stranger = Person::unknown(&running);
    for path in ["queues", "nodes", "workloads"] {
        let (status, why) = stranger.ask(&format!("/api/v1/{path}")).await;
        assert_eq!(status, 401, "{path}: {why}");
    }
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_the_queues_of_its_own_workloads_that_accept_its_namespace() {
    let cluster = busy_cluster().await;
    let closed = Patch::Merge(json!({"metadata": {"annotations": {"unikai.dev/allowed-namespaces": "other"}}}));
    let queues: Api<Queue> = Api::all(cluster.admin.clone());
    queues.patch("other", &PatchParams::default(), &closed).await.unwrap();
    let running = cluster.ready_operator(Settings::embedded()).await;
    let tenant = Person::of_namespace(&cluster, &running, "team").await;
    for (queue, shown) in [("team", vec!["team", "root"]), ("other", vec![])] {
        pod_group(&cluster, "team", queue, queue).await;
        let details = eventually("the pod group is known", async || {
            let (status, details) = tenant.ask(&format!("/api/v1/workloads/team/{queue}")).await;
            (status == 200).then_some(details)
        })
        .await;
        assert_eq!(each(&details["queues"], "name"), shown, "{details}");
        let explained = get(&tenant, &format!("/api/v1/explain/podgroups/team/{queue}")).await;
        let stands = explained["evidence"]
            .to_string()
            .contains(&format!("Queue {queue} holds"));
        assert_eq!(stands, !shown.is_empty(), "{explained}");
    }
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lists_come_in_pages() {
    let cluster = busy_cluster().await;
    for number in 2..=5 {
        cluster.node(&format!("n{number}")).await;
    }
    let running = cluster.ready_operator(Settings::embedded()).await;
    let viewer = Person::who_sees_all(&cluster, &running).await;
    let (mut seen, mut path) = (Vec::new(), "/api/v1/nodes?limit=2".to_owned());
    loop {
        let page = get(&viewer, &path).await;
        assert_eq!(page["total"], 5);
        seen.extend(
            page["nodes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|node| node["name"].clone()),
        );
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/nodes?limit=2&after={next}");
    }
    assert_eq!(seen, ["n1", "n2", "n3", "n4", "n5"]);
    let document = get(&viewer, "/api/v1/openapi.json").await;
    assert!(document["paths"]["/api/v1/nodes"]["get"].is_object(), "{document}");
    assert!(
        document["components"]["schemas"]["Node"]["properties"]["gpus"].is_object(),
        "{document}"
    );
    let (status, why) = viewer.ask("/api/v1/nodes?limit=some").await;
    assert_eq!(status, 400, "{why}");
    running.shut_down().await.unwrap();
}
