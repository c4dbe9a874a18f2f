use std::cell::Cell;
use std::sync::Arc;

use super::*;

thread_local! {
    /// After how many more calls of [`catch`] on this thread one panics.
    static FAULT_AFTER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Has the call of [`catch`] panic that comes after so many others.
pub fn fail_after(calls: u32) {
    FAULT_AFTER.set(Some(calls));
}

/// Panics if this is the call that is to panic.
pub fn fail_if_due() {
    let left = FAULT_AFTER.get();
    FAULT_AFTER.set(left.and_then(|left| left.checked_sub(1)));
    assert!(left != Some(0), "a fault");
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
