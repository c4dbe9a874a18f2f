//! Commands of the manager of GPU groups, and bind requests that are done.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::api::BindRequest;
use crate::components::binder::cleanup::{self, Cleanup};
use crate::components::binder::groups::{Command, DueCommand, GroupId, NoDevice};
use crate::components::binder::reservation;
use crate::components::binder::reserve::Reserver;
use crate::components::bus::channels;
use crate::components::fractions::users::{self, Share, User, Users};
use crate::components::pods;
use crate::components::watches::Key;

const NAMESPACE: &str = "kai-resource-reservation";
/// The number of the commands.
const NUMBER: u64 = 7;

fn id() -> GroupId {
    GroupId {
        node: "n1".into(),
        group: "g".into(),
    }
}

/// A pod that shares the GPU, as a user that is recorded.
fn users(pods: &[&Pod]) -> Users {
    let user = |pod: &&Pod| {
        let user = User {
            namespace: "team".to_owned(),
            name: pod.metadata.name.clone().unwrap(),
            share: Share::of([("gpu-fraction", "0.5")].into_iter()),
        };
        (pod.metadata.uid.clone().unwrap(), user)
    };
    pods.iter().map(user).collect()
}

fn make(users: Users) -> Command {
    Command::Make {
        id: id(),
        tolerations: Vec::new(),
        users,
    }
}

impl Lab {
    async fn carry_out(&self, command: Command) -> Cleanup {
        let (bus, _inboxes) = channels(1);
        let reserver = Reserver {
            caller: self.caller(),
            schedulers: bus.schedulers,
            stores: Arc::clone(&self.stores),
        };
        let due = DueCommand {
            command,
            term: 1,
            number: NUMBER,
        };
        cleanup::carry_out(reserver, due).await
    }

    /// Creates the reservation pod of the group for these users, which the watch shows.
    async fn reserve(&self, users: Users) -> Pod {
        for user in users.values() {
            self.stores
                .pods
                .insert(self.seen(&user.name).await.expect("it is there"));
        }
        match self.carry_out(make(users)).await {
            Cleanup::Made(made, NUMBER, Ok(pod), _) if made == id() => *pod,
            Cleanup::Made(_, _, Err(no_device), _) => panic!("{no_device:?}"),
            _ => panic!("it is made"),
        }
    }

    /// Why the reservation pod of the group is not made.
    async fn not_reserved(&self) -> NoDevice {
        match self.carry_out(make(Users::default())).await {
            Cleanup::Made(_, _, Err(no_device), _) => no_device,
            _ => panic!("it is not made"),
        }
    }

    async fn remove(&self, pods: &[&Pod], unless_used: bool) {
        let named = |pod: &&Pod| (pod.metadata.name.clone().unwrap(), pod.metadata.uid.clone().unwrap());
        let command = Command::Remove {
            id: id(),
            pods: pods.iter().map(named).collect(),
            unless_used,
        };
        assert!(
            matches!(self.carry_out(command).await, Cleanup::GivenUp(of, NUMBER, none) if of == id() && none.is_empty())
        );
    }

