//! Node pools with shards of their own: each is led by one replica at a time, and replicas divide them between them.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, QUICK_LEASE, TEAM, eventually, gang, pod};

const LABEL: &str = "kai.scheduler/node-pool";
const POOLS: [&str; 3] = ["blue", "green", "red"];

/// A cluster with a node of 8 GPUs, a queue and a shard for each node pool and for the default one.
async fn lab() -> Lab {
    let pools = POOLS.iter().map(|pool| NodeSpec::gpu(format!("{pool}-1"), 8));
    let lab = Lab::start(pools.chain([NodeSpec::gpu("default-1", 8)]).collect()).await;
    lab.create(shard("default", "")).await.unwrap();
    for pool in POOLS {
        let labels = json!({"metadata": {"labels": {LABEL: pool}}});
        lab.patch_node(&format!("{pool}-1"), labels).await;
        let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        for (name, parent) in [
            (format!("{pool}-all"), None),
            (pool.to_owned(), Some(format!("{pool}-all"))),
        ] {
            let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
                "metadata": {"name": name, "labels": {LABEL: pool}},
                "spec": {"parentQueue": parent, "resources": {"cpu": open, "gpu": open, "memory": open}}});
            lab.create(queue).await.unwrap();
        }
        // The Lease has the name of the pool.
        lab.create(shard(&format!("shard-of-{pool}"), pool)).await.unwrap();
    }
    lab
}

fn shard(name: &str, pool: &str) -> Value {
    json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name},
        "spec": {"partitionLabelValue": pool}})
}

/// A pod of a node pool, or of the default one.
fn pod_of(pool: &str, name: &str, gpus: u32) -> Value {
    let mut pod = pod(name, gpus);
    if pool != "default" {
        pod["metadata"]["labels"] = json!({"kai.scheduler/queue": pool, LABEL: pool});
    }
    pod
}

/// Who holds the Leases of the cluster and of the shards.
async fn holders(lab: &Lab) -> BTreeMap<String, String> {
    let api: Api<Lease> = Api::namespaced(lab.client.clone(), "kai-scheduler");
    let leases = api.list(&ListParams::default()).await.expect("leases").items;
    let held = leases.iter().filter_map(|lease| {
        let holder = unikai::operator::lease::holder(lease)?.to_owned();
        Some((lease.name_any(), holder)).filter(|(name, _)| !name.contains("replica"))
    });
    held.collect()
}

/// Waits until every Lease is held by one of these replicas, and none has more than its part; by name of the Lease.
async fn divided(lab: &Lab, replicas: &[&str]) -> BTreeMap<String, String> {
    let most = (POOLS.len() + 1).div_ceil(replicas.len());
    eventually(&format!("shards are divided between {replicas:?}"), async || {
        let held = holders(lab).await;
        let leads = |replica: &str| held.values().filter(|holder| *holder == replica).count();
        let fair = replicas.iter().all(|replica| leads(replica) <= most);
        let known = held.values().all(|holder| replicas.contains(&holder.as_str()));
        (held.len() == POOLS.len() + 1 && fair && known)
            .then_some(held.clone())
            .ok_or_else(|| format!("{held:?}"))
    })
    .await
}

