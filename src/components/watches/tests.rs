mod following;
mod fuzz;

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;
use crate::api::Queue;
use crate::components::bus::{self, Object};
use crate::components::leadership::Terms;
use crate::components::readiness::Readiness;
use crate::mirror::{PackedChange, PackedObject};

fn queue(name: &str, uid: &str, version: &str, spec: Value) -> Guarded<Queue> {
    let meta = json!({"name": name, "uid": uid, "resourceVersion": version});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

fn good(name: &str, version: &str) -> Guarded<Queue> {
    queue(name, &format!("uid-{name}"), version, json!({}))
}

/// What the events do to a watch, one line for each change.
struct Watch {
    stores: Stores,
    readiness: Readiness,
    handle: Handle,
}

impl Watch {
    fn new() -> Self {
        let readiness = Readiness::default();
        let handle = readiness.handle("watch-queues", "first list");
        Self {
            stores: Stores::default(),
            readiness,
            handle,
        }
    }

    fn run(&self, events: Vec<Event<Guarded<Queue>>>) -> Vec<String> {
        let mut state = State::<Queue>::new(&self.stores.queues, &self.handle);
        events
            .into_iter()
            .flat_map(|event| state.advance(event))
            .map(|change| line(&change))
            .collect()
    }
}

fn line(change: &Change) -> String {
    let name = |object: &Object| match object {
        Object::Queue(queue) => format!(
            "{}@{}",
            queue.metadata.name.clone().unwrap(),
            queue.metadata.uid.clone().unwrap()
        ),
        other => panic!("not a queue: {other:?}"),
    };
    match change {
        Change::Applied(object) => format!("applied {}", name(object)),
        Change::Deleted(object) => format!("deleted {}", name(object)),
        Change::Synced(kind) => format!("synced {}", kind.plural()),
    }
}

#[test]
fn watches_are_short_and_have_bookmarks() {
    let settings = Settings::default();
    let config = config(&settings);
    assert_eq!(config.timeout, Some(settings.watch_timeout));
    assert!(settings.watch_timeout <= 60 && config.bookmarks);
}

#[test]
fn a_relist_reports_what_vanished_and_nothing_that_stayed() {
    let watch = Watch::new();
    let first = vec![
        Event::Init,
        Event::InitApply(good("a", "1")),
        Event::InitApply(good("b", "2")),
        Event::InitDone,
    ];
    assert!(!watch.readiness.waiting().is_empty());
    assert_eq!(
        watch.run(first),
        ["applied a@uid-a", "applied b@uid-b", "synced queues"]
    );
    assert!(watch.readiness.waiting().is_empty());
    let again = vec![
        Event::Init,
        Event::InitApply(good("b", "2")),
        Event::InitApply(good("c", "3")),
        Event::InitDone,
    ];
    assert_eq!(
        watch.run(again),
        ["applied c@uid-c", "deleted a@uid-a", "synced queues"]
    );
    assert_eq!(watch.stores.queues.len(), 2);
}

#[test]
fn a_long_first_list_shows_its_progress() {
    let watch = Watch::new();
    let objects = (0..2_500).map(|number| Event::InitApply(good(&format!("queue-{number}"), "1")));
    watch.run([Event::Init].into_iter().chain(objects).collect());
    let progress = ("watch-queues".to_owned(), "first list: 2000 objects so far".to_owned());
    assert_eq!(watch.readiness.waiting(), [progress]);
    watch.run(vec![Event::Init, Event::InitDone]);
    assert_eq!(watch.readiness.waiting(), []);
}

#[test]
fn a_recreated_object_is_reported_as_a_deletion_and_a_creation() {
    let watch = Watch::new();
    let old = queue("a", "old", "1", json!({}));
    let new = queue("a", "new", "9", json!({}));
    assert_eq!(
        watch.run(vec![Event::Apply(old), Event::Apply(new)]),
        ["applied a@old", "deleted a@old", "applied a@new"]
    );
}

#[test]
fn an_object_that_does_not_decode_is_passed_over_and_its_last_version_stays() {
    let watch = Watch::new();
    let bad = || queue("a", "uid-a", "2", json!({"priority": "high"}));
    assert!(bad().0.is_err());
    let list = vec![
        Event::Init,
        Event::InitApply(bad()),
        Event::InitApply(good("b", "1")),
        Event::InitDone,
    ];
    assert_eq!(watch.run(list), ["applied b@uid-b", "synced queues"]);
    assert_eq!(
        watch.run(vec![Event::Apply(good("a", "3")), Event::Apply(bad())]),
        ["applied a@uid-a"]
    );
    assert!(watch.stores.queues.get("", "a").is_some());
    let list = vec![Event::Init, Event::InitApply(bad()), Event::InitDone];
    assert_eq!(watch.run(list), ["deleted b@uid-b", "synced queues"]);
    assert_eq!(watch.run(vec![Event::Delete(bad())]), ["deleted a@uid-a"]);
}

/// A client whose every request is answered by the function.
fn client(answer: impl Fn(&Request<Body>) -> (u16, Value) + Clone + Send + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, body) = answer(&request);
        let response = Response::builder()
            .status(code)
            .header("content-type", "application/json");
        let response = response.body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    Client::new(service, "default")
}

