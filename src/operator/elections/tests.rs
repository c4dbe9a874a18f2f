//! Several replicas on an API server in this process, on virtual time.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::devcluster::apiserver::in_process::InProcess;
use crate::devcluster::apiserver::{Effect, Identity, Match, Options, RuleId, Times};
use crate::operator::client::{self, Reach, Timeouts};
use crate::operator::lease::holder;

const POOLS: [&str; 3] = ["blue", "green", "red"];
/// Longer than requests take, shorter than any wait of an election.
const MOMENT: Duration = Duration::from_millis(100);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn params(identity: &str) -> Params {
    Params {
        namespace: "kai-scheduler".to_owned(),
        name: "kai-scheduler".to_owned(),
        identity: identity.to_owned(),
        duration: seconds(15),
        renew_deadline: seconds(10),
        retry_period: seconds(2),
    }
}

/// An API server with the namespace of the Leases.
struct Lab {
    server: InProcess,
    leases: Api<Lease>,
}

/// A replica, with a shard for each pool.
struct Replica {
    shards: watch::Sender<Shards>,
    run: JoinHandle<anyhow::Result<()>>,
}

impl Replica {
    fn has_listed(&self) {
        self.shards.send_modify(|shards| shards.listed = true);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.run.abort();
    }
}

impl Lab {
    async fn start() -> Self {
        let server = InProcess::start(Options::default()).await.expect("an API server");
        let admin = server.client(&Identity::admin());
        let namespace = json!({"metadata": {"name": "kai-scheduler"}});
        Api::<Namespace>::all(admin.clone())
            .create(&PostParams::default(), &serde_json::from_value(namespace).unwrap())
            .await
            .unwrap();
        Self {
            leases: Api::namespaced(admin, "kai-scheduler"),
            server,
        }
    }

    fn clients(&self, name: &str) -> Clients {
        let identity = Identity {
            user: name.to_owned(),
            ..Identity::admin()
        };
        let timeouts = Timeouts {
            request: seconds(10),
            watch: seconds(290),
        };
        let reach = Reach::InProcess(self.server.service(&identity));
        client::connect(reach, timeouts, params(name).request_timeout()).expect("clients")
    }

    fn replica(&self, name: &str, listed: bool) -> Replica {
        let by_pool: [(Arc<str>, String); 3] = POOLS.map(|pool| (pool.into(), format!("shard-of-{pool}")));
        let shards = watch::Sender::new(Shards {
            by_pool: BTreeMap::from(by_pool),
            listed,
        });
        let (clients, known) = (self.clients(name), shards.subscribe());
        let elections = Elections::new(&clients, params(name), 290, Heartbeat::default(), known, true);
        Replica {
            shards,
            run: tokio::spawn(elections.run(CancellationToken::new())),
        }
    }

    /// The Leases of replicas, or those of the cluster and of shards.
    async fn leases(&self, of_replicas: bool) -> Vec<Lease> {
        let mut all = self.leases.list(&ListParams::default()).await.unwrap().items;
        all.retain(|lease| lease.name_any().contains("-replica-") == of_replicas);
        all
    }

    /// How many Leases of the cluster and of shards the replica holds.
    async fn held_by(&self, name: &str) -> usize {
        let all = self.leases(false).await;
        all.iter().filter(|lease| holder(lease) == Some(name)).count()
    }

    /// The heartbeat of the only replica.
    async fn heartbeat(&self) -> Lease {
        self.leases(true).await.pop().expect("a heartbeat")
    }