/// A pod of every pool runs on a node of its pool.
async fn every_pool_works(lab: &Lab, round: &str) {
    for pool in POOLS.iter().copied().chain(["default"]) {
        lab.create_after_handover(pod_of(pool, &format!("{pool}-{round}"), 1))
            .await;
    }
    for pool in POOLS.iter().copied().chain(["default"]) {
        assert_eq!(lab.runs(&format!("{pool}-{round}")).await, format!("{pool}-1"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_lead_four_shards_and_take_over_those_of_a_stopped_crashed_or_paused_one() {
    let lab = lab().await;
    let mut replicas = BTreeMap::new();
    for name in ["one", "two", "three"] {
        replicas.insert(name, lab.replica_with(name, QUICK_LEASE).await);
    }
    let held = divided(&lab, &["one", "two", "three"]).await;
    every_pool_works(&lab, "first").await;

    // One ends in good order: the others divide what it led.
    let ends = held["kai-scheduler-blue"].clone();
    let mut replica = replicas.remove(ends.as_str()).expect("a replica");
    replica.signal("TERM");
    replica.ends_well().await;
    let left: Vec<&str> = replicas.keys().copied().collect();
    let held = divided(&lab, &left).await;
    every_pool_works(&lab, "second").await;

    // One sleeps past its Leases: it writes nothing when it wakes up.
    let sleeps = held["kai-scheduler-red"].clone();
    let sleeper = replicas.remove(sleeps.as_str()).expect("a replica");
    sleeper.signal("STOP");
    let stays = *replicas.keys().next().expect("one is left");
    divided(&lab, &[stays]).await;
    every_pool_works(&lab, "third").await;
    let before = lab.writes_of(&sleeper);
    sleeper.signal("CONT");
    let both = [stays, sleeps.as_str()];
    divided(&lab, &both).await;
    let since: Vec<_> = lab.writes_of(&sleeper).into_iter().skip(before.len()).collect();
    assert!(since.iter().all(|write| !write.contains("/binding")), "{since:#?}");

    // One dies.
    let mut other = replicas.remove(stays).expect("a replica");
    other.kill();
    divided(&lab, &[sleeps.as_str()]).await;
    every_pool_works(&lab, "fourth").await;
    lab.assert_safe().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_replica_gets_its_part_of_the_shards_including_shared_gpus() {
    let lab = lab().await;
    let sharing = [QUICK_LEASE, &["--gpu-sharing", "true"]].concat();
    let one = lab.replica_with("one", &sharing).await;
    divided(&lab, &["one"]).await;
    let half = |pool: &str, name: &str| {
        let mut pod = pod_of(pool, name, 0);
        pod["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"});
        pod
    };
    for pool in POOLS {
        lab.create(half(pool, &format!("{pool}-a"))).await.unwrap();
        lab.runs(&format!("{pool}-a")).await;
    }
    let mut two = lab.replica_with("two", &sharing).await;
    divided(&lab, &["one", "two"]).await;
    for pool in POOLS {
        lab.create_after_handover(half(pool, &format!("{pool}-b"))).await;
        assert_eq!(lab.runs(&format!("{pool}-b")).await, format!("{pool}-1"));
    }
    let group = async |name: &str| {
        let pod = lab.pods().get(name).await.expect("a pod");
        pod.labels().get("runai-gpu-group").cloned().expect("a GPU group")
    };
    for pool in POOLS {
        assert_eq!(
            group(&format!("{pool}-a")).await,
            group(&format!("{pool}-b")).await,
            "{pool}: the GPU is shared\n{}\n{}",
            one.log(),
            two.log()
        );
    }
    two.signal("TERM");
    two.ends_well().await;
    divided(&lab, &["one"]).await;
    // Reservations are deleted with their users, whichever replica created them.
    for pool in POOLS {
        lab.delete_pod(&format!("{pool}-a")).await;
        lab.delete_pod(&format!("{pool}-b")).await;
    }
    let reservations: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(lab.client.clone(), "kai-resource-reservation");
    eventually("no reservation is left", async || {
        let left = reservations
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        let left: Vec<_> = left.items.iter().map(ResourceExt::name_any).collect();
        let log = || format!("{left:?}\n{}", one.log());
        left.is_empty().then_some(()).ok_or_else(log)
    })
    .await;
    one.assert_no_errors();
}

/// As of a new version whose rights were not granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_cannot_list_everything_takes_nothing_from_another() {
    let lab = lab().await;
    let _one = lab.replica_with("one", QUICK_LEASE).await;
    let before = divided(&lab, &["one"]).await;
    let forbidden = Effect::Refuse {
        code: 403,
        retry_after: None,
    };
    let lists = Match::verb_on("list", "queues");
    let forbidden = lab.server.faults().add(lists, forbidden, Times::Always);
    let two = lab.spawn("two", QUICK_LEASE);
    eventually("the second one may not list queues", async || {
        let page = two.get("/readyz").await.map_err(|error| error.to_string())?;
        let waits = page.contains("the API server does not allow us to list this kind");
        waits.then_some(()).ok_or(page)
    })
    .await;
    // It would have passed on the first Lease after a second.
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        assert_eq!(holders(&lab).await, before);
    }
    lab.server.faults().remove(forbidden);
    two.ready().await;
    divided(&lab, &["one", "two"]).await;
    every_pool_works(&lab, "together").await;
    lab.assert_safe().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_serve_one_node_pool_each_keep_their_leases() {
    let lab = lab().await;
    let mut processes = Vec::new();
    for pool in POOLS {
        let flags = [QUICK_LEASE, &["--node-pool", pool]].concat();
        processes.push(lab.replica_with(pool, &flags).await);
    }
    let own = async || {
        let held = holders(&lab).await;
        let own = POOLS.iter().filter(|pool| {
            let mut leases = held.iter();
            leases.any(|(name, holder)| name.ends_with(*pool) && holder == *pool)
        });
        (own.count() == POOLS.len())
            .then_some(())
            .ok_or_else(|| format!("{held:?}"))
    };
    eventually("each leads its pool", own).await;
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        own().await.expect("none is passed on");
    }
    for pool in POOLS {
        lab.create_after_handover(pod_of(pool, &format!("{pool}-pod"), 1)).await;
        assert_eq!(lab.runs(&format!("{pool}-pod")).await, format!("{pool}-1"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_the_label_of_their_pool_and_pools_without_a_shard_are_reported() {
    let lab = lab().await;
    // These are created while no replica leads.
    lab.patch_node("default-1", json!({"metadata": {"labels": {LABEL: "violet"}}}))
        .await;
    let mut early = pod("early", 1);
    early["metadata"]["labels"][LABEL] = json!("violet");
    lab.create(early).await.unwrap();
    let operator = lab.replica_with("one", QUICK_LEASE).await;
    divided(&lab, &["one"]).await;
    let mut job = gang("train", 2, 1);
    job["metadata"]["labels"] = json!({"kai.scheduler/queue": "blue", LABEL: "blue"});
    job["spec"]["template"]["metadata"]["labels"] = json!({"kai.scheduler/queue": "blue"});
    lab.create(job).await.unwrap();
    lab.running(2).await;
    let bound = lab.all_pods().await.into_iter().filter(|pod| pod.name_any() != "early");
    for pod in bound {
        assert_eq!(
            pod.labels().get(LABEL).map(String::as_str),
            Some("blue"),
            "{}",
            pod.name_any()
        );
        assert_eq!(pod.spec.unwrap_or_default().node_name.as_deref(), Some("blue-1"));
    }

    let mut lost = pod("lost", 1);
    lost["metadata"]["labels"][LABEL] = json!("violet");
    lab.create(lost).await.unwrap();
    let says = lab.says("lost", "NoShardForNodePool").await;
    assert_eq!(
        says,
        "No SchedulingShard schedules the node pool 'violet'; create one with partitionLabelValue 'violet' or change the label kai.scheduler/node-pool"
    );
    assert_eq!(lab.says("early", "NoShardForNodePool").await, says);
    let of = |namespace: &str| Api::<Event>::namespaced(lab.client.clone(), namespace);
    let told = [
        (TEAM, "Pod", Some("lost")),
        (TEAM, "Pod", Some("early")),
        (TEAM, "PodGroup", None),
        ("default", "Node", Some("default-1")),
    ];
    for (namespace, kind, name) in told {
        eventually(&format!("an event on the {kind} {name:?}"), async || {
            let all = of(namespace).list(&ListParams::default()).await;
            let all = all.map_err(|e| e.to_string())?.items;
            let about = all.iter().filter(|event| {
                let about = &event.involved_object;
                event.reason.as_deref() == Some("NoShardForNodePool")
                    && about.kind.as_deref() == Some(kind)
                    && name.is_none_or(|name| about.name.as_deref() == Some(name))
            });
            match about.collect::<Vec<_>>().as_slice() {
                [] => Err(format!("{} events", all.len())),
                [event, ..] => event
                    .involved_object
                    .uid
                    .clone()
                    .ok_or_else(|| "the event is about no object".to_owned()),
            }
        })
        .await;
    }
    let state = operator.get("/state").await.unwrap();
    let state: Value = serde_json::from_str(state.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(state["nodesWithoutShard"], json!({"violet": 1}), "{state}");
    // A shard for the pool is all that it lacks.
    lab.create(shard("violet", "violet")).await.unwrap();
    eventually("the queue of another pool is what keeps it now", async || {
        let says = lab.unschedulable("lost").await;
        says.starts_with("Queue test is of node pool default and takes no work of node pool violet")
            .then_some(())
            .ok_or(says)
    })
    .await;
    operator.assert_no_errors();
}
