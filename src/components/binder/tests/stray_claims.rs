//! Claims that are reserved for pods without a node are given back.

use std::time::Duration;

use tokio::time::sleep;

use super::claims::{claim, claiming, device, extended, held, names, statuses};
use super::running::Case;
use super::*;
use crate::components::binder::claims::Claims;
use crate::components::bus::{Change, Object, ToBinder};
use crate::devcluster::apiserver::{Match, Times};

/// By then a claim has been given back that is to be.
const TWO_LOOKS: Duration = Duration::from_secs(65);

/// A consumer of a claim.
fn consumer(pod: &Pod) -> Value {
    json!({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid})
}

impl Case {
    /// The pod `a` has no node, and the claim `data` is reserved for it.
    async fn stray() -> (Self, Pod) {
        let case = Case::new().await;
        let pod = case.lab.pod("a").await;
        case.reserved(&[&pod]).await;
        case.watch().await;
        case.watch_claim(&claim("data")).await;
        (case, pod)
    }

    /// The claim `data`, with a device that is reserved for these pods.
    async fn reserved(&self, pods: &[&Pod]) {
        self.lab.create(claim("data")).await;
        let consumers: Vec<Value> = pods.iter().map(|pod| consumer(pod)).collect();
        let status = json!({"allocation": device("card-1"), "reservedFor": consumers});
        self.lab.set_status(&claim("data"), status).await;
    }

    /// The watch shows a claim as it is.
    async fn watch_claim(&self, object: &Value) {
        let (seen, _) = self.lab.stores.resource_claims.insert(read(self.lab.see(object).await));
        self.tell(ToBinder::Change(Change::Applied(Object::ResourceClaim(seen))))
            .await;
    }

    /// The device of the claim `data`, and the pods for which it is reserved.
    async fn data(&self) -> (Value, Vec<String>) {
        held(&self.lab.see(&claim("data")).await)
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_process_reserved_before_it_ended_is_given_back() {
    let case = Case::starting().await;
    let pod = case.lab.pod("a").await;
    case.reserved(&[&pod]).await;
    case.watch().await;
    case.watch_claim(&claim("data")).await;
    sleep(TWO_LOOKS).await;
    assert_eq!(case.data().await.1, names(&["a"]), "nothing is done before the term");

    case.caught_up(1).await;
    sleep(TWO_LOOKS / 2).await;
    assert_eq!(case.data().await.1, names(&["a"]), "it may be on its way to its node");
    sleep(TWO_LOOKS / 2).await;
    assert_eq!(case.data().await, (Value::Null, names(&[])));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_given_back_when_its_release_after_a_failed_bind_failed() {
    let mut case = Case::new().await;
    let pod = case.lab.pod("a").await;
    case.lab.create(claim("data")).await;
    case.watch().await;
    case.lab.fault(Match::bindings(), refuse(403), Times::Next(1));
    // The first is the reservation.
    let releases = case.lab.fault(statuses(), refuse(403), Times::After(1));
    case.order(vec![claiming(&pod)], Vec::new()).await;
    assert_eq!(case.outcomes(Duration::from_secs(10)).await.len(), 1);
    assert_eq!(case.lab.struck(releases), 1);
    assert_eq!(case.data().await, (json!("card-1"), names(&["a"])));

    case.watch_claim(&claim("data")).await;
    sleep(TWO_LOOKS).await;
    assert_eq!(case.data().await, (Value::Null, names(&[])));
}

#[tokio::test(start_paused = true)]
async fn a_claim_stays_with_a_pod_that_is_being_bound() {
    let case = Case::new().await;
    let pod = case.lab.pod("a").await;
    case.lab.create(claim("data")).await;
    case.watch().await;
    case.lab.fault(Match::bindings(), Effect::Hang, Times::Always);
    let reads = case
        .lab
        .fault(Match::verb_on("get", "pods"), refuse(503), Times::Always);
    case.order(vec![claiming(&pod)], Vec::new()).await;
    sleep(MOMENT).await;
    case.watch_claim(&claim("data")).await;
    sleep(TWO_LOOKS).await;
    assert!(case.lab.struck(reads) > 0, "it is not known whether the pod is bound");
    assert_eq!(case.data().await.1, names(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_bound_while_its_claim_may_still_be_taken_from_it() {
    let (case, pod) = Case::stray().await;
    let hangs = case.lab.fault(statuses(), Effect::Hang, Times::Next(1));
    sleep(Duration::from_secs(61)).await;
    assert_eq!(case.lab.struck(hangs), 1, "it is being given back");
    case.order(vec![claiming(&pod)], Vec::new()).await;
    sleep(Duration::from_secs(15)).await;
    assert!(!case.is_bound("a").await);
    sleep(Duration::from_secs(10)).await;
    assert!(case.is_bound("a").await);
    assert_eq!(case.data().await, (json!("card-1"), names(&["a"])));
}

#[tokio::test(start_paused = true)]
async fn looks_of_an_earlier_term_do_not_count() {
    let (case, _pod) = Case::stray().await;
    sleep(Duration::from_secs(45)).await;
    case.lab.lose();
    case.lab.lead(2);
    case.caught_up(2).await;
    sleep(Duration::from_secs(45)).await;
    assert_eq!(case.data().await.1, names(&["a"]), "one look in this term");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(case.data().await.1, names(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_claim_stays_with_a_pod_whose_binding_no_watch_has_shown() {
    let case = Case::new().await;
    let pod = case.lab.pod("a").await;
    case.reserved(&[&pod]).await;
    case.watch().await;
    case.lab.bind_to("a", "n1").await;
    case.watch_claim(&claim("data")).await;
    sleep(TWO_LOOKS).await;
    assert_eq!(case.data().await.1, names(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn a_shared_claim_stays_with_its_other_pods_and_one_of_another_scheduler_is_left_alone() {
    let case = Case::new().await;
    let (a, b) = (case.lab.pod("a").await, case.lab.pod("b").await);
    let mut other = running::typed(&case.lab.pod("c").await);
    other["metadata"] = json!({"namespace": "team", "name": "other"});
    other["spec"]["schedulerName"] = json!("default-scheduler");
    let other: Pod = read(case.lab.create(other).await);
    case.lab.bind_to("b", "n1").await;
    case.reserved(&[&a, &b, &other]).await;
    case.watch().await;
    case.watch_claim(&claim("data")).await;
    sleep(TWO_LOOKS).await;
    assert_eq!(case.data().await, (json!("card-1"), names(&["b", "other"])));
}

#[tokio::test(start_paused = true)]
async fn a_claim_for_extended_resources_is_deleted() {
    let case = Case::new().await;
    let pod = case.lab.pod("a").await;
    let ordered = extended(&pod);
    Claims::of(&case.lab.context, &ordered, Arc::default())
        .reserve()
        .await
        .unwrap();
    let made = case.lab.made_for("a").await;
    case.watch().await;
    case.watch_claim(&made).await;
    sleep(TWO_LOOKS).await;
    assert_eq!(case.lab.see(&made).await, Value::Null);
    let told = &json!(case.lab.seen("a").await)["status"]["extendedResourceClaimStatus"];
    assert_eq!(told, &Value::Null);
}
