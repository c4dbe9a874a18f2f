//! Writes Events, as `kubectl describe` shows them. They are best effort: nothing waits for them, and they are dropped and counted
//! when there are too many of a namespace (namespaces take turns). A repeated message about an object is written once; later only its count is updated, rarely.

mod digest;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use crate::api::PodGroup;
use crate::clock;
use crate::components::bus::{Note, Severity, Subject, ToEvents};
use crate::components::watches::Stores;
use crate::components::write_slots::WriteSlots;
use crate::components::{Context, Error};
use digest::{Digest, Write};
use queue::EventQueue;

/// How long an event waits for its pod group to be created, and the interval of checks.
const CREATION_MAX: Duration = Duration::from_secs(2);
const CREATION_LOOK_AFTER: Duration = Duration::from_millis(100);
/// An event is written this long after its cause, so that the API server first sends the binding to its watchers.
const STAY_BEHIND: Duration = Duration::from_millis(20);
/// Limit on the bytes of a message. Messages quote objects of tenants, which may be long.
const MESSAGE_MAX: usize = 8_192;

/// An event that waits to be written.
struct Waiting {
    note: Note,
    write: Write,
    since: Instant,
}

impl Waiting {
    /// The namespace in whose queue it waits.
    fn namespace(&self) -> &str {
        self.note.subject.namespace()
    }
}

/// Writes events until shutdown.
///
/// # Errors
/// If every other component is gone, or a task of this one panicked.
pub async fn run(context: Context, mut inbox: mpsc::Receiver<ToEvents>, stores: Arc<Stores>) -> Result<(), Error> {
    let mut digest = Digest::default();
    let mut slots = WriteSlots::new(&context.background);
    let mut queue = EventQueue::default();
    let mut writes = JoinSet::new();
    loop {
        let due = queue.next();
        tokio::select! {
            () = context.shutdown.cancelled() => return Ok(()),
            note = inbox.recv() => {
                let (mut note, ours) = match note.ok_or(Error::Closed)? {
                    ToEvents::Ours(note) => (note, context.leads_something()),
                    ToEvents::SeenByAll(note) => (note, context.is_leading()),
                };
                let since = Instant::now();
                if !ours {
                    continue;
                }
                note.message.truncate(note.message.floor_char_boundary(MESSAGE_MAX));
                if !queue.has_space(note.subject.namespace()) {
                    metrics::counter!("unikai_events_dropped_total").increment(1);
                } else if let Some(write) = digest.take(&note, uid(&note.subject, &stores).as_deref(), since) {
                    queue.put(since + STAY_BEHIND, Waiting { note, write, since });
                }
            }
            slot = slots.due(due) => {
                while let Some(next) = queue.take(Instant::now()) {
                    if lacks_group(&next, &stores, context.background.max_wait()) {
                        queue.put(Instant::now() + CREATION_LOOK_AFTER, next);
                        continue;
                    }
                    let Some(context) = context.of_any_term() else { continue };
                    if let Write::New { .. } = next.write {
                        digest.sent(&next.note, uid(&next.note.subject, &stores).as_deref());
                    }
                    let stores = Arc::clone(&stores);
                    writes.spawn(async move {
                        let result = send(&context, &stores, next).await;
                        slot.end(result.as_ref().err());
                    });
                    break;
                }
            }
            Some(ended) = writes.join_next() => {
                ended.map_err(|panic| Error::Panicked { task: "event write", panic: panic.to_string() })?;
            }
        }
    }
}

async fn send(context: &Context, stores: &Stores, Waiting { note, write, .. }: Waiting) -> Result<(), kube::Error> {
    let (namespace, name) = (note.subject.namespace(), note.subject.name());
    let api: Api<Event> = Api::namespaced(context.writes.clone(), namespace);
    let result = match write {
        Write::New { id } => create(&api, event(&note, stores, &id, 1)).await,
        Write::Again { id, count } => {
            let patch = json!({"count": count, "lastTimestamp": Time(clock::now())});
            let patched = api
                .patch(&event_name(name, &id), &PatchParams::default(), &Patch::Merge(patch))
                .await;
            match patched {
                // It could not be created, or it has been deleted, as events are after a while.
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    create(&api, event(&note, stores, &id, count)).await
                }
                other => other.map(drop),
            }
        }
    };
    if let Err(error) = &result {
        metrics::counter!("unikai_events_failed_total").increment(1);
        debug!(ns = %namespace, name = %name, reason = note.reason, %error, "event not written");
    }
    result
}

async fn create(api: &Api<Event>, event: Event) -> Result<(), kube::Error> {
    api.create(&PostParams::default(), &event).await.map(drop)
}

/// Whether the event's pod group does not exist yet. The event needs its UID, or `kubectl describe` does not show it.
fn lacks_group(event: &Waiting, stores: &Stores, max_wait: Duration) -> bool {
    let Subject::PodGroup(group) = &event.note.subject else {
        return false;
    };
    event.since.elapsed() < max_wait + CREATION_MAX && !stores.pod_groups.contains(group.namespace(), group.name())
}

