//! Panics while one object is handled: they end the handling of that object, not the process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use tracing::error;

use super::bus::{Change, Note, Object, Severity, Subject};
use super::pods;
use crate::api::names::reason;

/// The text of a panic.
#[must_use]
pub fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Runs the work and catches a panic. State that the work has changed stays changed.
///
/// # Errors
/// The text of the panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    #[cfg(test)]
    let work = || {
        tests::fail_if_due();
        work()
    };
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text(&*panic).to_owned())
}

/// The same for asynchronous work.
///
/// # Errors
/// The text of the panic.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.map_err(|panic| text(&*panic).to_owned())
}

/// Counts and logs that a component sets an object aside until it changes, and returns the note for its owner.
#[must_use]
pub fn set_aside(component: &'static str, change: &Change, panic: &str, source: &str) -> Option<Note> {
    let subject = match change {
        Change::Applied(Object::Pod(pod)) => Some(Subject::Pod(pods::pod_ref(pod))),
        Change::Applied(Object::PodGroup(group)) => Some(Subject::PodGroup(pods::group_key(&group.metadata))),
        Change::Applied(_) | Change::Deleted(_) | Change::Synced(_) => None,
    };
    metrics::counter!("unikai_object_panics_total", "component" => component).increment(1);
    error!(component, object = ?subject, panic, "an object is set aside");
    Some(Note {
        subject: subject?,
        severity: Severity::Warning,
        reason: reason::SET_ASIDE,
        message: format!("left out by the {component} until it changes, by a fault of the scheduler: {panic}"),
        source: source.to_owned(),
        annotations: std::collections::BTreeMap::new(),
    })
}

#[cfg(test)]
pub(super) mod tests;