    fn fault(&self, verb: &str, effect: Effect) -> RuleId {
        let faults = self.server.faults();
        faults.add(Match::verb_on(verb, "leases"), effect, Times::Next(1))
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_takes_nothing_from_another_before_it_has_listed_everything() {
    let lab = Lab::start().await;
    let _one = lab.replica("one", true);
    sleep(seconds(10)).await;
    assert_eq!(lab.held_by("one").await, 4);
    let two = lab.replica("two", false);
    for _ in 0..120 {
        sleep(seconds(1)).await;
        assert_eq!(lab.held_by("one").await, 4);
    }
    two.has_listed();
    sleep(seconds(20)).await;
    assert_eq!((lab.held_by("one").await, lab.held_by("two").await), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_replica_alone_leads_at_once_and_while_it_lists() {
    let lab = Lab::start().await;
    let one = lab.replica("one", false);
    sleep(MOMENT).await;
    for _ in 0..50 {
        assert_eq!(lab.held_by("one").await, 4);
        sleep(seconds(1)).await;
    }
    one.has_listed();
    for _ in 0..60 {
        sleep(seconds(1)).await;
        assert_eq!(lab.held_by("one").await, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_cannot_list_everything_leads_only_until_another_can() {
    let lab = Lab::start().await;
    let _one = lab.replica("one", false);
    sleep(seconds(10)).await;
    let _two = lab.replica("two", true);
    sleep(seconds(100)).await;
    assert_eq!((lab.held_by("one").await, lab.held_by("two").await), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn shards_are_led_by_a_replica_that_can_list_everything_even_if_another_leads_the_cluster() {
    let lab = Lab::start().await;
    let _one = lab.replica("one", false);
    sleep(seconds(10)).await;
    let _two = lab.replica("two", true);
    sleep(seconds(30)).await;
    assert_eq!((lab.held_by("one").await, lab.held_by("two").await), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn replicas_of_which_none_can_list_everything_rarely_pass_the_lease_to_each_other() {
    let lab = Lab::start().await;
    let _replicas = ["one", "two"].map(|name| {
        let replica = lab.replica(name, false);
        replica.shards.send_modify(|shards| shards.by_pool.clear());
        replica
    });
    let transitions = async || {
        let lease = lab.leases.get("kai-scheduler").await.unwrap();
        lease.spec.unwrap().lease_transitions.unwrap_or(0)
    };
    sleep(seconds(1_800)).await;
    let first = transitions().await;
    assert!((1..=20).contains(&first), "{first} in the first half hour");
    sleep(seconds(1_800)).await;
    let later = transitions().await - first;
    assert!(later < 10, "{later} in the second one");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_has_not_listed_everything_leads_when_the_last_other_one_is_gone() {
    let lab = Lab::start().await;
    let one = lab.replica("one", true);
    sleep(seconds(10)).await;
    let two = lab.replica("two", false);
    sleep(seconds(10)).await;
    drop(one);
    let all = async {
        while lab.held_by("two").await < 4 {
            sleep(MOMENT).await;
        }
    };
    timeout(seconds(20), all).await.expect("it leads");
    two.has_listed();
    for _ in 0..60 {
        sleep(seconds(1)).await;
        assert_eq!(lab.held_by("two").await, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn two_replicas_that_start_together_divide_the_shards_once_they_have_listed_everything() {
    let lab = Lab::start().await;
    let replicas = [lab.replica("one", false), lab.replica("two", false)];
    sleep(seconds(8)).await;
    let held = [lab.held_by("one").await, lab.held_by("two").await];
    assert!(held == [4, 0] || held == [0, 4], "{held:?}");
    for replica in &replicas {
        replica.has_listed();
    }
    sleep(seconds(30)).await;
    assert_eq!([lab.held_by("one").await, lab.held_by("two").await], [2, 2]);
}

/// As when an election changes meanwhile. If the write has taken effect, the next one conflicts.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_is_interrupted_is_sent_again_at_once() {
    for effect in [Effect::Hang, Effect::HangAfter] {
        let lab = Lab::start().await;
        let mut replicas = Replicas::new(&lab.clients("one"), &params("one"), 290);
        replicas.join();
        let alone = replicas.known();
        assert!(timeout(seconds(8), replicas.changed(&alone, true)).await.is_err());
        let renewal = lab.fault("update", effect.clone());
        while lab.server.faults().struck(renewal) == 0 {
            let _ = timeout(MOMENT, replicas.changed(&alone, true)).await;
        }
        let before = lab.heartbeat().await;
        assert!(timeout(seconds(3), replicas.changed(&alone, true)).await.is_err());
        assert_ne!(lab.heartbeat().await, before, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_conflicts_is_sent_again_at_once() {
    let lab = Lab::start().await;
    let mut replicas = Replicas::new(&lab.clients("one"), &params("one"), 290);
    replicas.join();
    let alone = replicas.known();
    assert!(timeout(seconds(1), replicas.changed(&alone, true)).await.is_err());
    let labels = Patch::Merge(json!({"metadata": {"labels": {"team": "infra"}}}));
    let name = lab.heartbeat().await.name_any();
    let before = lab.leases.patch(&name, &PatchParams::default(), &labels).await.unwrap();
    assert!(timeout(seconds(6), replicas.changed(&alone, true)).await.is_err());
    let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    assert_ne!(renewed(&lab.heartbeat().await), renewed(&before));
}