    async fn is_reserved(&self) -> bool {
        let name = reservation::name("n1", "g");
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), NAMESPACE);
        api.get_opt(&name).await.unwrap().is_some()
    }

    /// A pod that is bound to the node.
    async fn user(&self, name: &str, node: &str) -> Pod {
        self.pod(name).await;
        self.bind_to(name, node).await;
        self.seen(name).await.unwrap()
    }

    /// Serves bind requests, and creates one for the pod.
    async fn request(&self, pod: &Pod, ours: bool) -> BindRequest {
        self.install_definitions().await;
        let api: Api<BindRequest> = Api::namespaced(self.admin.clone(), "team");
        let mut request = bind_request::request(&bind(pod, "n1"), &Settings::default());
        if !ours {
            request.metadata.labels = None;
        }
        api.create(&PostParams::default(), &request).await.unwrap()
    }

    async fn requested(&self, request: &BindRequest) -> Option<BindRequest> {
        let api: Api<BindRequest> = Api::namespaced(self.admin.clone(), "team");
        api.get_opt(request.metadata.name.as_deref().unwrap()).await.unwrap()
    }

    /// The pod's condition: status and message.
    async fn told(&self, pod: &str) -> Option<(String, String)> {
        let conditions = self.seen(pod).await?.status?.conditions?;
        let found = conditions.into_iter().find(|condition| condition.type_ == "PodBound")?;
        Some((found.status, found.message.unwrap_or_default()))
    }

    async fn drop_done(&self, request: &BindRequest, pod: Option<Pod>) {
        let key = Key::of(&request.metadata);
        let (shared, pod) = (Arc::new(request.clone()), pod.map(Arc::new));
        let done = cleanup::drop_done(self.caller(), key.clone(), shared, pod).await;
        assert!(matches!(done, Cleanup::RequestDone(done) if done == key));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_pod_is_made_once_and_found_again() {
    let lab = Lab::new().await;
    let a = lab.pod("a").await;
    let made = lab.reserve(users(&[&a])).await;
    assert_eq!(users::of(&made), users(&[&a]));
    assert_eq!(
        made.spec.as_ref().unwrap().priority_class_name,
        None,
        "the class does not exist"
    );
    let again = lab.reserve(Users::default()).await;
    assert_eq!(again.metadata.uid, made.metadata.uid);
}

/// The scheduler gives the GPU to others as soon as the watch has shown that they are gone.
#[tokio::test(start_paused = true)]
async fn no_gpu_is_reserved_for_pods_that_are_gone_or_elsewhere() {
    let lab = Lab::new().await;
    let a = lab.pod("a").await;
    let mut leaving = a.clone();
    leaving.metadata.deletion_timestamp = Some(Time(crate::clock::now()));
    let mut ended = a.clone();
    ended.status.get_or_insert_default().phase = Some("Failed".to_owned());
    let mut elsewhere = a.clone();
    elsewhere.spec.get_or_insert_default().node_name = Some("another".to_owned());
    for shown in [None, Some(leaving), Some(ended), Some(elsewhere)] {
        shown.map(|pod| lab.stores.pods.insert(pod));
        match lab.carry_out(make(users(&[&a]))).await {
            Cleanup::Made(_, _, Err(NoDevice { why, of_node }), None) => assert!(
                why.contains("the pods that were to use it are gone or elsewhere") && !of_node,
                "{why}"
            ),
            _ => panic!("it is made"),
        }
    }
    lab.reserve(users(&[&a])).await;
}

#[tokio::test(start_paused = true)]
async fn a_reservation_pod_that_is_restored_tolerates_what_its_users_tolerate() {
    let lab = Lab::new().await;
    let mut user = json!(lab.pod("a").await);
    let tolerations = json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]);
    user["spec"]["tolerations"] = tolerations.clone();
    let user: Pod = read(user);
    lab.stores.pods.insert(user.clone());
    let Cleanup::Made(_, _, Ok(made), _) = lab.carry_out(make(users(&[&user]))).await else {
        panic!("it is made");
    };
    let has = json!(made.spec.unwrap().tolerations);
    let tolerates = |wanted: &Value| has.as_array().is_some_and(|all| all.contains(wanted));
    assert!(tolerates(&tolerations[0]), "{has}");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_pod_has_its_classes_where_they_exist() {
    let mut settings = Settings::default();
    settings.sharing.runtime_class = Some("nvidia".to_owned());
    let lab = Lab::with(settings).await;
    let made = lab.reserve(Users::default()).await;
    assert_eq!(made.spec.unwrap().runtime_class_name, None);

    let mut settings = Settings::default();
    settings.sharing.runtime_class = Some("nvidia".to_owned());
    let lab = Lab::with(settings).await;
    lab.create(json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}))
        .await;
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
        "metadata": {"name": crate::api::names::priority_class::RESERVATION},
    });
    let class = lab.create(class).await;
    lab.stores.priority_classes.insert(read(class));
    let spec = lab.reserve(Users::default()).await.spec.unwrap();
    assert_eq!(spec.runtime_class_name.as_deref(), Some("nvidia"));
    assert!(spec.priority_class_name.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_pod_that_is_refused_says_why_and_what_is_missing() {
    let lab = Lab::new().await;
    let rule = lab.fault(Match::verb_on("create", "pods"), refuse(403), Times::Always);
    let NoDevice { why, of_node } = lab.not_reserved().await;
    assert!(of_node);
    assert!(
        why.starts_with("failed to create GPU reservation pod kai-resource-reservation/gpu-reservation-"),
        "{why}"
    );
    assert!(
        why.ends_with("(the namespace kai-resource-reservation is missing: kubectl apply -f manifests/gpu-sharing/)"),
        "{why}"
    );
    assert_eq!(lab.server.faults().struck(rule), 1);
    lab.stores
        .namespaces
        .insert(read(json!({"metadata": {"name": NAMESPACE}})));
    let NoDevice { why, .. } = lab.not_reserved().await;
    assert!(!why.contains("is missing"), "{why}");
    lab.server.faults().clear();
    let rule = lab.fault(Match::verb_on("create", "pods"), refuse(409), Times::Always);
    let NoDevice { why, of_node } = lab.not_reserved().await;
    assert!(
        !of_node,
        "an API server that is busy or in disagreement says nothing about the node"
    );
    assert_eq!(
        lab.server.faults().struck(rule),
        4,
        "something holds the name, and is not there"
    );
    assert!(why.contains("the object has been modified"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn users_are_recorded_on_the_reservation_pod_and_removed() {
    let lab = Lab::new().await;
    let (a, b) = (lab.pod("a").await, lab.pod("b").await);
    let pod = lab.reserve(users(&[&a])).await;
    let named = (pod.metadata.name.clone().unwrap(), pod.metadata.uid.clone().unwrap());
    let record = |pod: (String, String)| Command::Record {
        id: id(),
        pod,
        add: users(&[&b]),
        gone: vec![a.metadata.uid.clone().unwrap()],
    };
    let Cleanup::Recorded(of, NUMBER, Ok(recorded)) = lab.carry_out(record(named.clone())).await else {
        panic!("it is recorded");
    };
    assert_eq!((of, users::of(&recorded)), (id(), users(&[&b])));
    let Cleanup::Recorded(_, _, Err(why)) = lab.carry_out(record((named.0, "another".to_owned()))).await else {
        panic!("it is another pod by now");
    };
    assert!(why.contains("cannot be written down"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_pod_goes_only_if_the_api_server_shows_none_of_its_users_on_the_node() {
    let lab = Lab::new().await;
    let (here, elsewhere) = (lab.user("here", "n1").await, lab.user("elsewhere", "n2").await);
    let waiting = lab.pod("waiting").await;

    let pod = lab.reserve(users(&[&elsewhere, &here])).await;
    lab.remove(&[&pod], true).await;
    assert!(lab.is_reserved().await, "it is used");
    lab.remove(&[&pod], false).await;
    assert!(!lab.is_reserved().await, "its users are not asked for");

    let pod = lab.reserve(users(&[&elsewhere, &waiting])).await;
    let rule = lab.fault(Match::verb_on("get", "pods"), refuse(403), Times::After(1));
    lab.remove(&[&pod], true).await;
    assert!(lab.is_reserved().await, "a user cannot be read");
    assert_eq!(lab.server.faults().struck(rule), 1);
    lab.server.faults().clear();
    lab.fault(Match::verb_on("get", "pods"), refuse(403), Times::Next(1));
    lab.remove(&[&pod], true).await;
    assert!(lab.is_reserved().await, "the reservation pod cannot be read");
    lab.remove(&[&pod], true).await;
    assert!(!lab.is_reserved().await);

    let pod = lab.reserve(users(&[&here])).await;
    lab.set_status(&json!(here), json!({"phase": "Succeeded"})).await;
    lab.remove(&[&pod], true).await;
    assert!(!lab.is_reserved().await, "its user has ended");

    let other = lab.user("other", "n1").await;
    let pod = lab.reserve(users(&[&other])).await;
    lab.delete_pod("other").await;
    lab.user("other", "n1").await;
    lab.remove(&[&pod], true).await;
    assert!(!lab.is_reserved().await, "a new pod of the name is another");
}

#[tokio::test(start_paused = true)]
async fn without_recorded_users_the_pods_with_the_groups_label_count() {
    let lab = Lab::new().await;
    let user = lab.user("a", "n1").await;
    let pod = lab.reserve(Users::default()).await;
    let label = |group: &str| json!({"metadata": {"labels": {"runai-gpu-group": group}}});
    lab.patch(&json!(user), label("g")).await;
    lab.remove(&[&pod], true).await;
    assert!(lab.is_reserved().await, "it is used");
    lab.patch(&json!(user), label("h")).await;
    lab.fault(Match::verb_on("list", "pods"), refuse(403), Times::Next(1));
    lab.remove(&[&pod], true).await;
    assert!(lab.is_reserved().await, "the pods cannot be listed");
    lab.remove(&[&pod], true).await;
    assert!(!lab.is_reserved().await, "another group");

    let pod = lab.reserve(Users::default()).await;
    lab.patch(&json!(user), label("g")).await;
    lab.set_status(&json!(user), json!({"phase": "Failed"})).await;
    lab.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "team", "name": "stranger", "labels": {"runai-gpu-group": "g"}},
        "spec": {"schedulerName": "other", "nodeName": "n1", "containers": [{"name": "main", "image": "i"}]},
    }))
    .await;
    lab.remove(&[&pod], true).await;
    assert!(
        !lab.is_reserved().await,
        "it has ended, and pods of other schedulers use none"
    );
}

#[tokio::test(start_paused = true)]
async fn a_user_on_a_node_with_more_pods_than_a_page_of_a_list_is_found() {
    let lab = Lab::new().await;
    for number in 0..250 {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "team", "name": format!("a-{number}")},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]},
        }))
        .await;
    }
    let user = lab.user("b", "n1").await;
    lab.patch(&json!(user), json!({"metadata": {"labels": {"runai-gpu-group": "g"}}}))
        .await;
    let pod = lab.reserve(Users::default()).await;
    let pages = lab.fault(
        Match::verb_on("list", "pods"),
        Effect::Delay(Default::default()),
        Times::Always,
    );
    lab.remove(&[&pod], true).await;
    assert_eq!(lab.struck(pages), 2);
    assert!(lab.is_reserved().await, "it is used");
}

