//! Volumes of a bind: asked for, waited for, and given back if the bind fails.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::*;
use crate::components::binder::multi_step::MultiStepBind;
use crate::components::binder::requests::RequestError;
use crate::components::binder::volume_turns::Write;
use crate::components::binder::volumes::{Volumes, Written, promised};
use crate::components::retry::Failure;
use crate::components::watches::Key;
use crate::engine::decision::Promise;

const NODE: &str = "volume.kubernetes.io/selected-node";
const BY_US: &str = "pv.kubernetes.io/bound-by-controller";

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "team", "name": name},
        "spec": {"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "csi.example", "volumeHandle": name}},
    })
}

/// A pod with the claim `data`, and its bind to `n1` with the volume `v`, or one that is to be provisioned.
struct Case {
    lab: Lab,
    bind: OrderedBind,
}

impl Case {
    async fn new(promised: Option<&str>) -> Self {
        let lab = Lab::new().await;
        lab.create(claim("data")).await;
        lab.create(volume("v")).await;
        lab.stores
            .nodes
            .insert(read::<Node>(json!({"metadata": {"name": "n1"}})));
        let pod = lab.pod("a").await;
        lab.stores.pods.insert(pod.clone());
        let mut bind = bind(&pod, "n1");
        bind.placement.volumes = vec![Promise {
            claim: "team/data".into(),
            volume: promised.map(Into::into),
        }];
        let case = Self { lab, bind };
        case.watch().await;
        case
    }

    /// The watch shows claim and volume as they are.
    async fn watch(&self) {
        let stores = &self.lab.stores;
        let claim = self.lab.see(&claim("data")).await;
        stores
            .persistent_volume_claims
            .insert(read::<PersistentVolumeClaim>(claim));
        stores
            .persistent_volumes
            .insert(read::<PersistentVolume>(self.lab.see(&volume("v")).await));
    }

    /// The volume is bound to the claim, and the watch shows it.
    async fn bound(&self) {
        self.lab
            .patch(&claim("data"), json!({"spec": {"volumeName": "v"}}))
            .await;
        let completed = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
        self.lab.patch(&claim("data"), completed).await;
        self.lab.set_status(&claim("data"), json!({"phase": "Bound"})).await;
        self.watch().await;
    }

    /// What is written within a moment, while nothing happens.
    async fn wrote(&self) -> Written {
        let mut written = Written::default();
        let caller = self.lab.caller();
        let waits = timeout(Duration::from_millis(10), self.volumes(&caller).provide(&mut written)).await;
        assert!(waits.is_err(), "it waits for the volume: {waits:?}");
        written
    }

    /// The result of the wait for the volume.
    async fn provide(&self) -> Result<(), RequestError> {
        self.volumes(&self.lab.caller()).provide(&mut Written::default()).await
    }

    /// The same; meanwhile something happens.
    async fn provide_while(&self, happens: impl Future<Output = ()>) -> Result<(), RequestError> {
        let happens = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            happens.await;
        };
        tokio::join!(self.provide(), happens).0
    }

    fn volumes<'a>(&'a self, caller: &'a Caller) -> Volumes<'a> {
        Volumes {
            caller,
            stores: &self.lab.stores,
            bind: &self.bind,
        }
    }

    async fn undo(&self, written: &Written) {
        self.volumes(&self.lab.caller()).undo(written).await;
    }

    /// The claim that a volume refers to.
    async fn referred(&self) -> Value {
        self.lab.see(&volume("v")).await["spec"]["claimRef"].clone()
    }

    /// The node that the claim's volume is to be made for.
    async fn selected(&self) -> Value {
        self.lab.see(&claim("data")).await["metadata"]["annotations"][NODE].clone()
    }

    /// The promises as an interrupted bind shows them.
    fn promised(&self) -> Option<Vec<Promise>> {
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        let pod =
            json!({"metadata": {"namespace": "team", "name": "a"}, "spec": {"containers": [], "volumes": volumes}});
        promised(&self.lab.stores, &read(pod), "n1")
    }
}

