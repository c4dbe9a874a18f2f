//! Resource claims: allocated and reserved before the Binding, and released if that fails.

use std::time::Duration;

use futures::future::join_all;

use super::*;
use crate::api::bind_request::{ExtendedResourceClaimAllocation, ResourceClaimAllocation};
use crate::components::binder::claim_turns::ClaimTurns;
use crate::components::binder::claims::Claims;
use crate::components::bus::Step;
use crate::components::tests::recorded::Warnings;
use crate::components::watches::Key;
use crate::engine::decision::ClaimGrant;

/// The allocation of a device.
pub fn device(name: &str) -> Value {
    json!({"devices": {"results": [{"request": "card", "driver": "gpu.example.com", "pool": "n1", "device": name}]}})
}

pub fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": "team", "name": name},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "gpu"}}]}},
    })
}

/// A bind of a pod that gets `card-1` for its claim `data`.
pub fn claiming(pod: &Pod) -> OrderedBind {
    let mut bind = bind(pod, "n1");
    bind.steps = vec![Step::Claims];
    bind.placement.claims = vec![ClaimGrant {
        reference: Some("card".into()),
        claim: "team/data".into(),
        allocation: Default::default(),
    }];
    bind.given.named = vec![ResourceClaimAllocation {
        name: Some("card".to_owned()),
        allocation: Some(read(device("card-1"))),
    }];
    bind
}

/// A bind of a pod that gets `card-1` for an extended resource.
pub fn extended(pod: &Pod) -> OrderedBind {
    let mut bind = bind(pod, "n1");
    bind.steps = vec![Step::Claims];
    bind.given.extended = Some(read::<ExtendedResourceClaimAllocation>(json!({
        "allocation": device("card-1"),
        "deviceRequests": [{"name": "card", "exactly": {"deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount"}}],
        "containerMappings": [{"containerName": "main", "resourceName": "example.com/card", "requestName": "card"}],
    })));
    bind
}

/// The device of a claim, and the pods for which it is reserved.
pub fn held(claim: &Value) -> (Value, Vec<String>) {
    let device = &claim["status"]["allocation"]["devices"]["results"][0]["device"];
    let reserved = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    let names = reserved
        .iter()
        .filter_map(|one| one["name"].as_str().map(str::to_owned));
    (device.clone(), names.collect())
}

