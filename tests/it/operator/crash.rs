//! The process is killed, suspended, or hands over; nothing is lost and nothing is done twice.

use std::time::{Duration, Instant};

use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, QUICK_LEASE, eventually, pod};

fn gpu_nodes(count: usize) -> Vec<NodeSpec> {
    (0..count).map(|i| NodeSpec::gpu(format!("gpu-{i}"), 8)).collect()
}

async fn create_pods(lab: &Lab, prefix: &str, count: usize, gpus: u32) {
    for first in (0..count).step_by(50) {
        let batch = (first..count.min(first + 50)).map(|i| lab.create(pod(&format!("{prefix}-{i}"), gpus)));
        for created in futures::future::join_all(batch).await {
            created.unwrap();
        }
    }
}

fn bindings(lab: &Lab) -> usize {
    lab.server
        .audit()
        .writes()
        .iter()
        .filter(|w| w.subresource == "binding" && w.code == 201)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_binds_all_pods_are_bound_once() {
    let lab = Lab::start(gpu_nodes(63)).await;
    let mut first = lab.replica_with("first", QUICK_LEASE).await;
    first.leads().await;
    // Bindings take their time, so that all pods exist and the kill falls among their bindings.
    lab.server
        .faults()
        .add(Match::bindings(), Effect::Delay(Duration::from_secs(2)), Times::Always);
    create_pods(&lab, "load", 500, 1).await;
    eventually("binding is under way", async || {
        let bound = bindings(&lab);
        (bound >= 10).then_some(()).ok_or_else(|| format!("{bound} bound"))
    })
    .await;
    first.kill();
    let bound = bindings(&lab);
    assert!(bound < 500, "all were bound before the kill");
    lab.server.faults().clear();

    let second = lab.replica_with("second", QUICK_LEASE).await;
    lab.running(500).await;
    lab.assert_safe().await;
    second.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sigterm_the_lease_is_released_at_once() {
    let lab = Lab::start(gpu_nodes(2)).await;
    let mut first = lab.replica("first").await;
    first.leads().await;
    let second = lab.replica("second").await;

    first.signal("TERM");
    let asked = Instant::now();
    first.ends_well().await;
    second.leads().await;
    let took = asked.elapsed();
    lab.create_after_handover(pod("after", 1)).await;
    lab.runs("after").await;
    assert!(took < Duration::from_secs(5), "{took:?}, though the lease lasts 15 s");
    first.assert_no_errors();
    second.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_the_other_replica_leads_when_the_lease_expires() {
    let lab = Lab::start(gpu_nodes(2)).await;
    let mut first = lab.replica_with("first", QUICK_LEASE).await;
    first.leads().await;
    let second = lab.replica_with("second", QUICK_LEASE).await;
    first.kill();
    second.leads().await;
    lab.create_after_handover(pod("after", 1)).await;
    lab.runs("after").await;
    second.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_paused_beyond_its_lease_writes_nothing() {
    let lab = Lab::start(gpu_nodes(8)).await;
    let sleeper = lab.replica_with("sleeper", QUICK_LEASE).await;
    sleeper.leads().await;
    let other = lab.replica_with("other", QUICK_LEASE).await;
    lab.server.faults().add(
        Match::bindings(),
        Effect::Delay(Duration::from_millis(100)),
        Times::Always,
    );
    create_pods(&lab, "load", 60, 1).await;
    eventually("binding is under way", async || {
        let bound = bindings(&lab);
        (bound >= 2).then_some(()).ok_or_else(|| format!("{bound} bound"))
    })
    .await;
    sleeper.signal("STOP");
    lab.server.faults().clear();
    other.leads().await;
    lab.running(60).await;
    // Requests that the suspended process had sent before may hang in its own webhooks, which are suspended, too, until their calls time out
    // (10 s). From here on the process must not write.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let before = lab.writes_of(&sleeper).len();
    sleeper.signal("CONT");
    for i in 0..4 {
        lab.create_after_handover(pod(&format!("later-{i}"), 1)).await;
    }
    lab.running(64).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = lab.writes_of(&sleeper);
    assert_eq!(writes.len(), before, "{:#?}", &writes[before.min(writes.len())..]);
    lab.assert_safe().await;
}