impl Case {
    /// The promise is written for other processes to see, and not a second time.
    async fn is_written_once(&self) {
        self.watch().await;
        assert_eq!(self.promised(), Some(self.bind.placement.volumes.clone()));
        let writes = self.lab.writes().len();
        self.wrote().await;
        assert_eq!(self.lab.writes().len(), writes);
    }
}

fn why(result: Result<(), RequestError>) -> String {
    result.expect_err("it fails").why
}

#[tokio::test(start_paused = true)]
async fn a_promised_volume_is_claimed_and_released() {
    let case = Case::new(Some("v")).await;
    let written = case.wrote().await;
    let reference = case.referred().await;
    assert_eq!(
        (&reference["namespace"], &reference["name"]),
        (&json!("team"), &json!("data"))
    );
    assert_eq!(
        case.lab.see(&volume("v")).await["metadata"]["annotations"],
        json!({BY_US: "yes"})
    );
    case.is_written_once().await;

    case.undo(&written).await;
    assert_eq!(case.referred().await, Value::Null);
    assert_eq!(
        case.lab.see(&volume("v")).await["metadata"]["annotations"][BY_US],
        Value::Null
    );
    case.watch().await;
    assert_eq!(case.promised(), None);
    let writes = case.lab.writes().len();
    case.undo(&written).await;
    assert_eq!(case.lab.writes().len(), writes, "once");
}

