use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::*;
use crate::components::bus::{Kind, Listener, ToBinder, ToEvents, ToGrouper, ToPodGroups, channels};
use crate::components::leadership::Terms;
use crate::components::tests::idle_context;
use crate::components::watches::Stores;
use crate::components::{Context, binder, grouper, podgroups};

thread_local! {
    /// After how many more calls of [`catch`] on this thread one panics.
    static FAULT_AFTER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Panics if this is the call that is to panic.
pub fn fail_if_due() {
    let left = FAULT_AFTER.get();
    FAULT_AFTER.set(left.and_then(|left| left.checked_sub(1)));
    assert!(left != Some(0), "a fault");
}

/// The components on one thread, of which each gets a pod at which it panics.
#[tokio::test(start_paused = true)]
async fn components_go_on_after_an_object_at_which_they_panic() {
    let (leads, leading) = tokio::sync::watch::channel(Terms::default());
    let context = Context {
        leading,
        ..idle_context()
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
        FAULT_AFTER.set(Some(after));
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

#[test]
fn panic_messages_are_read_from_all_payload_types() {
    let said = |panic: fn()| catch_unwind(panic).map_err(|panic| text(&*panic).to_owned());
    assert_eq!(said(|| panic!("plain")), Err("plain".to_owned()));
    assert_eq!(said(|| panic!("of {}", 7)), Err("of 7".to_owned()));
    assert_eq!(said(|| std::panic::panic_any(7)), Err("no message".to_owned()));
}

#[tokio::test]
async fn a_panic_ends_only_the_work_that_panicked() {
    let mut done = Vec::new();
    for number in 0..3 {
        let work = || {
            assert_ne!(number, 1, "one is poison");
            done.push(number);
        };
        assert_eq!(catch(work).is_err(), number == 1);
    }
    assert_eq!(done, [0, 2]);
    let waits = async {
        tokio::task::yield_now().await;
        panic!("late");
    };
    assert_eq!(caught(waits).await, Err::<(), _>("late".to_owned()));
}

#[test]
fn a_panic_is_reported_by_an_event_on_the_object() {
    let pod = serde_json::json!({"metadata": {"namespace": "team", "name": "p", "uid": "u"}});
    let pod = Arc::new(serde_json::from_value(pod).unwrap());
    let note = set_aside(
        "grouper",
        &Change::Applied(Object::Pod(pod)),
        "index out of bounds",
        "kai-scheduler",
    )
    .unwrap();
    assert_eq!((note.severity, note.reason), (Severity::Warning, "SetAside"));
    assert_eq!(
        note.message,
        "left out by the grouper until it changes, by a fault of the scheduler: index out of bounds"
    );
}
