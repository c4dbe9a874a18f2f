//! Elections against an API server in this process, on virtual time.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::components::leadership::Terms;
use crate::components::tests::recorded::Warnings;
use crate::devcluster::apiserver::in_process::InProcess;
use crate::devcluster::apiserver::{Effect, Identity, Match, Options, RuleId, Times};
use crate::operator::client::{self, Reach, Timeouts};

mod shutdown;

/// An API server with the namespace of the Lease.
struct Lab {
    server: InProcess,
    leases: Api<Lease>,
}

/// A process that takes part in the election.
struct Replica {
    leads: Arc<Leads>,
    status: watch::Receiver<Status>,
    claim: watch::Sender<Claim>,
    heartbeat: Heartbeat,
    release: CancellationToken,
    run: JoinHandle<anyhow::Result<()>>,
}

/// Longer than an attempt, shorter than any wait of an election.
const MOMENT: Duration = Duration::from_millis(100);

impl Lab {
    async fn new() -> Self {
        let server = InProcess::start(Options::default()).await.expect("an API server");
        let admin = server.client(&Identity::admin());
        let namespace = json!({"metadata": {"name": "kai-scheduler"}});
        Api::<k8s_openapi::api::core::v1::Namespace>::all(admin.clone())
            .create(&PostParams::default(), &serde_json::from_value(namespace).unwrap())
            .await
            .unwrap();
        Self {
            leases: Api::namespaced(admin, "kai-scheduler"),
            server,
        }
    }

    fn replica(&self, name: &str) -> Replica {
        self.replica_with(name, Claim::Preferred)
    }

    fn replica_with(&self, name: &str, claim: Claim) -> Replica {
        self.replica_within(name, claim, params(name).request_timeout())
    }

    /// A replica with the rights of an administrator under a name of its own, so that faults can be meant for it alone.
    fn replica_within(&self, name: &str, claim: Claim, request_timeout: Duration) -> Replica {
        let identity = user(name);
        let timeouts = Timeouts {
            request: Duration::from_secs(10),
            watch: Duration::from_secs(290),
        };
        let params = params(name);
        let reach = Reach::InProcess(self.server.service(&identity));
        let clients = client::connect(reach, timeouts, request_timeout).expect("clients");
        let (leads, heartbeat) = (Arc::new(Leads::default()), Heartbeat::default());
        let (claim, claims) = watch::channel(claim);
        let elector = Elector::new(
            &clients,
            params,
            Scope::Cluster,
            290,
            heartbeat.clone(),
            Arc::clone(&leads),
            claims,
        );
        let (status, release) = (elector.status(), CancellationToken::new());
        Replica {
            leads,
            status,
            claim,
            heartbeat,
            release: release.clone(),
            run: tokio::spawn(elector.run(release)),
        }
    }

    async fn lease(&self) -> Option<Lease> {
        self.leases.get_opt("kai-scheduler").await.unwrap()
    }

    async fn holder(&self) -> Option<String> {
        self.lease().await.as_ref().and_then(holder).map(str::to_owned)
    }

    async fn patch(&self, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.leases.patch("kai-scheduler", &params, &patch).await.unwrap();
    }

    /// The answers to writes of a replica.
    fn answers(&self, name: &str) -> Vec<u16> {
        let writes = self.server.audit().writes_of(&user(name));
        writes.iter().map(|write| write.code).collect()
    }

    /// A fault of writes of the Lease by one replica.
    fn fault(&self, verb: &str, user: &str, effect: Effect, times: Times) -> RuleId {
        let matching = Match {
            user: Some(user.to_owned()),
            ..Match::verb_on(verb, "leases")
        };
        self.server.faults().add(matching, effect, times)
    }
}

impl Replica {
    fn is_leading(&self) -> bool {
        self.status.borrow().leading
    }

    fn terms(&self) -> Terms {
        self.leads.watch().borrow().clone()
    }

