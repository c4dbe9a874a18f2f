//! Leader election and hand-over; replicas that do not lead write nothing.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{Effect, Identity, Match, Times};
use unikai::operator::Running;
use unikai::operator::settings::Settings;

use crate::support::{Cluster, eventually, ready};

/// Settings of a replica, with times that a test can wait for.
fn replica(identity: &str) -> Settings {
    let mut settings = Settings::embedded();
    settings.lease.identity = identity.to_owned();
    settings.lease.duration = Duration::from_secs(3);
    settings.lease.renew_deadline = Duration::from_millis(1500);
    settings.lease.retry_period = Duration::from_millis(300);
    settings
}

async fn leads(running: &Running) {
    let mut election = running.election.clone();
    tokio::time::timeout(Duration::from_secs(20), election.wait_for(|status| status.leading))
        .await
        .expect("it leads in time")
        .unwrap();
}

async fn page(running: &Running, path: &str) -> (u16, String) {
    page_for(running, path, None).await
}

/// The state page, requested with a token.
async fn page_for(running: &Running, path: &str, token: Option<&str>) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(running.http).await.unwrap();
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_graceful_shutdown_the_other_replica_binds_within_a_second() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let first = cluster.ready_operator(replica("first")).await;
    leads(&first).await;
    let second = cluster.ready_operator(replica("second")).await;
    assert!(!second.election.borrow().leading);

    let since = Instant::now();
    first.shut_down().await.expect("it ends in good order");
    leads(&second).await;
    let handed_over = since.elapsed();
    // The webhooks were registered at the first one's address.
    eventually("the second one's webhooks are registered", async || {
        cluster.pod("team", "after", json!({})).await.ok()
    })
    .await;
    cluster.bound("team", "after").await;

    // The lease had three seconds to run; only a hand-over is faster.
    assert!(handed_over < Duration::from_secs(1), "{handed_over:?}");
    let lease = Api::<Lease>::namespaced(cluster.admin.clone(), "kai-scheduler")
        .get("kai-scheduler")
        .await
        .unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("second"), Some(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_the_other_replica_leads_once_the_lease_has_expired() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let first = cluster.ready_operator(replica("first")).await;
    leads(&first).await;
    let second = cluster.ready_operator(replica("second")).await;
    let since = Instant::now();
    drop(first);
    leads(&second).await;
    assert!(
        since.elapsed() > Duration::from_secs(1),
        "nobody takes a lease that still runs: {:?}",
        since.elapsed()
    );
    // The webhooks were registered at the first one's address.
    eventually("the second one's webhooks are registered", async || {
        cluster.pod("team", "after", json!({})).await.ok()
    })
    .await;
    cluster.bound("team", "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_renew_stops_writing_before_another_may_begin() {
    let cluster = Cluster::start().await;
    let only = cluster.ready_operator(replica("only")).await;
    leads(&only).await;
    let cut = cluster.server.faults().add(
        Match::verb_on("update", "leases"),
        Effect::Refuse {
            code: 503,
            retry_after: None,
        },
        Times::Always,
    );
    let mut election = only.election.clone();
    tokio::time::timeout(Duration::from_secs(20), election.wait_for(|status| !status.leading))
        .await
        .unwrap()
        .unwrap();

    cluster.node("n1").await;
    cluster.pod("team", "meanwhile", json!({})).await.unwrap();
    cluster.server.faults().remove(cut);
    leads(&only).await;
    assert_eq!(cluster.bound("team", "meanwhile").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_loses_the_lease_stops_leading_at_once() {
    let cluster = Cluster::start().await;
    let only = cluster.ready_operator(replica("only")).await;
    leads(&only).await;
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), "kai-scheduler");
    let stolen = Patch::Merge(json!({"spec": {"holderIdentity": "thief", "leaseTransitions": 7}}));
    leases
        .patch("kai-scheduler", &PatchParams::default(), &stolen)
        .await
        .unwrap();
    let mut election = only.election.clone();
    let down = election.wait_for(|status| !status.leading && status.holder.as_deref() == Some("thief"));
    tokio::time::timeout(Duration::from_secs(20), down)
        .await
        .unwrap()
        .unwrap();
    leads(&only).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_ready_and_writes_nothing() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let first = cluster.ready_operator(replica("first")).await;
    leads(&first).await;
    let other = Identity::service_account("kai-scheduler", "standby");
    let second = unikai::operator::Operator::start(&cluster.config(&other).await, replica("second"))
        .await
        .unwrap();
    ready(&second).await;
    cluster.pod("team", "a", json!({})).await.unwrap();
    cluster.bound("team", "a").await;
    assert_eq!(cluster.server.audit().writes_of(&other), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn readyz_and_state_show_missing_kinds_and_the_leader() {
    let cluster = Cluster::start().await;
    let running = cluster.operator(replica("only")).await;
    assert_eq!(page(&running, "/healthz").await, (200, "ok\n".to_owned()));
    ready(&running).await;
    leads(&running).await;
    let (status, body) = page(&running, "/readyz").await;
    assert_eq!((status, body.as_str()), (200, r#"{"ready":true,"waiting":[]}"#));
    let admin = cluster.server.token(&Identity::admin());
    let state = async || -> Value {
        let (status, body) = page_for(&running, "/state", Some(&admin)).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(
        state().await["election"],
        json!({"identity": "only", "leading": true, "holder": "only", "transitions": 0})
    );
    eventually("the default queues are seen", async || {
        (state().await["objects"]["queues"] == 2).then_some(())
    })
    .await;
    assert_eq!(page(&running, "/metrics").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_about_the_cluster_require_a_role() {
    let cluster = Cluster::start().await;
    let open = cluster.ready_operator(replica("open")).await;
    let mut settings = replica("closed");
    settings.protect_metrics = true;
    let closed = cluster.operator(settings).await;
    let user = |name: &str| {
        let identity = Identity::service_account("team", name);
        cluster.server.rbac().hold(&identity);
        cluster.server.token(&identity)
    };
    let (reader, tenant) = (user("reader"), user("tenant"));
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "unikai-viewer"}, "rules": [{"nonResourceURLs": ["/state", "/metrics"], "verbs": ["get"]}],
    }))
    .unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "viewers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "unikai-viewer"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "team", "name": "reader"}],
    }))
    .unwrap();
    let params = PostParams::default();
    Api::all(cluster.admin.clone()).create(&params, &role).await.unwrap();
    Api::all(cluster.admin.clone()).create(&params, &binding).await.unwrap();

    let codes = async |running: &Running, path: &str| {
        let mut codes = Vec::new();
        for token in [None, Some("made-up"), Some(&*tenant), Some(&*reader)] {
            codes.push(page_for(running, path, token).await.0);
        }
        codes
    };
    assert_eq!(codes(&open, "/state").await, [401, 401, 403, 200]);
    assert_eq!(codes(&open, "/metrics").await, [200; 4]);
    assert_eq!(codes(&open, "/readyz").await, [200; 4]);
    assert_eq!(codes(&closed, "/metrics").await, [401, 401, 403, 200]);
    assert_eq!(codes(&closed, "/healthz").await, [200; 4]);

    // Answers are cached, so that frequent readers cost the API server little. While it does not answer, no new caller is admitted.
    let silent = Effect::Refuse {
        code: 503,
        retry_after: None,
    };
    let faults = cluster.server.faults();
    faults.add(Match::verb_on("create", "tokenreviews"), silent, Times::Always);
    assert_eq!(page_for(&open, "/state", Some(&reader)).await.0, 200);
    assert_eq!(page_for(&open, "/state", Some("another")).await.0, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_connections_do_not_block_probes() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::start().await;
    let running = cluster.operator(replica("only")).await;
    let mut held = Vec::new();
    for _ in 0..unikai::api::limits::WEBHOOK_CONNECTIONS + 50 {
        let mut stream = tokio::net::TcpStream::connect(running.http).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.unwrap();
        held.push(stream);
    }
    assert_eq!(page(&running, "/healthz").await.0, 200);
    let mut nothing = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(5), held[0].read_to_end(&mut nothing)).await;
    assert!(closed.is_ok(), "the first makes room for the last");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_crds_the_operator_waits_and_reports_it() {
    use unikai::devcluster::apiserver::{ApiServer, Options};
    let server = ApiServer::start(Options::default()).await.unwrap();
    let admin = server.client(&Identity::admin()).await.unwrap();
    let cluster = Cluster { server, admin };
    cluster.namespace("kai-scheduler", json!({})).await;
    let running = cluster.operator(replica("only")).await;
    let reason = eventually("the missing kind is named", async || {
        let waiting = running.waiting();
        waiting
            .into_iter()
            .find(|(name, reason)| name == "watch-queues" && reason.contains("CRD"))
            .map(|(_, reason)| reason)
    })
    .await;
    assert_eq!(
        reason,
        "the API server does not know this kind: its CRD is not installed"
    );
    assert_eq!(page(&running, "/readyz").await.0, 503);
}

/// A pod that wants all GPUs of a node; with a node, it is there already, and another scheduler's.
async fn whole_node(cluster: &Cluster, name: &str, node: Option<&str>) {
    let scheduler = if node.is_some() { "another" } else { "kai-scheduler" };
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler, "nodeName": node,
            "containers": [{"name": "main", "image": "ubuntu", "resources": {
                "requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}}],
        },
    }));
    let pods = cluster.pods("team");
    pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
}

/// Waits until a pod says why it waits.
async fn waits(cluster: &Cluster, name: &str) {
    eventually(&format!("{name} says why it waits"), async || {
        let conditions = cluster.pods("team").get(name).await.ok()?.status?.conditions?;
        let waits =
            |condition: &k8s_openapi::api::core::v1::PodCondition| condition.reason.as_deref() == Some("Unschedulable");
        conditions.iter().any(waits).then_some(())
    })
    .await;
}

async fn node_of(cluster: &Cluster, name: &str) -> Option<String> {
    cluster.pods("team").get(name).await.unwrap().spec.unwrap().node_name
}

/// Its watch of pods stalled before the last Binding of the previous leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_decides_nothing_on_stale_watches() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let settings = |name: &str| {
        let mut settings = replica(name);
        // The watch would notice much later than the test ends.
        settings.common.components.watch_timeout = 290;
        settings.timeouts.watch = Duration::from_secs(290);
        settings.common.admission.queue_labels = unikai::components::admission::QueueLabels::Off;
        settings
    };
    let first = cluster.ready_operator(settings("first")).await;
    leads(&first).await;
    let other = Identity::service_account("kai-scheduler", "standby");
    let second = unikai::operator::Operator::start(&cluster.config(&other).await, settings("second"))
        .await
        .unwrap();
    ready(&second).await;
    cluster.server.faults().silence_watches(Match {
        user: Some(other.user.clone()),
        ..Match::verb_on("watch", "pods")
    });
    whole_node(&cluster, "first", None).await;
    assert_eq!(cluster.bound("team", "first").await, "n1");
    first.shut_down().await.unwrap();
    leads(&second).await;
    whole_node(&cluster, "second", None).await;
    waits(&cluster, "second").await;
    assert_eq!(node_of(&cluster, "second").await, None, "the node is taken");
}

