//! Shared GPUs from reservation to return, and the bind requests beside them.

use std::time::Duration;

use kube::ResourceExt;
use tokio::time::sleep;

use super::running::{Case, typed};
use super::*;
use crate::components::bus::{Change, Kind, Object, ToBinder};
use crate::components::pods::Account;
use crate::components::tests::recorded::Metrics;
use crate::devcluster::apiserver::{Identity, RuleId};

/// Requests of a verb about reservation pods.
fn on_reservations(verb: &str) -> Match {
    Match {
        namespace: Some("kai-resource-reservation".to_owned()),
        ..Match::verb_on(verb, "pods")
    }
}

impl Case {
    /// Counts requests without changing them.
    fn counted(&self, matching: Match) -> RuleId {
        self.lab.fault(matching, Effect::Delay(Duration::ZERO), Times::Always)
    }

    /// The bind goes on until a device is there, and the watch shows it.
    async fn with_device(&self, bind: OrderedBind) {
        self.order(vec![bind], Vec::new()).await;
        sleep(MOMENT).await;
        self.report_device("GPU-1").await;
        self.watch().await;
    }

    /// A pod `a` that uses half of a GPU, as the watch shows.
    async fn user(&self) {
        let ordered = self.sharing("a").await;
        self.watch().await;
        self.with_device(ordered).await;
        assert!(self.is_bound("a").await);
        self.watch().await;
    }

    /// A bind of a pod `a` that has its device, and writes config maps for two seconds.
    async fn writing_config_maps() -> Self {
        let case = Self::new().await;
        let ordered = case.sharing("a").await;
        case.watch().await;
        let config_maps = Match::verb_on("create", "configmaps");
        case.lab.fault(config_maps, Effect::Delay(seconds(2)), Times::Always);
        case.with_device(ordered).await;
        case
    }

    /// A bind of a pod `a` whose reservation pod is requested, with this effect on the requests.
    async fn reserving(effect: Effect) -> Self {
        let case = Self::new().await;
        let ordered = case.sharing("a").await;
        case.watch().await;
        case.lab.fault(on_reservations("create"), effect, Times::Always);
        case.order(vec![ordered], Vec::new()).await;
        case
    }

    /// The pod is deleted, and the watch shows it.
    async fn gone(&self, name: &str) {
        let pod = self.lab.seen(name).await.unwrap();
        self.lab.delete_pod(name).await;
        self.show_deletion(pod).await;
    }

    async fn show_deletion(&self, pod: Pod) {
        self.tell(ToBinder::Change(Change::Deleted(Object::Pod(Arc::new(pod)))))
            .await;
        sleep(MOMENT).await;
    }

    /// Somebody deletes the reservation pods; the watch shows it.
    async fn lose_reservations(&self) {
        for pod in self.reservations().await {
            self.lab.delete(&typed(&pod)).await;
            self.show_deletion(pod).await;
        }
    }

    /// The status of a pod's condition `PodBound`.
    async fn pod_bound(&self, pod: &str) -> Option<String> {
        let conditions = self.lab.seen(pod).await?.status?.conditions?;
        let bound = conditions.into_iter().find(|condition| condition.type_ == "PodBound");
        Some(bound?.status)
    }