#[tokio::test(start_paused = true)]
async fn a_volume_with_a_preset_claim_keeps_its_claim_reference() {
    let case = Case::new(Some("v")).await;
    let meant = json!({"namespace": "team", "name": "data"});
    case.lab.patch(&volume("v"), json!({"spec": {"claimRef": meant}})).await;
    let written = case.wrote().await;
    assert_eq!(
        case.lab.see(&volume("v")).await["metadata"]["annotations"][BY_US],
        Value::Null
    );
    assert!(case.referred().await["uid"].is_string());
    case.undo(&written).await;
    let reference = case.referred().await;
    assert_eq!((&reference["name"], &reference["uid"]), (&json!("data"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_another_claim_is_not_taken() {
    for other in [
        json!({"namespace": "team", "name": "other"}),
        json!({"namespace": "other", "name": "data"}),
        json!({"namespace": "team", "name": "data", "uid": "of a former one"}),
    ] {
        let case = Case::new(Some("v")).await;
        case.lab.patch(&volume("v"), json!({"spec": {"claimRef": other}})).await;
        assert_eq!(
            why(case.provide().await),
            "persistentvolume \"v\" has another claim by now"
        );
    }
    let case = Case::new(Some("gone")).await;
    assert_eq!(why(case.provide().await), "persistentvolume \"gone\" not found");
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_volumes_and_claims_are_read_again() {
    let case = Case::new(Some("v")).await;
    let patches = Match::verb_on("patch", "persistentvolumes");
    case.lab.fault(patches.clone(), refuse(409), Times::Next(3));
    let written = case.wrote().await;
    assert_eq!(case.referred().await["name"], "data");
    case.lab.fault(patches.clone(), refuse(409), Times::Next(3));
    case.undo(&written).await;
    assert_eq!(case.referred().await, Value::Null);
    case.lab.fault(patches.clone(), refuse(409), Times::Always);
    assert_eq!(case.provide().await.unwrap_err().failure, Failure::Conflict);
    case.lab.server.faults().clear();
    let rule = case.lab.fault(patches.clone(), refuse(403), Times::Always);
    assert_eq!(case.provide().await.unwrap_err().failure, Failure::Refused);
    assert_eq!(case.lab.server.faults().struck(rule), 1);
    case.lab.server.faults().clear();
    let written = case.wrote().await;
    let rule = case.lab.fault(patches, refuse(403), Times::Always);
    case.undo(&written).await;
    assert_eq!(case.lab.server.faults().struck(rule), 1);

    let case = Case::new(None).await;
    let patches = Match::verb_on("patch", "persistentvolumeclaims");
    case.lab.fault(patches.clone(), refuse(409), Times::Next(3));
    case.wrote().await;
    assert_eq!(case.selected().await, "n1");
    let case = Case::new(None).await;
    case.lab.fault(patches.clone(), refuse(409), Times::Always);
    assert_eq!(case.provide().await.unwrap_err().failure, Failure::Conflict);
    case.lab.server.faults().clear();
    let rule = case.lab.fault(patches, refuse(403), Times::Always);
    assert_eq!(case.provide().await.unwrap_err().failure, Failure::Refused);
    assert_eq!(case.lab.server.faults().struck(rule), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_requested_on_the_node_and_the_request_is_removed_if_the_bind_fails() {
    let case = Case::new(None).await;
    let written = case.wrote().await;
    assert_eq!(case.selected().await, "n1");
    case.is_written_once().await;
    case.undo(&written).await;
    assert_eq!(case.selected().await, Value::Null);
}

/// Pods that share the claim were promised the same volume.
#[tokio::test(start_paused = true)]
async fn what_is_written_for_a_claim_is_undone_by_the_last_bind_that_waits_for_it() {
    for promised in [Some("v"), None] {
        let case = Case::new(promised).await;
        let caller = case.lab.caller();
        let other = caller
            .open_claims
            .begin([Arc::clone(&case.bind.placement.volumes[0].claim)]);
        let written = case.wrote().await;
        case.volumes(&caller).undo(&written).await;
        case.is_written_once().await;

        drop(other);
        case.volumes(&caller).undo(&written).await;
        assert_eq!(case.referred().await, Value::Null);
        assert_eq!(case.selected().await, Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn what_many_binds_leave_for_a_claim_is_kept_and_undone_once() {
    for promised in [Some("v"), None] {
        let case = Case::new(promised).await;
        let caller = case.lab.caller();
        let claim = Arc::clone(&case.bind.placement.volumes[0].claim);
        let other = caller.open_claims.begin([Arc::clone(&claim)]);
        for _ in 0..3 {
            let written = case.wrote().await;
            case.volumes(&caller).undo(&written).await;
            case.watch().await;
        }
        let left = caller.volume_turns.take(&claim);
        assert_eq!(left.len(), 1, "{left:?}");
        caller.volume_turns.leave(&claim, left);

        drop(other);
        case.volumes(&caller).undo(&Written::default()).await;
        assert_eq!(case.referred().await, Value::Null);
        assert_eq!(case.selected().await, Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_fails_takes_no_volume_from_another_that_waits_for_it() {
    let mut case = running::Case::new().await;
    // The second bind fails by its other claim.
    let mut other = claim("other");
    other["metadata"]["annotations"] = json!({NODE: "n2"});
    for claim in [claim("data"), other] {
        let claim: PersistentVolumeClaim = read(case.lab.create(claim).await);
        case.lab.stores.persistent_volume_claims.insert(claim);
    }
    let promise = |name: &str| Promise {
        claim: format!("team/{name}").into(),
        volume: None,
    };
    let (mut first, mut second) = (case.bind_of("a").await, case.bind_of("b").await);
    first.placement.volumes = vec![promise("data")];
    second.placement.volumes = vec![promise("data"), promise("other")];
    (first.steps, second.steps) = (vec![Step::Volumes], vec![Step::Volumes]);
    case.watch().await;
    case.order(vec![first], Vec::new()).await;
    case.order(vec![second], Vec::new()).await;
    let outcomes = case.outcomes(seconds(5)).await;
    assert!(
        outcomes.len() == 1 && outcomes[0].starts_with("b not bound"),
        "{outcomes:?}"
    );
    let selected = async || case.lab.see(&claim("data")).await["metadata"]["annotations"][NODE].clone();
    assert_eq!(selected().await, "n1", "the other pod waits for it");

    // That is deleted.
    let key = Key {
        namespace: "team".to_owned(),
        name: "a".to_owned(),
    };
    case.lab.delete_pod("a").await;
    case.lab.stores.pods.remove(&key);
    tokio::time::sleep(seconds(5)).await;
    assert_eq!(selected().await, Value::Null, "no pod waits for it");
}

/// Another pod with the same claim may be bound to the same node a moment after the first bind has failed.
#[tokio::test(start_paused = true)]
async fn what_a_bind_finds_in_place_is_not_removed_afterwards_by_one_that_failed() {
    for (promised, written_to) in [(Some("v"), "persistentvolumes"), (None, "persistentvolumeclaims")] {
        let case = Case::new(promised).await;
        let caller = case.lab.caller();
        let volumes = case.volumes(&caller);
        let written = case.wrote().await;
        case.watch().await;

        let slow = Effect::Delay(seconds(1));
        case.lab
            .fault(Match::verb_on("patch", written_to), slow, Times::Next(1));
        let other = async {
            tokio::time::sleep(MOMENT).await;
            let claims = [Arc::clone(&case.bind.placement.volumes[0].claim)];
            let _open = caller.open_claims.begin(claims);
            timeout(seconds(5), volumes.provide(&mut Written::default())).await
        };
        let ((), waits) = tokio::join!(volumes.undo(&written), other);
        assert!(waits.is_err(), "{waits:?}");
        match promised {
            Some(_) => assert_eq!(case.referred().await["name"], "data"),
            None => assert_eq!(case.selected().await, "n1"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_finds_another_node_on_a_claim_removes_what_one_before_it_has_left() {
    let mut case = Case::new(None).await;
    let caller = case.lab.caller();
    let written = case.wrote().await;
    case.watch().await;
    let other = caller
        .open_claims
        .begin([Arc::clone(&case.bind.placement.volumes[0].claim)]);
    case.volumes(&caller).undo(&written).await;
    assert_eq!(case.selected().await, "n1", "another bind waits for it");

    case.bind.placement.node = "n2".into();
    let mut written = Written::default();
    let failed = case.volumes(&caller).provide(&mut written).await;
    assert_eq!(
        why(failed),
        "a volume for persistentvolumeclaim \"data\" is being made for node n1"
    );
    drop(other);
    case.volumes(&caller).undo(&written).await;
    assert_eq!(case.selected().await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_bind_of_which_the_end_is_not_known_keeps_nothing_that_others_have_left_for_its_claims() {
    let case = Case::new(None).await;
    case.lab.install_definitions().await;
    case.bound().await;
    let bind = MultiStepBind {
        caller: case.lab.caller(),
        stores: Arc::clone(&case.lab.stores),
        group_requests: mpsc::channel(1).0,
        bind: case.bind.clone(),
        resumes: None,
        steps: StepLog::default(),
    };
    let turns = &bind.caller.volume_turns;
    let key = &case.bind.placement.volumes[0].claim;
    let stored = case.lab.stores.persistent_volume_claims.get("team", "data");
    turns.leave(key, vec![Write::Node("n1".into(), stored.expect("a claim"))]);

    // Else it would go on.
    case.lab.lose();
    case.lab
        .fault(Match::bindings(), Effect::FailAfter { code: 504 }, Times::Always);
    case.lab
        .fault(Match::verb_on("get", "pods"), refuse(429), Times::Always);
    let (report, _) = bind.run().await;
    assert!(report.uncertain, "{report:?}");
    assert!(turns.take(key).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_shows_late_as_removed_is_waited_for() {
    let case = Case::new(None).await;
    let before = case.lab.see(&claim("data")).await;
    let behind = async {
        case.watch().await;
        tokio::time::sleep(MOMENT).await;
        // As another bind had left the claim before this one wrote its node.
        let claims = &case.lab.stores.persistent_volume_claims;
        claims.insert(read::<PersistentVolumeClaim>(before));
        tokio::time::sleep(seconds(2)).await;
        case.bound().await;
    };
    case.provide_while(behind).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_being_made_for_another_node_is_not_waited_for() {
    let case = Case::new(None).await;
    case.lab
        .patch(&claim("data"), json!({"metadata": {"annotations": {NODE: "n2"}}}))
        .await;
    case.watch().await;
    assert_eq!(
        why(case.provide().await),
        "a volume for persistentvolumeclaim \"data\" is being made for node n2"
    );
    assert_eq!(case.promised(), None);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_bound_in_the_meantime_is_not_released() {
    let case = Case::new(Some("v")).await;
    let written = case.wrote().await;
    case.bound().await;
    case.undo(&written).await;
    assert_eq!(case.referred().await["name"], "data");
    assert_eq!(case.promised(), Some(case.bind.placement.volumes.clone()));

    let case = Case::new(Some("v")).await;
    let written = case.wrote().await;
    case.lab.set_status(&volume("v"), json!({"phase": "Bound"})).await;
    case.undo(&written).await;
    assert_eq!(case.referred().await["name"], "data");

    let case = Case::new(None).await;
    let written = case.wrote().await;
    case.bound().await;
    case.undo(&written).await;
    assert_eq!(case.selected().await, "n1");
}

#[tokio::test(start_paused = true)]
async fn the_bind_goes_on_when_the_claim_is_bound() {
    for promised in [Some("v"), None] {
        let case = Case::new(promised).await;
        case.provide_while(case.bound()).await.unwrap();
        let writes = case.lab.writes().len();
        case.provide().await.unwrap();
        assert_eq!(case.lab.writes().len(), writes, "there is nothing to be done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_others_have_bound_is_left_as_it_is() {
    for promised in [Some("v"), None] {
        let case = Case::new(promised).await;
        case.bound().await;
        case.provide().await.unwrap();
        assert_eq!(case.lab.writes(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_volume_has_a_deadline() {
    let case = Case::new(None).await;
    let began = Instant::now();
    assert_eq!(
        why(case.provide().await),
        "timed out waiting for PVC \"data\" to be bound"
    );
    let limit = case.lab.context.settings.volume_binding_timeout;
    assert!(
        (limit..limit + Duration::from_secs(1)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_provisioner_that_gives_up_is_not_waited_for() {
    let case = Case::new(None).await;
    let result = case.provide_while(async {
        case.watch().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        case.lab
            .patch(&claim("data"), json!({"metadata": {"annotations": {NODE: null}}}))
            .await;
        case.watch().await;
    });
    assert_eq!(why(result.await), "provisioning failed for PVC \"data\"");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_volume_ends_with_the_pod_the_claim_or_the_process() {
    let failure = |result: Result<(), RequestError>| result.unwrap_err().failure;
    let case = Case::new(None).await;
    let leaving = async {
        let mut pod = json!(case.lab.seen("a").await);
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        case.lab.stores.pods.insert(read::<Pod>(pod));
    };
    assert_eq!(failure(case.provide_while(leaving).await), Failure::Gone);

    let case = Case::new(None).await;
    let ended = async {
        let mut pod = json!(case.lab.seen("a").await);
        pod["status"] = json!({"phase": "Failed"});
        case.lab.stores.pods.insert(read::<Pod>(pod));
    };
    assert_eq!(failure(case.provide_while(ended).await), Failure::Gone);

    let case = Case::new(None).await;
    let anew = async {
        let mut pod = json!(case.lab.seen("a").await);
        pod["metadata"]["uid"] = json!("another");
        case.lab.stores.pods.insert(read::<Pod>(pod));
    };
    assert_eq!(failure(case.provide_while(anew).await), Failure::Gone);

    let case = Case::new(None).await;
    let gone = async {
        let mut leaving = case.lab.see(&claim("data")).await;
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        case.lab
            .stores
            .persistent_volume_claims
            .insert(read::<PersistentVolumeClaim>(leaving));
    };
    assert_eq!(
        why(case.provide_while(gone).await),
        "persistentvolumeclaim \"data\" not found"
    );

    let case = Case::new(None).await;
    assert_eq!(
        why(case.provide_while(async { case.lab.lose() }).await),
        "this process does not lead"
    );
    let case = Case::new(None).await;
    let stop = async { case.lab.context.shutdown.cancel() };
    assert_eq!(why(case.provide_while(stop).await), "the process is shutting down");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_the_node_cannot_reach_fails_the_bind() {
    let mut case = Case::new(Some("v")).await;
    let elsewhere = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}});
    case.lab
        .patch(&volume("v"), json!({"spec": {"nodeAffinity": elsewhere}}))
        .await;
    case.watch().await;
    let result = case.provide_while(case.bound()).await;
    assert_eq!(why(result), "persistentvolume \"v\" cannot be used from node n1");

    // Nor is it bound by another process that goes on, if the claim got the volume with another pod meanwhile.
    case.bind.placement.volumes = case.promised().expect("nothing is missing");
    assert_eq!(
        why(case.provide().await),
        "persistentvolume \"v\" cannot be used from node n1"
    );
}
