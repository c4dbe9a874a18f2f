//! Who leads, how that passes on, and what the others do meanwhile: nothing that writes.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(running.http).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_is_told_to_end_the_other_binds_within_a_second() {
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
async fn when_the_leader_dies_the_other_leads_once_the_lease_has_run_out() {
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
async fn whoever_loses_the_lease_to_another_steps_down_at_once() {
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
async fn the_pages_say_what_is_missing_and_who_leads() {
    let cluster = Cluster::start().await;
    let running = cluster.operator(replica("only")).await;
    assert_eq!(page(&running, "/healthz").await, (200, "ok\n".to_owned()));
    ready(&running).await;
    leads(&running).await;
    let (status, body) = page(&running, "/readyz").await;
    assert_eq!((status, body.as_str()), (200, r#"{"ready":true,"waiting":[]}"#));
    let state: Value = serde_json::from_str(&page(&running, "/state").await.1).unwrap();
    assert_eq!(
        state["election"],
        json!({"identity": "only", "leading": true, "holder": "only", "transitions": 0})
    );
    eventually("the default queues are seen", async || {
        let state: Value = serde_json::from_str(&page(&running, "/state").await.1).unwrap();
        (state["objects"]["queues"] == 2).then_some(())
    })
    .await;
    assert_eq!(page(&running, "/metrics").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_crds_it_waits_and_says_so() {
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