/// A Binding of one term is delayed by `Retry-After` until this process leads again; meanwhile another has led.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_of_one_term_are_not_executed_in_the_next() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let only = cluster.ready_operator(replica("only")).await;
    leads(&only).await;
    let faults = cluster.server.faults();
    let refused = Effect::Refuse {
        code: 503,
        retry_after: Some(6),
    };
    let refused = faults.add(Match::bindings(), refused, Times::Next(1));
    whole_node(&cluster, "old", None).await;
    eventually("the binding is refused", async || {
        (faults.struck(refused) == 1).then_some(())
    })
    .await;
    let since = Instant::now();
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), "kai-scheduler");
    let stolen = json!({"spec": {"holderIdentity": "thief", "leaseTransitions": 7, "leaseDurationSeconds": 1}});
    leases
        .patch("kai-scheduler", &PatchParams::default(), &Patch::Merge(stolen))
        .await
        .unwrap();
    let mut election = only.election.clone();
    let down = election.wait_for(|status| !status.leading);
    tokio::time::timeout(Duration::from_secs(20), down)
        .await
        .unwrap()
        .unwrap();
    whole_node(&cluster, "of-the-thief", Some("n1")).await;
    leads(&only).await;
    assert!(
        since.elapsed() < Duration::from_secs(6),
        "it leads again before the binding is tried again"
    );
    waits(&cluster, "old").await;
    tokio::time::sleep(Duration::from_secs(7).saturating_sub(since.elapsed())).await;
    assert_eq!(node_of(&cluster, "old").await, None, "the node is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_with_the_same_identity_only_one_leads() {
    let cluster = Cluster::start().await;
    let only = cluster.ready_operator(replica("only")).await;
    leads(&only).await;
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), "kai-scheduler");
    let mut election = only.election.clone();
    // As another process of the same name would take it that saw this one suspended.
    let taken = json!({"spec": {"leaseTransitions": 1, "acquireTime": "2026-01-01T00:00:00.000001Z"}});
    leases
        .patch("kai-scheduler", &PatchParams::default(), &Patch::Merge(taken))
        .await
        .unwrap();
    let down = election.wait_for(|status| !status.leading);
    tokio::time::timeout(Duration::from_secs(20), down)
        .await
        .unwrap()
        .unwrap();
    // It is dead, too, after all.
    leads(&only).await;
    assert!(only.election.borrow().transitions > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_scheduler_is_stuck_releases_the_lease_and_exits() {
    let cluster = Cluster::start().await;
    let only = cluster.ready_operator(replica("only")).await;
    leads(&only).await;
    let heartbeat = only.heartbeat.clone();
    let stuck = tokio::spawn(async move {
        loop {
            // The thread itself is well, and may have something to do now and then.
            if heartbeat.busy_for().is_zero() {
                heartbeat.work();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut election = only.election.clone();
    let down = election.wait_for(|status| !status.leading);
    tokio::time::timeout(Duration::from_secs(30), down)
        .await
        .unwrap()
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), only.ended())
        .await
        .expect("it ends");
    let why = format!("{:#}", ended.unwrap_err());
    assert!(why.contains("the scheduler has been stuck"), "{why}");
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), "kai-scheduler");
    let lease = leases.get("kai-scheduler").await.unwrap();
    assert_eq!(
        unikai::operator::lease::holder(&lease),
        None,
        "another may lead at once"
    );
    stuck.abort();
}