/// The object's name, shortened so that the event's name is valid, and an id.
fn event_name(name: &str, id: &str) -> String {
    match name.get(..name.floor_char_boundary(230)) {
        Some(start) if start != name => format!("{}.{id}", start.trim_end_matches(['-', '.'])),
        _ => format!("{name}.{id}"),
    }
}

fn event(note: &Note, stores: &Stores, id: &str, count: i32) -> Event {
    let about = about(&note.subject, stores);
    let now = Time(clock::now());
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(about.name.as_deref().unwrap_or_default(), id)),
            namespace: Some(note.subject.namespace().to_owned()),
            annotations: Some(note.annotations.clone()).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        },
        involved_object: about,
        type_: Some(match note.severity {
            Severity::Normal => "Normal".to_owned(),
            Severity::Warning => "Warning".to_owned(),
        }),
        reason: Some(note.reason.to_owned()),
        message: Some(note.message.clone()),
        source: Some(EventSource {
            component: Some(note.source.clone()),
            host: None,
        }),
        reporting_component: Some(note.source.clone()),
        reporting_instance: Some(String::new()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(count),
        ..Event::default()
    }
}

/// The uid of the object, if it is known.
fn uid(subject: &Subject, stores: &Stores) -> Option<String> {
    match subject {
        Subject::Pod(pod) => Some(pod.uid.to_string()),
        Subject::PodGroup(group) => stores.pod_groups.uid(group.namespace(), group.name()),
        Subject::Node(node) => stores.nodes.uid("", node),
    }
}

fn about(subject: &Subject, stores: &Stores) -> ObjectReference {
    let (namespace, name) = (subject.namespace(), subject.name());
    let (api_version, kind) = match subject {
        Subject::Pod(_) => ("v1".to_owned(), "Pod"),
        Subject::PodGroup(_) => (PodGroup::api_version(&()).into_owned(), "PodGroup"),
        Subject::Node(_) => ("v1".to_owned(), "Node"),
    };
    let has_namespace = !matches!(subject, Subject::Node(_));
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind.to_owned()),
        namespace: has_namespace.then(|| namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: uid(subject, stores),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests {
    use std::collections::BTreeMap;

    use kube::api::ListParams;

    use super::*;
    use crate::components::Settings;
    use crate::components::bus::{GroupKey, PodRef};
    use crate::components::tests::lab::{Lab, read, seconds};

    fn note(subject: Subject) -> Note {
        Note {
            subject,
            severity: Severity::Warning,
            reason: "Unschedulable",
            message: "no GPUs".to_owned(),
            source: "kai-scheduler".to_owned(),
            annotations: BTreeMap::new(),
        }
    }

    /// `kubectl describe` shows the events about the UID of an object.
    #[tokio::test(start_paused = true)]
    async fn a_pod_group_that_is_created_again_has_events_of_its_own() {
        let lab = Lab::start(Settings::default(), &["ns"]).await;
        let (notes, inbox) = mpsc::channel(1);
        tokio::spawn(run(lab.context.clone(), inbox, Arc::clone(&lab.stores)));
        let say = async || {
            let note = note(Subject::PodGroup(GroupKey::new("ns", "g")));
            notes.send(ToEvents::Ours(note)).await.expect("events are written");
            tokio::time::sleep(seconds(1)).await;
        };
        let exists = |uid: &str| {
            let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": uid}, "spec": {"minMember": 1}});
            lab.stores.pod_groups.insert(read(group));
        };
        let seen = async || {
            let events: Api<Event> = Api::namespaced(lab.admin.clone(), "ns");
            let events = events.list(&ListParams::default()).await.expect("an answer");
            let events = events.items.into_iter();
            let mut seen: Vec<_> = events.map(|event| (event.involved_object.uid, event.count)).collect();
            seen.sort_unstable();
            seen
        };
        let uid = |uid: &str| Some(uid.to_owned());
        say().await;
        assert!(seen().await.is_empty(), "it is about to be created");
        exists("1");
        say().await;
        assert_eq!(seen().await, [(uid("1"), Some(1))]);

        exists("2");
        say().await;
        assert_eq!(seen().await, [(uid("1"), Some(1)), (uid("2"), Some(1))]);
        tokio::time::sleep(seconds(60)).await;
        say().await;
        assert_eq!(seen().await, [(uid("1"), Some(1)), (uid("2"), Some(2))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeat_creates_an_event_that_could_not_be_created_before() {
        let lab = Lab::start(Settings::default(), &["ns"]).await;
        let context = lab.context.of_any_term().expect("a term");
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "ns", "name": "p.1a"}});
        assert!(lab.see(&event).await.is_null());
        for count in [7, 9] {
            let note = note(Subject::Pod(PodRef::new("ns", "p", "uid-p")));
            let (id, since) = ("1a".to_owned(), Instant::now());
            let write = Write::Again { id, count };
            let waiting = Waiting { note, write, since };
            send(&context, &lab.stores, waiting).await.expect("it is written");
            let seen = lab.see(&event).await;
            assert_eq!((&seen["count"], &seen["message"]), (&json!(count), &json!("no GPUs")));
        }
        let writes = lab.writes();
        assert_eq!(
            writes.iter().filter(|write| write.contains("events")).count(),
            3,
            "{writes:?}"
        );
    }
}