#[tokio::test(start_paused = true)]
async fn users_are_evicted_if_the_api_server_has_no_reservation_pod() {
    let lab = Lab::new().await;
    let user = lab.user("a", "n1").await;
    let evict = || Command::Evict {
        id: id(),
        users: vec![pods::pod_ref(&user), PodRef::new("team", "b", "other")],
    };
    let evicted = async |lab: &Lab| match lab.carry_out(evict()).await {
        Cleanup::GivenUp(_, _, evicted) => evicted.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>(),
        _ => panic!("it has been given up"),
    };
    lab.set_status(&json!(user), json!({"phase": "Running"})).await;
    let pod = lab.reserve(Users::default()).await;
    assert!(evicted(&lab).await.is_empty());
    lab.remove(&[&pod], false).await;
    lab.fault(Match::verb_on("list", "pods"), refuse(403), Times::Next(1));
    assert!(evicted(&lab).await.is_empty(), "it is not known whether there is one");
    assert!(lab.seen("a").await.unwrap().metadata.deletion_timestamp.is_none());
    assert!(evicted(&lab).await.contains(&"a".to_owned()));
    let seen = lab.seen("a").await.expect("it has its grace period");
    assert!(seen.metadata.deletion_timestamp.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_completed_bind_request_is_deleted_unless_its_pod_is_pending() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let request = lab.request(&pod, true).await;
    lab.drop_done(&request, None).await;
    assert!(lab.requested(&request).await.is_some(), "the watch of pods was behind");
    lab.fault(Match::verb_on("get", "pods"), refuse(403), Times::Next(1));
    lab.delete_pod("a").await;
    lab.drop_done(&request, None).await;
    assert!(lab.requested(&request).await.is_some(), "it is not known");
    lab.drop_done(&request, None).await;
    assert!(lab.requested(&request).await.is_none());

    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let request = lab.request(&pod, true).await;
    lab.drop_done(&request, Some(pod)).await;
    assert!(
        lab.requested(&request).await.is_none(),
        "the watch has shown that it is done"
    );
}

/// The process that bound the pod has ended before it corrected the condition, and the next one finds the bind request done.
#[tokio::test(start_paused = true)]
async fn the_condition_of_a_bound_pod_is_corrected_before_its_bind_request_is_deleted() {
    for (node, bound_there) in [("n1", true), ("n2", false)] {
        let lab = Lab::new().await;
        let pod = lab.pod("a").await;
        let request = lab.request(&pod, true).await;
        cleanup::blame(&lab.caller(), &bind(&pod, "n1"), Some(&pod), "no device").await;
        lab.bind_to("a", node).await;
        lab.drop_done(&request, lab.seen("a").await).await;
        assert!(lab.requested(&request).await.is_none());
        let status = lab.told("a").await.map(|(status, _)| status);
        let expected = if bound_there { "True" } else { "False" };
        assert_eq!(status.as_deref(), Some(expected), "bound to {node}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_bind_request_and_its_pod_have_a_status_of_success() {
    for trail in [true, false] {
        let mut settings = Settings::default();
        settings.sharing.always_bind_requests = trail;
        let lab = Lab::with(settings).await;
        let user = lab.user("a", "n1").await;
        let request = lab.request(&user, false).await;
        let (key, shared) = (Key::of(&request.metadata), Arc::new(request.clone()));
        cleanup::succeed(lab.caller(), key, shared, Some(Arc::new(user))).await;
        let status = lab.requested(&request).await.unwrap().status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Succeeded"));
        let told = ("True".to_owned(), "Pod bound successfully to node n1".to_owned());
        assert_eq!(lab.told("a").await, trail.then_some(told));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_bound_to_another_node_gets_no_event_about_the_node_of_the_bind_request() {
    let mut settings = Settings::default();
    settings.sharing.always_bind_requests = true;
    let lab = Lab::with(settings).await;
    let user = lab.user("a", "n2").await;
    let request = lab.request(&user, false).await;
    let (key, shared) = (Key::of(&request.metadata), Arc::new(request));
    cleanup::succeed(lab.caller(), key, shared, Some(Arc::new(user))).await;
    assert_eq!(lab.told("a").await, None);
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_are_counted_on_the_requests_of_others() {
    let lab = Lab::new().await;
    let mut request = lab.request(&lab.pod("a").await, false).await;
    assert!(
        !cleanup::fail(&lab.caller(), &request, "no device").await,
        "the first failure is the last"
    );
    let status = lab.requested(&request).await.unwrap().status.unwrap();
    let shown = (
        status.phase.as_deref(),
        status.reason.as_deref(),
        status.failed_attempts,
    );
    assert_eq!(shown, (Some("Failed"), Some("no device"), Some(1)));
    request.spec.backoff_limit = Some(2);
    assert!(cleanup::fail(&lab.caller(), &request, "no device").await, "one of two");
    request.status = lab.requested(&request).await.unwrap().status;
    assert_eq!(cleanup::attempts(&request), 1);
    assert!(!cleanup::fail(&lab.caller(), &request, "no device").await, "both");
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_a_pod_shows_failed_binds_and_a_bind_that_succeeds_later() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let ordered = bind(&pod, "n1");
    cleanup::correct(&lab.caller(), "n1", Some(&pod)).await;
    assert_eq!(lab.told("a").await, None, "it was not told of a failure");
    cleanup::blame(&lab.caller(), &ordered, Some(&pod), "no device").await;
    let message = "Failed to bind pod team/a to node n1: no device".to_owned();
    assert_eq!(lab.told("a").await, Some(("False".to_owned(), message)));
    let seen = lab.seen("a").await;
    let writes = lab.writes().len();
    cleanup::blame(&lab.caller(), &ordered, seen.as_ref(), "no device").await;
    assert_eq!(lab.writes().len(), writes, "it says so already");
    cleanup::blame(&lab.caller(), &ordered, seen.as_ref(), "another reason").await;
    assert_eq!(lab.writes().len(), writes + 1);
    cleanup::correct(&lab.caller(), "n1", seen.as_ref()).await;
    let message = "Pod bound successfully to node n1".to_owned();
    assert_eq!(lab.told("a").await, Some(("True".to_owned(), message)));

    let mut settings = Settings::default();
    settings.sharing.always_bind_requests = true;
    let lab = Lab::with(settings).await;
    lab.pod("a").await;
    cleanup::correct(&lab.caller(), "n1", seen.as_ref()).await;
    assert_eq!(lab.told("a").await, None, "it is told when its request is marked");
}