fn feed(client: Client) -> (Feed, Readiness, Arc<Stores>, bus::Inboxes) {
    let (bus, inboxes) = bus::channels(1);
    let (readiness, stores) = (Readiness::default(), Arc::new(Stores::default()));
    let handle = readiness.handle("watch-queues", "first list");
    (
        Feed {
            client,
            config: watcher::Config::default(),
            stores: Arc::clone(&stores),
            bus,
            leading: tokio::sync::watch::channel(Terms::default()).1,
            readiness: handle,
            charged: Charged::default(),
        },
        readiness,
        stores,
        inboxes,
    )
}

#[tokio::test]
async fn one_malformed_object_never_stops_a_watch() {
    let items = json!([
        {"metadata": {"name": "bad", "uid": "1"}, "spec": {"resources": "all of them"}},
        {"metadata": {"name": "good", "uid": "2"}, "spec": {"priority": 7}},
    ]);
    let client = client(move |_| {
        (
            200,
            json!({"kind": "QueueList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": items}),
        )
    });
    let (feed, _, stores, mut inboxes) = feed(client);
    let watching = tokio::spawn(watch::<Queue>(feed));
    let first = inboxes.schedulers[0].recv().await;
    assert!(
        matches!(first, Some(ToScheduler::Change(PackedChange::Applied(PackedObject::Queue(queue)), _)) if queue.spec.priority == Some(7))
    );
    assert!(matches!(
        inboxes.schedulers[0].recv().await,
        Some(ToScheduler::Synced(Kind::Queue))
    ));
    assert_eq!(stores.queues.len(), 1);
    watching.abort();
}

#[test]
fn a_deletion_reaches_the_scheduler_although_the_object_cannot_be_packed() {
    let metadata = json!({"namespace": "a", "name": "x", "uid": "u", "resourceVersion": "1",
        "annotations": {"example.com/unpackable": ""}});
    let pod = json!({"metadata": metadata, "spec": {"containers": []}});
    let group = json!({"metadata": metadata, "spec": {}, "status": {}});
    let objects = [
        Object::Pod(Arc::new(serde_json::from_value(pod).unwrap())),
        Object::PodGroup(Arc::new(serde_json::from_value(group).unwrap())),
    ];
    for object in objects {
        let position = Position {
            kind: object.kind(),
            number: 1,
        };
        let applied = packed(Change::Applied(object.clone()), position);
        assert!(matches!(applied, ToScheduler::Unreadable(ref identity, ..) if *identity == object.identity()));
        let deleted = packed(Change::Deleted(object.clone()), position);
        let ToScheduler::Change(PackedChange::Deleted(gone), _) = deleted else {
            panic!("{} is lost", object.kind().plural())
        };
        assert_eq!(gone.identity(), object.identity());
    }
}

/// Otherwise a pod could have its group before the scheduler has seen it, and its trace would miss it.
#[tokio::test]
async fn grouper_and_binder_get_a_change_after_the_scheduler() {
    let (bus, mut inboxes) = bus::channels(1);
    let pod = || Change::Applied(Object::Pod(Arc::default()));
    publish(&bus, Kind::Pod, pod(), 0).await.expect("told");
    assert!(inboxes.grouper.try_recv().is_ok() && inboxes.binder.try_recv().is_ok());
    // A scheduler that cannot be told holds the others back.
    drop(inboxes.schedulers);
    assert!(publish(&bus, Kind::Pod, pod(), 0).await.is_err());
    assert!(inboxes.grouper.try_recv().is_err() && inboxes.binder.try_recv().is_err());
}