    /// A bind request of another client, with so many failed attempts.
    async fn foreign_request(&self, bind: &OrderedBind, failed: i32) {
        let mut request = bind_request::request(bind, &Settings::default());
        (request.metadata.labels, request.spec.backoff_limit) = (None, Some(10));
        let status = json!({"phase": "Failed", "failedAttempts": failed});
        let mut request = json!(request);
        (request["apiVersion"], request["kind"]) = (json!("scheduling.run.ai/v1alpha2"), json!("BindRequest"));
        if failed > 0 {
            request["status"] = status;
        }
        self.lab.create(request).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gpu_stays_reserved_while_the_binding_is_under_way() {
    let case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.lab
        .fault(Match::bindings(), Effect::Delay(seconds(5)), Times::Always);
    case.with_device(ordered).await;
    sleep(seconds(4)).await;
    assert_eq!(case.reservations().await.len(), 1);
    sleep(seconds(2)).await;
    assert!(case.is_bound("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_reservation_pod_goes_while_it_is_bound_gets_the_same_gpu_or_is_not_bound() {
    for (gpu, bound) in [("GPU-1", true), ("GPU-2", false)] {
        let case = Case::writing_config_maps().await;
        case.lose_reservations().await;
        sleep(seconds(5)).await;
        assert!(!case.is_bound("a").await, "no reservation pod holds its GPU");
        case.report_device(gpu).await;
        case.watch().await;
        sleep(seconds(1)).await;
        assert_eq!(case.is_bound("a").await, bound, "{gpu}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_reservation_pod_went_while_the_watch_was_behind_is_not_bound() {
    for (goes, bound) in [(false, true), (true, false)] {
        let case = Case::writing_config_maps().await;
        if goes {
            for pod in case.reservations().await {
                case.lab.delete(&typed(&pod)).await;
            }
        }
        sleep(seconds(5)).await;
        assert_eq!(case.is_bound("a").await, bound, "it goes: {goes}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_gpus_that_a_pod_shares_are_looked_at_by_one_request() {
    for (goes, bound) in [(false, true), (true, false)] {
        let case = Case::new().await;
        let mut ordered = case.sharing("a").await;
        let two = json!({"metadata": {"annotations": {"gpu-fraction-num-devices": "2"}}});
        let pod = case.lab.seen("a").await.unwrap();
        case.lab.patch(&typed(&pod), two).await;
        ordered.share = Share::of_pod(&case.lab.seen("a").await.unwrap());
        ordered.placement.gpu_groups = ["g", "h"].map(Arc::from).into();
        case.watch().await;
        let config_maps = Match::verb_on("create", "configmaps");
        case.lab.fault(config_maps, Effect::Delay(seconds(2)), Times::Always);
        case.order(vec![ordered], Vec::new()).await;
        sleep(MOMENT).await;
        let reservations = case.reservations().await;
        for (pod, device) in reservations.iter().zip(["GPU-1", "GPU-2"]) {
            let reported = json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": device}}});
            case.lab.patch(&typed(pod), reported).await;
        }
        case.watch().await;
        if goes {
            case.lab.delete(&typed(&reservations[1])).await;
        }
        let lists = case.counted(on_reservations("list"));
        sleep(seconds(8)).await;
        assert_eq!(
            (reservations.len(), case.is_bound("a").await),
            (2, bound),
            "one goes: {goes}"
        );
        assert_eq!(case.lab.struck(lists), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_scheduler_knows_of_a_reservation_before_it_is_requested_until_the_watch_shows_it() {
    let mut case = Case::reserving(Effect::Delay(seconds(3))).await;
    sleep(seconds(1)).await;
    assert_eq!(case.told_of_reservations(), ["requested"]);
    sleep(seconds(30)).await;
    assert_eq!(case.reservations().await.len(), 1);
    assert_eq!(case.told_of_reservations(), [""; 0], "the watch has not shown it");
    case.watch().await;
    sleep(seconds(1)).await;
    assert_eq!(case.told_of_reservations(), ["settled"]);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_whose_pod_goes_while_it_is_requested_is_settled_once_it_is_given_back() {
    let mut case = Case::reserving(Effect::Delay(seconds(3))).await;
    sleep(seconds(1)).await;
    case.gone("a").await;
    sleep(seconds(2)).await;
    assert_eq!(case.reservations().await.len(), 1, "the request takes effect late");
    assert_eq!(case.told_of_reservations(), ["requested"]);
    sleep(seconds(60)).await;
    assert!(case.reservations().await.is_empty());
    assert_eq!(case.told_of_reservations(), ["settled"]);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_refused_is_settled_at_once_and_one_without_answer_later() {
    for (effect, settles_after) in [(refuse(403), 0), (refuse(404), 0), (busy(1), 0), (refuse(500), 11)] {
        let mut case = Case::reserving(effect).await;
        while case.events().await.is_empty() {}
        sleep(seconds(settles_after)).await;
        let told = case.told_of_reservations();
        assert_eq!(told, ["requested", "settled"], "after {settles_after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn reservation_pods_have_the_configured_names() {
    let mut settings = Settings::default();
    settings.own_pods.reservation = Account::new("gpus", "holder");
    settings.sharing.app_label = "gpu-holder".to_owned();
    let case = Case::starting_with(settings).await;
    case.caught_up(1).await;
    case.user().await;
    let made = case.reservations().await.remove(0);
    assert_eq!(made.labels()["app"], "gpu-holder");
    let account = made.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    assert_eq!(account, Some("holder"));
    case.gone("a").await;
    sleep(seconds(60)).await;
    assert!(case.reservations().await.is_empty(), "the GPU is given back");
}

#[tokio::test(start_paused = true)]
async fn the_gpu_of_a_bind_that_failed_is_given_back() {
    let mut case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.lab
        .fault(Match::verb_on("create", "configmaps"), refuse(403), Times::Always);
    case.with_device(ordered).await;
    assert_eq!(case.outcomes(MOMENT).await, ["a not bound, 1 s"]);
    sleep(seconds(1)).await;
    assert!(case.reservations().await.is_empty());
}

/// As while the definition of bind requests is replaced.
#[tokio::test(start_paused = true)]
async fn the_scheduler_is_told_of_a_bind_whose_request_nobody_serves() {
    let mut case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.lab
        .fault(Match::verb_on("create", "bindrequests"), refuse(404), Times::Next(1));
    case.order(vec![ordered.clone()], Vec::new()).await;
    assert_eq!(case.outcomes(MOMENT).await, ["a not bound, 1 s"]);
    case.with_device(ordered).await;
    assert!(case.is_bound("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_uses_its_gpu_from_its_binding_on_whatever_the_watch_shows() {
    let mut case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    let bindings = case.counted(Match::bindings());
    case.with_device(ordered).await;
    sleep(MOMENT).await;
    assert!(case.is_bound("a").await);
    let looks = case.counted(on_reservations("get"));
    sleep(seconds(60)).await;
    assert_eq!(case.lab.struck(looks), 0, "nothing is to be given back");
    assert_eq!(case.lab.struck(bindings), 1);
    assert_eq!(case.events().await, ["Scheduled"]);
    assert_eq!(case.outcomes(MOMENT).await, [""; 0]);
    assert_eq!((case.reservations().await.len(), case.requests().await.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_gpu_of_a_pod_that_ended_or_went_during_its_binding_is_given_back() {
    for ends in [true, false] {
        let case = Case::new().await;
        let ordered = case.sharing("a").await;
        case.watch().await;
        case.lab
            .fault(Match::bindings(), Effect::Delay(seconds(1)), Times::Always);
        case.with_device(ordered).await;
        let mut shown = case.lab.seen("a").await.unwrap();
        if ends {
            shown.status.get_or_insert_default().phase = Some("Failed".to_owned());
        } else {
            shown.metadata.uid = Some("another".to_owned());
        }
        case.lab.stores.pods.insert(shown);
        sleep(seconds(1)).await;
        assert!(case.is_bound("a").await);
        case.lab.delete_pod("a").await;
        sleep(seconds(2)).await;
        assert!(case.reservations().await.is_empty(), "ends: {ends}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_schedulers_are_left_alone() {
    let case = Case::new().await;
    let containers = json!([{"name": "main", "image": "i"}]);
    let metadata = json!({
        "namespace": "team", "name": "foreign", "labels": {"runai-gpu-group": "g"}, "annotations": {"gpu-fraction": "0.5"},
    });
    let spec = json!({"schedulerName": "other", "nodeName": "n1", "containers": containers});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    case.lab.create(pod).await;
    case.watch().await;
    sleep(seconds(60)).await;
    assert_eq!(case.lab.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn users_of_a_lost_gpu_are_evicted_with_an_event() {
    let mut case = Case::new().await;
    case.user().await;
    assert_eq!(case.events().await, ["Scheduled"]);
    case.lose_reservations().await;
    assert_eq!(case.reservations().await.len(), 1, "it is made anew");
    case.report_device("GPU-2").await;
    case.watch().await;
    sleep(seconds(1)).await;
    assert!(case.reservations().await.is_empty(), "it is another device");
    for pod in case.lab.stores.pods.list() {
        if pod.metadata.namespace.as_deref() == Some("kai-resource-reservation") {
            case.show_deletion(Pod::clone(&pod)).await;
        }
    }
    sleep(seconds(5)).await;
    let user = case.lab.seen("a").await;
    assert!(user.is_none_or(|user| user.metadata.deletion_timestamp.is_some()));
    assert_eq!(case.events().await, ["Evict"]);
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_could_not_be_given_back_is_given_back_later() {
    let case = Case::new().await;
    case.user().await;
    let rule = case.lab.fault(on_reservations("delete"), refuse(403), Times::Next(1));
    case.gone("a").await;
    sleep(seconds(1)).await;
    assert_eq!((case.lab.struck(rule), case.reservations().await.len()), (1, 1));
    sleep(seconds(3)).await;
    assert!(case.reservations().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn unused_reservation_pods_are_deleted_once_the_watches_have_caught_up() {
    let case = Case::new().await;
    case.user().await;
    let pod = case.lab.seen("a").await.unwrap();
    case.lab.lose();
    sleep(MOMENT).await;
    case.lab.delete_pod("a").await;
    case.show_deletion(pod).await;
    case.lab.lead(2);
    sleep(seconds(5)).await;
    assert_eq!(case.reservations().await.len(), 1, "not caught up");
    case.caught_up(2).await;
    sleep(seconds(1)).await;
    assert!(case.reservations().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn bind_requests_wait_until_all_kinds_that_they_need_are_listed() {
    let case = Case::starting().await;
    let ordered = case.sharing("a").await;
    case.foreign_request(&ordered, 0).await;
    case.watch().await;
    for kind in Kind::ALL {
        case.tell(ToBinder::Current(*kind, 1)).await;
    }
    let listed = [
        Kind::Pod,
        Kind::BindRequest,
        Kind::Node,
        Kind::PersistentVolume,
        Kind::ResourceClaim,
    ];
    for kind in listed {
        case.tell(ToBinder::Change(Change::Synced(kind))).await;
    }
    sleep(seconds(1)).await;
    assert!(case.reservations().await.is_empty());
    case.tell(ToBinder::Change(Change::Synced(Kind::PersistentVolumeClaim)))
        .await;
    sleep(MOMENT).await;
    assert_eq!(case.reservations().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_bind_request_of_a_deleted_pod_is_deleted() {
    let case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.with_device(ordered).await;
    case.watch_requests().await;
    assert_eq!(
        case.requests().await.len(),
        1,
        "the watch does not show the pod bound yet"
    );
    let pod = case.lab.seen("a").await.unwrap();
    case.lab.delete_pod("a").await;
    case.lab.stores.pods.insert(Pod {
        spec: None,
        metadata: kube::api::ObjectMeta {
            uid: Some("another".to_owned()),
            ..pod.metadata.clone()
        },
        ..Pod::default()
    });
    case.show_deletion(pod).await;
    assert!(case.requests().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bind_request_whose_deletion_is_refused_is_deleted_later_and_not_twice_at_a_time() {
    let case = Case::new().await;
    let deletions = Match::verb_on("delete", "bindrequests");
    let refused = case.lab.fault(deletions.clone(), refuse(403), Times::Next(1));
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.with_device(ordered).await;
    let (pod, _) = case.lab.stores.pods.insert(case.lab.seen("a").await.unwrap());
    case.tell(ToBinder::Change(Change::Applied(Object::Pod(pod)))).await;
    sleep(MOMENT).await;
    assert_eq!((case.lab.struck(refused), case.requests().await.len()), (1, 1));
    let slow = case.lab.fault(deletions, Effect::Delay(seconds(4)), Times::Always);
    sleep(seconds(11)).await;
    assert_eq!(case.lab.struck(slow), 1);
    for _ in 0..3 {
        case.watch().await;
        sleep(seconds(1)).await;
    }
    assert_eq!(case.lab.struck(slow), 1);
    sleep(seconds(2)).await;
    assert!(case.requests().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_success_of_a_bind_request_of_another_client_is_reported_once() {
    let case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.foreign_request(&ordered, 0).await;
    case.watch().await;
    sleep(MOMENT).await;
    case.report_device("GPU-1").await;
    let reports = Match {
        subresource: Some("status".to_owned()),
        ..Match::verb_on("patch", "bindrequests")
    };
    let slow = case.lab.fault(reports, Effect::Delay(seconds(4)), Times::Always);
    case.watch().await;
    assert!(case.is_bound("a").await);
    for _ in 0..3 {
        case.watch().await;
        sleep(seconds(1)).await;
    }
    assert_eq!(case.lab.struck(slow), 1);
    sleep(seconds(2)).await;
    let status = case.requests().await[0].status.clone().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
}

#[tokio::test(start_paused = true)]
async fn a_bind_request_of_another_client_waits_longer_after_each_failed_attempt() {
    let mut case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.foreign_request(&ordered, 3).await;
    let refused = case.lab.fault(on_reservations("create"), refuse(403), Times::Always);
    case.watch().await;
    assert_eq!(case.lab.struck(refused), 1);
    case.watch().await;
    sleep(seconds(7)).await;
    assert_eq!(case.lab.struck(refused), 1);
    sleep(seconds(2)).await;
    assert_eq!(case.lab.struck(refused), 2);
    let outcomes = case.outcomes(MOMENT).await;
    assert_eq!(outcomes, [""; 0], "the scheduler has nothing to do");
    let status = case.requests().await[0].status.clone().unwrap();
    assert_eq!(status.failed_attempts, Some(5));
}

impl Case {
    /// The first bind of a pod that shares a GPU fails.
    async fn sharing_fails_once(&self, name: &str) -> OrderedBind {
        let ordered = self.sharing(name).await;
        self.watch().await;
        self.lab.fault(on_reservations("create"), refuse(403), Times::Next(1));
        self.order(vec![ordered.clone()], Vec::new()).await;
        sleep(MOMENT).await;
        assert_eq!(self.pod_bound(name).await.as_deref(), Some("False"));
        ordered
    }
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_a_pod_is_corrected_when_it_is_bound_after_a_failure() {
    let case = Case::new().await;
    let ordered = case.sharing_fails_once("a").await;
    case.watch().await;
    case.with_device(ordered).await;
    sleep(MOMENT).await;
    assert_eq!(case.pod_bound("a").await.as_deref(), Some("True"));
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_a_pod_is_corrected_when_it_is_bound_without_further_steps_after_a_failure() {
    let case = Case::new().await;
    case.sharing_fails_once("a").await;

    let pod = case.lab.seen("a").await.unwrap();
    let none = json!({"metadata": {"annotations": {"gpu-fraction": null}}});
    case.lab.patch(&typed(&pod), none).await;
    let other = case.lab.pod("b").await;
    case.watch().await;
    let before = case.lab.writes().len();
    for pod in [pod, other] {
        case.order(vec![bind(&pod, "n1")], Vec::new()).await;
        sleep(MOMENT).await;
    }
    assert_eq!(case.pod_bound("a").await.as_deref(), Some("True"));
    assert_eq!(case.pod_bound("b").await, None);
    let binding = "create pods/binding 201";
    assert_eq!(case.lab.writes()[before..], [binding, "patch pods/status 200", binding]);
}

#[tokio::test(start_paused = true)]
async fn a_bind_of_which_nobody_knows_whether_it_succeeded_is_resumed_by_its_request() {
    let mut case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.lab.fault(Match::bindings(), Effect::DropAfter, Times::Next(1));
    let reads = Match {
        name: Some("a".to_owned()),
        user: Some(Identity::operator().user),
        ..Match::verb_on("get", "pods")
    };
    case.lab.fault(Match::bindings(), refuse(500), Times::Next(4));
    let rule = case.lab.fault(reads, refuse(500), Times::Always);
    case.with_device(ordered).await;
    sleep(seconds(4)).await;
    assert!(case.is_bound("a").await);
    assert_eq!(case.outcomes(MOMENT).await, [""; 0], "the scheduler keeps its place");
    assert_eq!((case.requests().await.len(), case.reservations().await.len()), (1, 1));
    case.lab.server.faults().remove(rule);
    case.watch().await;
    sleep(seconds(20)).await;
    assert!(case.requests().await.is_empty());
    assert_eq!(case.reservations().await.len(), 1, "it is used");
}

#[tokio::test(start_paused = true)]
async fn the_reservation_pod_of_a_fake_gpu_does_not_look_for_it() {
    for (label, expected) in [("true", &["reserve", "--fake-gpu"][..]), ("false", &["reserve"])] {
        let case = Case::new().await;
        let node = json!({"metadata": {"name": "n1", "labels": {"run.ai/fake.gpu": label}}});
        case.lab.stores.nodes.insert(serde_json::from_value(node).unwrap());
        let ordered = case.sharing("a").await;
        case.watch().await;
        case.order(vec![ordered], Vec::new()).await;
        sleep(MOMENT).await;
        let made = case.reservations().await.remove(0).spec.unwrap();
        assert_eq!(made.containers[0].args.as_deref().unwrap(), expected);
    }
}

/// A reservation pod of the group on node `n1` that somebody else made, with a device.
async fn reserved(case: &Case, group: &str, device: &str) -> Value {
    let settings = Settings::default();
    let account = &settings.own_pods.reservation;
    let made = super::super::reservation::pod("n1", group, Vec::new(), &Default::default(), &settings.sharing, account);
    let mut pod = typed(&made);
    pod["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = json!(device);
    pod["spec"]["priorityClassName"] = Value::Null;
    case.lab.create(pod).await
}

#[tokio::test(start_paused = true)]
async fn a_device_of_two_groups_is_an_error() {
    let metrics = Metrics::from_now_on();
    let broken = || metrics.of("unikai_shared_gpus_broken") == Some(2.0);
    // As the watch shows it, or as the API server answers when the binder makes the second.
    for watched in [true, false] {
        let case = Case::new().await;
        reserved(&case, "h", "GPU-1").await;
        case.lab.fault(on_reservations("delete"), refuse(403), Times::Always);
        case.watch().await;
        let mut ordered = case.sharing("a").await;
        ordered.placement.gpu_groups = vec!["g".into()];
        case.watch().await;
        reserved(&case, "g", "GPU-1").await;
        if watched {
            case.watch().await;
        } else {
            case.order(vec![ordered], Vec::new()).await;
            sleep(MOMENT).await;
        }
        sleep(seconds(59)).await;
        assert!(!broken(), "watched: {watched}");
        sleep(seconds(2)).await;
        assert!(broken(), "watched: {watched}");
        metrics::gauge!("unikai_shared_gpus_broken").set(0.0);
    }
}
