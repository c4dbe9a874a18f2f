//! Components that panic when they handle an object.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::api::names::reason;
use crate::components::bus::{Change, Kind, Listener, Object, ToBinder, ToEvents, ToGrouper, ToPodGroups, channels};
use crate::components::leadership::Terms;
use crate::components::watches::Stores;
use crate::components::{Context, binder, grouper, panics, podgroups};

/// The components on one thread, of which each gets a pod at which it panics.
#[tokio::test(start_paused = true)]
async fn components_go_on_after_an_object_at_which_they_panic() {
    let (leads, leading) = tokio::sync::watch::channel(Terms::default());
    let context = Context {
        leading,
        ..super::idle_context()
    };
    let stores = Arc::new(Stores::default());
    let (bus, mut inboxes) = channels(1);
    let runs = [
        tokio::spawn(grouper::run(
            context.clone(),
            inboxes.grouper,
            Arc::clone(&stores),
            bus.clone(),
        )),
        tokio::spawn(podgroups::run(
            context.clone(),
            inboxes.podgroups,
            Arc::clone(&stores),
            bus.clone(),
        )),
        tokio::spawn(binder::run(context, inboxes.binder, Arc::clone(&stores), bus.clone())),
    ];
    for kind in Kind::told_to(&[Listener::Grouper]) {
        let synced = ToGrouper::Change(Change::Synced(kind));
        bus.grouper.send(synced).await.unwrap();
    }
    sleep(Duration::from_millis(1)).await;
    let sends = [
        ("grouper", 0, "when it gets it"),
        ("grouper", 1, "when it groups it"),
        ("podgroups", 0, "when it gets it"),
        ("binder", 0, "when it gets it"),
        ("grouper", 0, "again"),
        ("podgroups", 0, "again"),
        ("binder", 0, "again"),
    ];
    for (number, (component, after, when)) in sends.into_iter().enumerate() {
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "team", "name": format!("p{number}"), "uid": format!("u{number}")},
            "spec": {"schedulerName": "kai-scheduler", "containers": []}, "status": {"phase": "Pending"},
        }))
        .unwrap();
        stores.pods.insert(pod.clone());
        let change = Change::Applied(Object::Pod(Arc::new(pod)));
        panics::tests::fail_after(after);
        match component {
            "grouper" => bus.grouper.send(ToGrouper::Change(change)).await.unwrap(),
            "podgroups" => bus.podgroups.send(ToPodGroups::Change(change)).await.unwrap(),
            _ => bus.binder.send(ToBinder::Change(change)).await.unwrap(),
        }
        let note = timeout(Duration::from_secs(10), inboxes.events.recv()).await;
        let (ToEvents::SeenByAll(note) | ToEvents::Ours(note)) = note.expect(when).unwrap();
        assert_eq!(note.reason, reason::SET_ASIDE, "{component}, {when}");
        assert_eq!(
            note.message,
            format!("left out by the {component} until it changes, by a fault of the scheduler: a fault")
        );
    }
    assert!(runs.iter().all(|run| !run.is_finished()));
    drop(leads);
}