#[tokio::test]
async fn a_kind_that_is_not_installed_yet_is_named_and_waited_for() {
    let (asked, installed) = (Arc::new(std::sync::atomic::AtomicU32::new(0)), 3);
    let client = client({
        let asked = Arc::clone(&asked);
        move |_| {
            if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < installed {
                (
                    404,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no such kind", "reason": "NotFound", "code": 404}),
                )
            } else {
                (
                    200,
                    json!({"kind": "QueueList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []}),
                )
            }
        }
    });
    let (feed, readiness, _, mut inboxes) = feed(client);
    let watching = tokio::spawn(watch::<Queue>(feed));
    while asked.load(std::sync::atomic::Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let reason = "the API server does not know this kind: its CRD is not installed";
    assert_eq!(readiness.waiting(), [("watch-queues".to_owned(), reason.to_owned())]);
    assert!(matches!(
        inboxes.schedulers[0].recv().await,
        Some(ToScheduler::Synced(Kind::Queue))
    ));
    assert!(readiness.waiting().is_empty());
    watching.abort();
}

#[test]
fn waiters_are_woken_by_changes_of_the_spec_and_not_of_the_status() {
    let store = Store::<Queue>::default();
    let mut changes = store.changes();
    let mut woken = |uid: &str, generation: i64, parent: &str, note: &str| {
        let queue = json!({
            "metadata": {"name": "a", "uid": uid, "generation": generation, "annotations": {"note": note}},
            "spec": {"parentQueue": parent}, "status": {"childQueues": [generation.to_string()]},
        });
        store.insert(serde_json::from_value(queue).unwrap());
        let woken = changes.has_changed().unwrap();
        changes.mark_unchanged();
        woken
    };
    assert!(woken("first", 1, "top", "x"));
    assert!(!woken("first", 1, "top", "x"));
    assert!(woken("first", 2, "other", "x"));
    assert!(woken("second", 2, "other", "x"), "another object of the same name");
    assert!(woken("second", 2, "other", "y"), "annotations have no generation");
}

#[test]
fn pods_are_found_by_their_labels_and_read_as_they_came() {
    let store = Store::<Pod>::default();
    let pod = |namespace: &str, name: &str, labels: Value| -> Arc<Pod> {
        let pod = json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "labels": labels}, "spec": {"containers": []}});
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    let pods = [
        pod("a", "worker-2", json!({"job": "j", "role": "worker"})),
        pod("a", "worker-1", json!({"job": "j", "role": "worker"})),
        pod("a", "launcher", json!({"job": "j", "role": "launcher"})),
        pod("a", "plain", json!(null)),
        pod("b", "worker-3", json!({"job": "j", "role": "worker"})),
    ];
    for pod in &pods {
        assert!(store.insert(Pod::clone(pod)).1.is_none());
    }
    let read = std::cell::Cell::new(0);
    let found = |labels: &[(&str, &str)]| {
        let fits = |_: &Pod| {
            read.set(read.get() + 1);
            true
        };
        let found = store.select("a", labels, 3, fits);
        found
            .iter()
            .map(|pod| pod.metadata.name.clone().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(found(&[("job", "j"), ("role", "worker")]), "worker-1 worker-2");
    assert_eq!(read.get(), 2, "others are not read");
    assert_eq!(found(&[("job", "k")]), "");
    assert_eq!(found(&[]), "launcher plain worker-1", "not more are read");
    assert_eq!(store.get("a", "plain"), Some(Arc::clone(&pods[3])));
    let mut keys: Vec<_> = store.keys().into_iter().map(|key| key.name).collect();
    keys.sort();
    assert_eq!(keys, ["launcher", "plain", "worker-1", "worker-2", "worker-3"]);
    let all: Vec<_> = store.objects().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    assert_eq!(all, ["launcher", "plain", "worker-1", "worker-2", "worker-3"]);
}

#[test]
fn what_was_written_or_read_last_is_not_decompressed_again() {
    let store = Store::<Pod>::default();
    let pod = |name: &str, version: &str, node: &str| -> Pod {
        let meta = json!({"namespace": "a", "name": name, "uid": name, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": meta, "spec": {"nodeName": node, "containers": []}})).unwrap()
    };
    let get = || store.get("a", "p").unwrap();
    let (first, _) = store.insert(pod("p", "1", "n1"));
    assert!(Arc::ptr_eq(&get(), &first));
    let (second, _) = store.insert(pod("p", "2", "n2"));
    assert!(Arc::ptr_eq(&get(), &second));
    let key = Key::of(&second.metadata);
    assert!(store.update_version(&key, &mut pod("p", "3", "n2")));
    assert_eq!(*get(), pod("p", "3", "n2"), "in its version");
    for other in 0..5_000 {
        store.insert(pod(&other.to_string(), "4", "n1"));
    }
    let again = get();
    assert_eq!(*again, pod("p", "3", "n2"));
    assert!(Arc::ptr_eq(&get(), &again));
    assert!(Arc::ptr_eq(&store.remove(&key).unwrap(), &again));
    assert!(store.get("a", "p").is_none());
    store.insert(pod("p", "5", "n3"));
    assert_eq!(*get(), pod("p", "5", "n3"));
}

#[test]
fn a_change_of_fields_that_nobody_reads_is_not_passed_on() {
    let watch = Watch::new();
    let mut state = State::<Pod>::new(&watch.stores.pods, &watch.handle);
    let mut apply = |version: &str, ip: &str, phase: &str| {
        let pod = json!({
            "metadata": {"namespace": "a", "name": "p", "uid": "u", "resourceVersion": version, "labels": {"app": "x"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": phase, "podIP": ip}});
        let event = Event::Apply(serde_json::from_value::<Guarded<Pod>>(pod).unwrap());
        let changes = state.advance(event).len();
        (
            changes,
            watch
                .stores
                .pods
                .get("a", "p")
                .unwrap()
                .metadata
                .resource_version
                .clone()
                .unwrap(),
        )
    };
    assert_eq!(apply("1", "", "Pending"), (1, "1".to_owned()));
    assert_eq!(apply("2", "10.0.0.1", "Pending"), (0, "2".to_owned()));
    assert_eq!(apply("3", "10.0.0.1", "Running"), (1, "3".to_owned()));
    assert_eq!(apply("4", "10.0.0.2", "Running"), (0, "4".to_owned()));
}

/// What is restored depends on which pod groups are known: the same version of a pod is not read differently when it is listed again.
#[test]
fn a_pod_that_is_listed_again_in_the_same_version_stays_as_it_was_restored() {
    let stores = Arc::new(Stores::default());
    let group = json!({"metadata": {"namespace": "a", "name": "pg"}, "spec": {}, "status": {}});
    stores.pod_groups.insert(serde_json::from_value(group).unwrap());
    let handle = Readiness::default().handle("watch-pods", "first list");
    let mut state = State::<Pod>::new(&stores.pods, &handle);
    state.charged = Charged::new(Arc::clone(&stores), &Settings::default());
    let listed = || {
        let labels = json!({"kai.scheduler/subgroup-name": "nosuch"});
        let annotations = json!({"pod-group-name": "pg"});
        let pod = json!({
            "metadata": {"namespace": "a", "name": "p", "uid": "u", "resourceVersion": "1", "labels": labels, "annotations": annotations},
            "spec": {"schedulerName": "kai-scheduler", "nodeName": "n", "containers": []}, "status": {"phase": "Running"}});
        let pod = serde_json::from_value::<Guarded<Pod>>(pod).unwrap();
        [Event::Init, Event::InitApply(pod), Event::InitDone]
    };
    let mut list = || -> usize { listed().into_iter().map(|event| state.advance(event).len()).sum() };
    list();
    let sub_group = || {
        let pod = stores.pods.get("a", "p").unwrap();
        pod.metadata.labels.clone().unwrap_or_default().into_keys().next()
    };
    assert_eq!(sub_group(), None, "the pod group has none of that name");
    stores.pod_groups.remove(&Key {
        namespace: "a".to_owned(),
        name: "pg".to_owned(),
    });
    assert_eq!(list(), 1, "the end of the list alone");
    assert_eq!(sub_group(), None);
}
