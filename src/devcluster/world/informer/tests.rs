use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use watcher::Event;

use super::*;

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("ns".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

/// An informer and the log of its changes, each `name old→new`.
fn logged() -> (Arc<Informer<ConfigMap>>, Arc<Mutex<Vec<String>>>) {
    let informer = Informer::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    informer.on_change(move |change| {
        let show =
            |object: Option<&Arc<ConfigMap>>| object.map_or("-".to_owned(), |o| version(&o.metadata).to_string());
        let line = format!("{} {}→{}", change.key.name, show(change.old), show(change.new));
        sink.lock().expect("the log").push(line);
    });
    (informer, log)
}

async fn feed(informer: &Informer<ConfigMap>, events: Vec<Event<ConfigMap>>) {
    informer
        .run(stream::iter(events.into_iter().map(Ok::<_, watcher::Error>)))
        .await;
}

#[tokio::test]
async fn own_writes_are_seen_once_and_never_go_back() {
    let (informer, log) = logged();
    feed(
        &informer,
        vec![Event::Init, Event::InitApply(object("a", "1", 5)), Event::InitDone],
    )
    .await;
    informer.observe(object("b", "2", 8));
    informer.observe(object("a", "1", 4));
    feed(
        &informer,
        vec![Event::Apply(object("b", "2", 8)), Event::Apply(object("b", "2", 9))],
    )
    .await;
    assert_eq!(*log.lock().expect("the log"), ["a -→5", "b -→8", "b 8→9"]);
}

#[tokio::test]
async fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let (informer, log) = logged();
    feed(
        &informer,
        vec![
            Event::Init,
            Event::InitDone,
            Event::Apply(object("a", "1", 5)),
            Event::Delete(object("a", "1", 6)),
        ],
    )
    .await;
    informer.observe(object("a", "1", 5));
    assert!(informer.list().is_empty());
    assert_eq!(*log.lock().expect("the log"), ["a -→5", "a 5→-"]);
}

#[tokio::test]
async fn a_list_drops_what_it_does_not_hold() {
    let (informer, log) = logged();
    feed(
        &informer,
        vec![Event::Init, Event::InitApply(object("a", "1", 5)), Event::InitDone],
    )
    .await;
    feed(&informer, vec![Event::Init, Event::InitApply(object("b", "2", 7))]).await;
    informer.observe(object("c", "3", 9));
    feed(&informer, vec![Event::InitDone]).await;
    assert_eq!(*log.lock().expect("the log"), ["a -→5", "c -→9", "a 5→-", "b -→7"]);
}

#[tokio::test]
async fn the_deletion_of_an_older_object_of_the_same_name_is_ignored() {
    let (informer, _) = logged();
    feed(
        &informer,
        vec![Event::Init, Event::InitApply(object("a", "1", 5)), Event::InitDone],
    )
    .await;
    informer.observe(object("a", "2", 9));
    feed(&informer, vec![Event::Delete(object("a", "1", 8))]).await;
    assert_eq!(
        informer
            .get(&Key::new("ns", "a"))
            .and_then(|o| o.metadata.uid.clone())
            .as_deref(),
        Some("2")
    );
}