    /// Waits until it leads, and returns how long that took.
    async fn leads(&mut self) -> Duration {
        let began = Instant::now();
        let leads = self.status.wait_for(|status| status.leading);
        timeout(Duration::from_secs(300), leads)
            .await
            .expect("it leads")
            .unwrap();
        began.elapsed()
    }

    /// Waits until it does not lead, and returns how long that took.
    async fn follows(&mut self) -> Duration {
        let began = Instant::now();
        let follows = self.status.wait_for(|status| !status.leading);
        timeout(Duration::from_secs(300), follows)
            .await
            .expect("it ends")
            .unwrap();
        began.elapsed()
    }

    /// The client for writes of the current term.
    fn writes(&self) -> Client {
        self.terms().of(&Scope::Cluster).expect("a term").writes.clone()
    }
}

fn user(name: &str) -> Identity {
    Identity {
        user: name.to_owned(),
        ..Identity::admin()
    }
}

/// A Lease that another process holds for an hour.
fn held_by_another() -> Lease {
    let lease = json!({"metadata": {"name": "kai-scheduler"}, "spec": {
        "holderIdentity": "other", "leaseDurationSeconds": 3600, "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 0,
    }});
    serde_json::from_value(lease).unwrap()
}

/// Whether a write of a client reaches the API server.
async fn is_open(writes: &Client) -> bool {
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(writes.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    api.patch("kai-scheduler", &PatchParams::default(), &patch)
        .await
        .is_ok()
}

fn refuse(code: u16) -> Effect {
    Effect::Refuse {
        code,
        retry_after: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_replica_leads_at_once_and_keeps_the_lease() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    assert!(a.leads().await < MOMENT);
    assert_eq!(lab.holder().await.as_deref(), Some("a"));
    let before = lab.lease().await.unwrap().spec.unwrap().renew_time;
    for _ in 0..20 {
        sleep(Duration::from_secs(5)).await;
        assert!(a.is_leading() && is_open(&a.writes()).await);
    }
    assert_ne!(lab.lease().await.unwrap().spec.unwrap().renew_time, before);
    let status = a.status.borrow().clone();
    assert_eq!((status.identity.as_str(), status.holder.as_deref()), ("a", Some("a")));
    assert_eq!(
        lab.lease().await.unwrap().spec.unwrap().lease_transitions.unwrap_or(0),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_another_replica_leads_once_the_lease_has_expired() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let mut b = lab.replica("b");
    sleep(Duration::from_secs(30)).await;
    let writes = a.writes();
    a.run.abort();
    assert!(is_open(&writes).await);
    sleep(Duration::from_millis(10_001)).await;
    assert!(!is_open(&writes).await, "the fence closes before the lease is free");
    assert!(!b.is_leading());
    let rest = b.leads().await;
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(9)).contains(&rest),
        "{rest:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_at_its_deadline_and_another_follows() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let mut b = lab.replica("b");
    sleep(Duration::from_secs(30)).await;
    lab.fault("update", "a", refuse(500), Times::Always);
    let ended = a.follows().await;
    assert!(
        (Duration::from_secs(7)..=Duration::from_secs(10)).contains(&ended),
        "{ended:?}"
    );
    assert!(!b.is_leading());
    b.leads().await;
    assert!(!a.is_leading());
    assert!(!a.run.is_finished(), "it stands by");
}

#[tokio::test(start_paused = true)]
async fn single_renewals_that_hang_or_fail_do_not_end_the_term() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    for effect in [Effect::Hang, refuse(500), Effect::Drop, Effect::DropAfter] {
        lab.fault("update", "a", effect, Times::Next(1));
        sleep(Duration::from_secs(30)).await;
        assert!(a.is_leading() && is_open(&a.writes()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_beyond_the_deadline_ends_the_term() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    lab.fault("update", "a", Effect::Hang, Times::Always);
    let ended = a.follows().await;
    assert!(ended <= Duration::from_secs(10), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_the_lease_to_another_ends_its_term_at_once() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    lab.patch(json!({"spec": {"holderIdentity": "other", "acquireTime": "2026-01-01T00:00:00.000000Z"}}))
        .await;
    assert!(a.follows().await < MOMENT);
    assert_eq!(a.status.borrow().holder.as_deref(), Some("other"));
    assert_eq!(lab.holder().await.as_deref(), Some("other"), "it is not released");
    let waits = a.leads().await;
    assert!(
        waits >= Duration::from_secs(14),
        "the other is given its time: {waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_created_again_for_another_term() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let writes = a.writes();
    lab.leases
        .delete("kai-scheduler", &DeleteParams::default())
        .await
        .unwrap();
    let mut terms = a.leads.watch();
    let second = terms.wait_for(|terms| terms.of(&Scope::Cluster).is_some_and(|term| term.number == 2));
    timeout(MOMENT, second).await.expect("another term").unwrap();
    assert_eq!(lab.holder().await.as_deref(), Some("a"));
    assert!(is_open(&a.writes()).await && !is_open(&writes).await);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_label_is_no_loss_and_the_renewal_that_conflicts_is_repeated() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    for number in 0..10 {
        lab.patch(json!({"metadata": {"labels": {"n": number.to_string()}}}))
            .await;
        sleep(Duration::from_millis(900)).await;
        assert!(a.is_leading());
    }
    let rule = lab.fault("update", "a", refuse(409), Times::Next(3));
    sleep(Duration::from_secs(5)).await;
    assert!(a.is_leading());
    assert_eq!(lab.server.faults().struck(rule), 3);
}

#[tokio::test(start_paused = true)]
async fn after_an_unanswered_acquisition_a_lease_with_our_name_is_held() {
    // At once, at the end of the request's time, and at the next attempt.
    let (request, retry) = (params("a").request_timeout(), params("a").retry_period);
    for (effect, least) in [
        (Effect::DropAfter, Duration::ZERO),
        (Effect::HangAfter, request),
        (Effect::FailAfter { code: 500 }, retry),
    ] {
        let lab = Lab::new().await;
        lab.fault("create", "a", effect.clone(), Times::Next(1));
        let mut a = lab.replica("a");
        let took = a.leads().await;
        assert!(
            (least..least + Duration::from_millis(500)).contains(&took),
            "{effect:?}: {took:?}"
        );
        assert!(is_open(&a.writes()).await, "{effect:?}");
        sleep(Duration::from_secs(30)).await;
        assert!(a.is_leading() && is_open(&a.writes()).await, "{effect:?}");
        assert_eq!(a.terms().of(&Scope::Cluster).unwrap().number, 1, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_acquisition_is_retried_after_the_retry_period() {
    for effect in [refuse(500), refuse(403), refuse(404), Effect::Drop] {
        let lab = Lab::new().await;
        let rule = lab.fault("create", "a", effect, Times::Next(3));
        let mut a = lab.replica("a");
        let took = a.leads().await;
        assert!(
            (Duration::from_secs(6)..Duration::from_secs(8)).contains(&took),
            "{took:?}"
        );
        assert_eq!(lab.server.faults().struck(rule), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_that_start_together_one_leads() {
    let lab = Lab::new().await;
    let (a, b) = (lab.replica("a"), lab.replica("b"));
    for _ in 0..30 {
        sleep(Duration::from_secs(1)).await;
        assert!(a.is_leading() != b.is_leading());
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_with_the_same_name_one_leads() {
    let lab = Lab::new().await;
    let (mut a, b) = (lab.replica("a"), lab.replica("a"));
    a.leads().await;
    for _ in 0..30 {
        sleep(Duration::from_secs(1)).await;
        assert!(a.is_leading() && !b.is_leading());
    }
    b.release.cancel();
    b.run.await.unwrap().unwrap();
    assert_eq!(
        lab.holder().await.as_deref(),
        Some("a"),
        "the other does not release it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_scheduler_is_stuck_releases_the_lease_and_ends() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let part = a.heartbeat.part();
    part.work();
    let mut b = lab.replica("b");
    let handed_over = b.leads().await;
    assert!(
        (Duration::from_secs(14)..Duration::from_secs(18)).contains(&handed_over),
        "{handed_over:?}"
    );
    let error = timeout(MOMENT, a.run)
        .await
        .expect("it has ended")
        .unwrap()
        .unwrap_err();
    assert!(
        error.to_string().contains("the scheduler has been stuck for"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_scheduler_is_stuck_does_not_begin_to_lead() {
    let lab = Lab::new().await;
    let rule = lab.fault("create", "a", refuse(500), Times::Always);
    let mut a = lab.replica("a");
    let part = a.heartbeat.part();
    part.work();
    sleep(Duration::from_secs(20)).await;
    lab.server.faults().remove(rule);
    sleep(Duration::from_secs(60)).await;
    assert!(!a.is_leading());
    assert_eq!(lab.holder().await, None);
    part.wait();
    a.leads().await;
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_left_to_the_preferred_replica() {
    let lab = Lab::new().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    let alone = reserve.leads().await;
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(5)).contains(&alone),
        "{alone:?}"
    );

    let lab = Lab::new().await;
    let reserve = lab.replica_with("reserve", Claim::Reserve);
    sleep(Duration::from_secs(1)).await;
    let mut preferred = lab.replica("preferred");
    assert!(preferred.leads().await < MOMENT);
    sleep(Duration::from_secs(30)).await;
    assert!(preferred.is_leading() && !reserve.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_passed_to_the_preferred_replica() {
    let lab = Lab::new().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    reserve.leads().await;
    let writes = reserve.writes();
    let mut preferred = lab.replica("preferred");
    let passed = preferred.leads().await;
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(6)).contains(&passed),
        "{passed:?}"
    );
    assert!(!is_open(&writes).await);
    sleep(Duration::from_secs(60)).await;
    assert!(preferred.is_leading() && !reserve.is_leading());
    preferred.claim.send_replace(Claim::Reserve);
    reserve.claim.send_replace(Claim::Preferred);
    let back = reserve.leads().await;
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(6)).contains(&back),
        "it counts from the change: {back:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_no_replica_takes_over_is_offered_at_growing_intervals() {
    let lab = Lab::new().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    let mut terms = Vec::new();
    for _ in 0..5 {
        reserve.leads().await;
        terms.push(reserve.follows().await.as_secs());
    }
    assert!(
        terms[0] >= 4 && terms.windows(2).all(|two| two[1] > two[0]),
        "{terms:?}"
    );
    assert!(terms[4] >= 60, "{terms:?}");
    // One that takes and keeps it ends the series.
    let mut preferred = lab.replica("preferred");
    preferred.leads().await;
    sleep(Duration::from_secs(2_400)).await;
    preferred.release.cancel();
    preferred.run.await.unwrap().unwrap();
    reserve.leads().await;
    let again = reserve.follows().await.as_secs();
    assert!(again < 10, "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_preferred_meanwhile_offers_the_lease_without_a_long_delay() {
    let lab = Lab::new().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    for _ in 0..4 {
        reserve.leads().await;
        reserve.follows().await;
    }
    reserve.leads().await;
    reserve.claim.send_replace(Claim::Preferred);
    sleep(Duration::from_secs(120)).await;
    assert!(reserve.is_leading());
    reserve.claim.send_replace(Claim::Reserve);
    let offered = reserve.follows().await;
    assert!(offered < Duration::from_secs(6), "{offered:?}");
}

#[tokio::test(start_paused = true)]
async fn after_an_unanswered_acquisition_a_lease_of_another_holder_is_not_held() {
    let lab = Lab::new().await;
    let other = json!({"metadata": {"name": "kai-scheduler"}, "spec": {
        "holderIdentity": "other", "leaseDurationSeconds": 15, "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 0,
    }});
    let delayed = Effect::Delay(Duration::from_secs(1));
    lab.fault("create", "a", delayed, Times::Next(1));
    lab.fault("create", "a", Effect::Drop, Times::Next(1));
    let mut a = lab.replica("a");
    sleep(MOMENT).await;
    lab.leases
        .create(&PostParams::default(), &serde_json::from_value(other).unwrap())
        .await
        .unwrap();
    let took = a.leads().await;
    assert!(took > Duration::from_secs(14), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_does_not_open_the_fence() {
    let lab = Lab::new().await;
    lab.fault("create", "a", Effect::DropAfter, Times::Next(1));
    lab.fault("get", "a", Effect::Delay(Duration::from_secs(3)), Times::Next(1));
    let mut a = lab.replica("a");
    let took = a.leads().await;
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(4)).contains(&took),
        "{took:?}"
    );
    lab.fault("update", "a", Effect::Hang, Times::Always);
    let ended = a.follows().await;
    assert!(
        ended <= Duration::from_secs(7),
        "it counts from before the write was sent: {ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_is_read_once_more_before_it_is_taken() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let b = lab.replica("b");
    sleep(Duration::from_secs(5)).await;
    // The standby's watch is silent, so that it does not see the renewals.
    let watches = Match {
        user: Some("b".to_owned()),
        ..Match::verb_on("watch", "leases")
    };
    lab.server.faults().silence_watches(watches);
    let wrote = lab.fault("update", "b", Effect::Delay(Duration::ZERO), Times::Always);
    sleep(Duration::from_secs(60)).await;
    assert!(a.is_leading() && !b.is_leading());
    assert_eq!(lab.server.faults().struck(wrote), 0, "not even a write that conflicts");
}

#[tokio::test(start_paused = true)]
async fn running_jobs_finish_before_the_lease_is_passed_on() {
    let lab = Lab::new().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    reserve.leads().await;
    let writes = reserve.writes();
    let mut terms = reserve.leads.watch();
    let over = terms.wait_for(|terms| terms.of(&Scope::Cluster).is_none());
    timeout(Duration::from_secs(60), over).await.expect("it ends").unwrap();
    sleep(YIELD_AFTER / 2).await;
    assert!(is_open(&writes).await, "begun before");
    sleep(YIELD_AFTER).await;
    assert!(!is_open(&writes).await);
}

/// A write without an answer, which left right before the Lease is passed on; when it left.
async fn write_before_the_end(lab: &Lab, reserve: &mut Replica) -> (Instant, JoinHandle<bool>) {
    reserve.leads().await;
    let hangs = Match::verb_on("patch", "namespaces");
    lab.server.faults().add(hangs, Effect::Hang, Times::Always);
    sleep(Duration::from_millis(3_500)).await;
    let writes = reserve.writes();
    (Instant::now(), tokio::spawn(async move { is_open(&writes).await }))
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_passed_on_only_when_no_write_can_arrive_any_more() {
    let lab = Lab::new().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    let (left, write) = write_before_the_end(&lab, &mut reserve).await;
    let mut preferred = lab.replica("preferred");
    preferred.leads().await;
    let passed = left.elapsed();
    assert!(
        (retry::LATE - MOMENT..retry::LATE + MOMENT).contains(&passed),
        "{passed:?}"
    );
    write.abort();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_the_lease_is_passed_on_takes_no_longer_than_another() {
    let lab = Lab::new().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    let (_, write) = write_before_the_end(&lab, &mut reserve).await;
    reserve.follows().await;
    reserve.release.cancel();
    let limit = LATE + params("reserve").retry_period;
    timeout(limit, reserve.run)
        .await
        .expect("it has ended")
        .unwrap()
        .unwrap();
    assert_eq!(lab.holder().await, None);
    write.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_freed_again_is_left_to_the_preferred_replica_for_the_whole_time() {
    let lab = Lab::new().await;
    let mut preferred = lab.replica("preferred");
    preferred.leads().await;
    let mut reserve = lab.replica_with("reserve", Claim::Reserve);
    for _ in 0..2 {
        sleep(Duration::from_secs(30)).await;
        lab.patch(json!({"spec": {"holderIdentity": ""}})).await;
        preferred.leads().await;
        assert!(!reserve.is_leading());
    }
    sleep(Duration::from_secs(30)).await;
    preferred.release.cancel();
    let waited = reserve.leads().await;
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(5)).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_released_soon_after_a_failed_attempt_is_taken_at_once() {
    let lab = Lab::new().await;
    let failure = lab.fault("create", "b", refuse(500), Times::Next(1));
    let mut b = lab.replica("b");
    sleep(MOMENT).await;
    assert_eq!(lab.server.faults().struck(failure), 1);
    let mut a = lab.replica("a");
    a.leads().await;
    a.release.cancel();
    assert!(b.leads().await < MOMENT, "without the retry period");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_has_been_busy_for_the_duration_of_the_lease_is_stuck() {
    let duration = params("a").duration;
    for (busy_for, leads) in [(duration - Duration::from_millis(1), true), (duration, false)] {
        let lab = Lab::new().await;
        lab.leases
            .create(&PostParams::default(), &held_by_another())
            .await
            .unwrap();
        let a = lab.replica("a");
        sleep(MOMENT).await;
        a.heartbeat.work();
        sleep(busy_for).await;
        lab.patch(json!({"spec": {"holderIdentity": ""}})).await;
        sleep(MOMENT).await;
        assert_eq!(a.is_leading(), leads, "busy for {busy_for:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_watch_is_silent_knows_its_own_renewals_and_reads_the_lease_after_a_conflict() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    sleep(MOMENT).await;
    lab.server.faults().silence_watches(Match::verb_on("watch", "leases"));
    sleep(Duration::from_secs(30)).await;
    let conflicts = |lab: &Lab| lab.answers("a").iter().filter(|code| **code == 409).count();
    assert_eq!(conflicts(&lab), 0, "{:?}", lab.answers("a"));
    lab.fault("update", "a", Effect::Delay(MOMENT), Times::Always);
    lab.patch(json!({"metadata": {"labels": {"a": "b"}}})).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(conflicts(&lab), 1, "{:?}", lab.answers("a"));
    assert_eq!(a.terms().of(&Scope::Cluster).map(|term| term.number), Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_standby_changes_with_the_holder_and_not_with_renewals() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let mut b = lab.replica("b");
    let follows = b.status.wait_for(|status| status.holder.as_deref() == Some("a"));
    timeout(MOMENT, follows).await.expect("it knows the holder").unwrap();
    sleep(Duration::from_secs(30)).await;
    assert!(!b.status.has_changed().unwrap());
    a.run.abort();
    lab.patch(json!({"spec": {"holderIdentity": "other"}})).await;
    timeout(MOMENT, b.status.changed()).await.expect("a change").unwrap();
    assert_eq!(b.status.borrow().holder.as_deref(), Some("other"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_known_to_be_held_only_after_its_deadline_begins_no_term() {
    let deadline = params("a").renew_deadline;
    for (read_after, first_term) in [(deadline - Duration::from_millis(1), true), (deadline, false)] {
        let lab = Lab::new().await;
        lab.fault("create", "a", Effect::DropAfter, Times::Next(1));
        lab.fault("get", "a", Effect::Delay(read_after), Times::Next(1));
        // As for a process that is suspended meanwhile, the time of the request does not end it.
        let a = lab.replica_within("a", Claim::Preferred, Duration::from_secs(60));
        sleep(deadline + Duration::from_secs(5)).await;
        let term = a.terms().of(&Scope::Cluster).expect("a later attempt succeeds").number;
        assert_eq!(term, if first_term { 2 } else { 1 }, "read after {read_after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_says_why_the_lease_is_not_taken() {
    let reasons = [
        (403, "not allowed to take the lease"),
        (404, "the lease's namespace does not exist"),
        (500, "the lease was not taken; trying again"),
    ];
    for (code, reason) in reasons {
        let lab = Lab::new().await;
        let warnings = Warnings::from_now_on();
        lab.fault("create", "a", refuse(code), Times::Always);
        let _a = lab.replica("a");
        sleep(MOMENT).await;
        let said = reasons.map(|(_, reason)| warnings.of(reason));
        let wanted = reasons.map(|(_, other)| usize::from(other == reason));
        assert_eq!(said, wanted, "{code}");
    }
}