pub fn statuses() -> Match {
    Match {
        subresource: Some("status".to_owned()),
        ..Match::verb_on("patch", "resourceclaims")
    }
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_its_device_and_is_reserved_for_the_pod_and_protected() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    let ordered = claiming(&lab.pod("a").await);
    let claims = lab.claims(&ordered);
    claims.reserve().await.unwrap();
    let seen = lab.see(&claim("data")).await;
    assert_eq!(held(&seen), (json!("card-1"), names(&["a"])));
    assert_eq!(
        seen["metadata"]["finalizers"],
        json!(["resource.kubernetes.io/delete-protection"])
    );
    let writes = lab.writes().len();
    claims.reserve().await.unwrap();
    assert_eq!(lab.writes().len(), writes, "it is reserved already");

    claims.release().await;
    let seen = lab.see(&claim("data")).await;
    assert_eq!(held(&seen), (Value::Null, names(&[])));
    assert_eq!(seen["status"]["reservedFor"], Value::Null, "not an empty list");
    let writes = lab.writes().len();
    claims.release().await;
    assert_eq!(lab.writes().len(), writes, "it is released already");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_in_a_claim_is_not_added_twice() {
    let lab = Lab::new().await;
    let mut protected = claim("data");
    protected["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    lab.create(protected).await;
    let pod = lab.pod("a").await;
    let reserved = json!([{"resource": "pods", "name": "a", "uid": pod.metadata.uid}]);
    let status = json!({"allocation": device("card-1"), "reservedFor": reserved});
    lab.set_status(&claim("data"), status).await;
    let ordered = claiming(&pod);
    lab.claims(&ordered).reserve().await.unwrap();
    assert_eq!(lab.writes(), [""; 0]);
    assert_eq!(held(&lab.see(&claim("data")).await), (json!("card-1"), names(&["a"])));
}

#[tokio::test(start_paused = true)]
async fn a_shared_claim_stays_reserved_for_its_other_pod() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    let (a, b) = (claiming(&lab.pod("a").await), claiming(&lab.pod("b").await));
    lab.claims(&a).reserve().await.unwrap();
    lab.claims(&b).reserve().await.unwrap();
    let seen = lab.see(&claim("data")).await;
    assert_eq!(held(&seen), (json!("card-1"), names(&["a", "b"])));
    assert_eq!(seen["metadata"]["finalizers"].as_array().unwrap().len(), 1);
    lab.claims(&a).release().await;
    assert_eq!(held(&lab.see(&claim("data")).await), (json!("card-1"), names(&["b"])));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_has_other_devices_by_now_or_is_leaving_is_not_taken() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    lab.set_status(&claim("data"), json!({"allocation": device("card-2")}))
        .await;
    let ordered = claiming(&lab.pod("a").await);
    let why = lab.claims(&ordered).reserve().await.unwrap_err();
    assert_eq!(why, "claim data has been given other devices meanwhile");
    assert_eq!(held(&lab.see(&claim("data")).await), (json!("card-2"), names(&[])));

    lab.set_status(&claim("data"), json!({"allocation": null})).await;
    lab.patch(
        &claim("data"),
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    )
    .await;
    lab.api(&claim("data"))
        .delete("data", &Default::default())
        .await
        .unwrap();
    let why = lab.claims(&ordered).reserve().await.unwrap_err();
    assert_eq!(why, "claim data is being deleted");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_has_all_consumers_that_it_may_have_is_reserved_once_one_of_them_is_gone() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    let ordered = claiming(&lab.pod("a").await);
    let used_by = |count: usize| {
        let names = (0..count).map(|number| format!("user-{number}"));
        let reserved: Vec<Value> = names
            .map(|name| json!({"resource": "pods", "name": name, "uid": name}))
            .collect();
        json!({"allocation": device("card-1"), "reservedFor": reserved})
    };
    lab.set_status(&claim("data"), used_by(256)).await;
    let why = lab.claims(&ordered).reserve().await.unwrap_err();
    assert_eq!(why, "claim data has reached its maximum number of consumers (256)");
    assert_eq!(lab.writes(), [""; 0]);

    lab.set_status(&claim("data"), used_by(255)).await;
    lab.claims(&ordered).reserve().await.unwrap();
    assert_eq!(held(&lab.see(&claim("data")).await).1.len(), 256);
    lab.claims(&ordered).reserve().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_device_is_an_error() {
    let lab = Lab::new().await;
    let mut ordered = claiming(&lab.pod("a").await);
    ordered.given.named[0].allocation = None;
    let why = lab.claims(&ordered).reserve().await.unwrap_err();
    assert_eq!(why, "claim data is given nothing");
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_claim_is_read_again_and_a_refusal_is_final() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    let ordered = claiming(&lab.pod("a").await);
    let claims = lab.claims(&ordered);
    let rule = lab.fault(statuses(), refuse(409), Times::Next(2));
    claims.reserve().await.unwrap();
    assert_eq!(lab.server.faults().struck(rule), 2);
    lab.server.faults().clear();
    let rule = lab.fault(statuses(), refuse(409), Times::Always);
    let began = tokio::time::Instant::now();
    claims.release().await;
    assert_eq!(lab.server.faults().struck(rule), 6, "it is given up in the end");
    let pauses = Duration::from_millis(10 + 20 + 40 + 80 + 160 + 320);
    assert!(began.elapsed() >= pauses, "{:?}", began.elapsed());
    lab.server.faults().clear();
    claims.release().await;
    lab.fault(statuses(), refuse(409), Times::Always);
    let why = claims.reserve().await.unwrap_err();
    assert!(why.starts_with("claim data: "), "{why}");
    lab.server.faults().clear();
    let rule = lab.fault(statuses(), refuse(403), Times::Always);
    let why = claims.reserve().await.unwrap_err();
    assert!(why.starts_with("claim data: "), "{why}");
    assert_eq!(lab.server.faults().struck(rule), 1);
    lab.server.faults().clear();
    let rule = lab.fault(statuses(), refuse(503), Times::Always);
    lab.lose();
    assert!(claims.reserve().await.is_err());
    assert_eq!(
        lab.server.faults().struck(rule),
        1,
        "not repeated by one that does not lead"
    );
}

/// They read the claim at the same time.
#[tokio::test(start_paused = true)]
async fn all_pods_of_a_gang_that_share_a_claim_get_it_without_conflicts() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    lab.fault(statuses(), Effect::Delay(Duration::from_millis(100)), Times::Always);
    let mut binds = Vec::new();
    for number in 0..32 {
        binds.push(claiming(&lab.pod(&format!("p{number}")).await));
    }
    let turns = Arc::<ClaimTurns>::default();
    let claims: Vec<_> = binds
        .iter()
        .map(|bind| Claims::of(&lab.context, bind, Arc::clone(&turns)))
        .collect();
    let reserved = join_all(claims.iter().map(Claims::reserve)).await;
    assert_eq!(reserved, vec![Ok(()); 32]);
    assert_eq!(held(&lab.see(&claim("data")).await).1.len(), 32);
    let conflicts = lab.writes().iter().filter(|write| write.ends_with(" 409")).count();
    assert_eq!(conflicts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_bind_does_not_wait_for_ever_for_another_whose_request_hangs() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    let turns = Arc::<ClaimTurns>::default();
    let key = Key {
        namespace: "team".to_owned(),
        name: "data".to_owned(),
    };
    let _others = turns.next(&key).await;
    let ordered = claiming(&lab.pod("a").await);
    Claims::of(&lab.context, &ordered, turns).reserve().await.unwrap();
    assert_eq!(held(&lab.see(&claim("data")).await), (json!("card-1"), names(&["a"])));
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_fails_gives_its_claims_back_and_one_that_succeeds_keeps_them() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    let rule = lab.fault(Match::bindings(), refuse(403), Times::Next(1));
    let ordered = claiming(&lab.pod("a").await);
    assert!(failed(&lab.attempt().bind(&ordered).await));
    assert_eq!(lab.server.faults().struck(rule), 1);
    assert_eq!(held(&lab.see(&claim("data")).await), (Value::Null, names(&[])));
    let looks = lab.fault(
        Match::verb_on("get", "pods"),
        Effect::Delay(Default::default()),
        Times::Always,
    );
    assert_eq!(lab.attempt().bind(&ordered).await.ending, Ending::Done);
    assert_eq!(lab.server.faults().struck(looks), 0, "there is no doubt");
    assert_eq!(held(&lab.see(&claim("data")).await), (json!("card-1"), names(&["a"])));
}

#[tokio::test(start_paused = true)]
async fn a_bind_whose_claim_cannot_be_had_is_not_tried() {
    let lab = Lab::new().await;
    let ordered = claiming(&lab.pod("a").await);
    let report = lab.attempt().bind(&ordered).await;
    assert!(failed(&report), "there is no such claim: {report:?}");
    assert_eq!(report.cause, "claims");
    assert_eq!(lab.node_of("a").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_an_extended_resource_gets_a_claim_and_names_it_in_its_status() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let ordered = extended(&pod);
    let claims = lab.claims(&ordered);
    claims.reserve().await.unwrap();
    let told = &json!(lab.seen("a").await)["status"]["extendedResourceClaimStatus"];
    assert_eq!(told["requestMappings"][0]["containerName"], "main");
    let made = lab.made_for("a").await;
    let seen = lab.see(&made).await;
    assert_eq!(held(&seen), (json!("card-1"), names(&["a"])));
    assert_eq!(seen["metadata"]["ownerReferences"][0]["uid"], json!(pod.metadata.uid));
    assert_eq!(
        seen["metadata"]["annotations"],
        json!({"resource.kubernetes.io/extended-resource-claim": "true"})
    );
    let writes = |what: &str| lab.writes().iter().filter(|write| write.starts_with(what)).count();
    claims.reserve().await.unwrap();
    assert_eq!(writes("create resourceclaims"), 1, "it is found again");

    let before = lab.writes().len();
    claims.release().await;
    assert_eq!(
        lab.writes()[before..],
        [
            "patch pods/status 200",
            "patch resourceclaims/status 200",
            "patch resourceclaims 200",
            "delete resourceclaims 200"
        ],
        "its device is free before it goes"
    );
    assert_eq!(lab.see(&made).await, Value::Null, "it goes with the failure");
    let told = &json!(lab.seen("a").await)["status"]["extendedResourceClaimStatus"];
    assert_eq!(told, &Value::Null);
    claims.release().await;
}

impl Lab {
    /// The claims of a bind, which waits for nobody's turn.
    fn claims<'a>(&'a self, bind: &'a OrderedBind) -> Claims<'a> {
        Claims::of(&self.context, bind, Arc::default())
    }

    /// The claim for the pod's extended resource, which its status names.
    pub async fn made_for(&self, pod: &str) -> Value {
        let told = &json!(self.seen(pod).await)["status"]["extendedResourceClaimStatus"];
        claim(told["resourceClaimName"].as_str().expect("it is named"))
    }
}

const NOT_RELEASED: &str = "claim not released";

#[tokio::test(start_paused = true)]
async fn a_claim_that_got_no_device_is_deleted_without_giving_one_back() {
    let lab = Lab::new().await;
    let ordered = extended(&lab.pod("a").await);
    let claims = lab.claims(&ordered);
    lab.fault(statuses(), refuse(403), Times::Always);
    claims.reserve().await.unwrap_err();
    let before = lab.writes().len();
    claims.release().await;
    assert_eq!(
        lab.writes()[before..],
        [
            "patch pods/status 200",
            "patch resourceclaims 200",
            "delete resourceclaims 200"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_claim_is_repeated_and_one_that_is_refused_leaves_its_device_free() {
    let lab = Lab::new().await;
    let ordered = extended(&lab.pod("a").await);
    let claims = lab.claims(&ordered);
    let deletions = || Match::verb_on("delete", "resourceclaims");
    let warnings = Warnings::from_now_on();

    claims.reserve().await.unwrap();
    let made = lab.made_for("a").await;
    lab.fault(deletions(), refuse(503), Times::Next(1));
    claims.release().await;
    assert_eq!(lab.see(&made).await, Value::Null);
    assert_eq!(warnings.of(NOT_RELEASED), 0);

    claims.reserve().await.unwrap();
    lab.fault(deletions(), refuse(403), Times::Always);
    claims.release().await;
    assert_eq!(held(&lab.see(&made).await), (Value::Null, names(&[])));
    assert_eq!(warnings.of(NOT_RELEASED), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_being_deleted_goes_with_its_finalizer() {
    let lab = Lab::new().await;
    let ordered = extended(&lab.pod("a").await);
    let claims = lab.claims(&ordered);
    claims.reserve().await.unwrap();
    let made = lab.made_for("a").await;
    lab.delete(&made).await;
    assert_ne!(lab.see(&made).await, Value::Null, "it is protected");
    let warnings = Warnings::from_now_on();
    claims.release().await;
    assert_eq!(lab.see(&made).await, Value::Null);
    assert_eq!(warnings.of(NOT_RELEASED), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_not_reserved_before_a_release_that_was_given_up_can_have_no_effect() {
    let lab = Lab::new().await;
    lab.create(claim("data")).await;
    let ordered = claiming(&lab.pod("a").await);
    let claims = lab.claims(&ordered);
    claims.reserve().await.unwrap();
    lab.fault(statuses(), Effect::Hang, Times::Always);
    claims.release().await;
    lab.server.faults().clear();
    let began = tokio::time::Instant::now();
    claims.reserve().await.unwrap();
    let waited = began.elapsed().as_secs();
    assert!((8..=10).contains(&waited), "{waited} s");
    let began = tokio::time::Instant::now();
    claims.reserve().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "it is settled");
}
