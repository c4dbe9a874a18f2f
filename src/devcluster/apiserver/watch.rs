//! Watches: a body that streams events from a table's history, filtered for one client. The history ring is the buffer, so a
//! client that is too slow gets 410 Gone instead of growing the server.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{
    clock::Clock,
    convert,
    present::{Form, Presenter},
    registry::{Resource, Stored},
    selector::{FieldSelector, LabelSelector},
    status::ApiError,
    store::{Change, Event, Object, Signal, Since, Table},
};

/// Bytes after which a chunk is sent although more events wait.
const CHUNK_BYTES: usize = 256 * 1024;

/// The objects of a watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Empty for all namespaces.
    pub namespace: String,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Filter {
    /// Whether an object is to be seen.
    pub fn matches(&self, resource: &Resource, object: &Object) -> bool {
        let metadata = &object.value["metadata"];
        let in_namespace = self.namespace.is_empty() || metadata["namespace"] == self.namespace.as_str();
        in_namespace && self.labels.matches(&object.value) && self.matches_fields(resource, &object.value)
    }

    fn matches_fields(&self, resource: &Resource, stored: &Value) -> bool {
        match resource.stored {
            Stored::AsServed | Stored::OtherVersion | Stored::Never => self.fields.matches(stored),
            Stored::CoreEvents => self.fields.is_empty() || self.fields.matches(&convert::served(resource, stored)),
        }
    }
}

/// The start of a watch.
#[derive(Debug)]
pub(crate) enum Start {
    /// With the events after a revision.
    After(u64),
    /// With the state as it is, each object as added; `bookmark` asks for the bookmark that ends the initial state.
    State {
        objects: Vec<Arc<Object>>,
        revision: u64,
        bookmark: bool,
    },
}

/// A watch to be opened.
#[derive(Debug)]
pub(crate) struct Request {
    pub resource: Arc<Resource>,
    pub table: Arc<Table>,
    pub form: Form,
    pub filter: Filter,
    pub start: Start,
    pub bookmarks: Option<Duration>,
    pub timeout: Duration,
    pub clock: Clock,
}

struct Watcher {
    request: Request,
    initial: VecDeque<Arc<Object>>,
    end_of_initial: bool,
    cursor: u64,
    signal: watch::Receiver<Signal>,
    opened: Signal,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    headers_sent: bool,
    /// It asked for a revision that is compacted.
    too_old: bool,
    finished: bool,
}

/// Opens a watch. The table is read again after the signal is taken, so nothing between the two is missed.
pub(crate) fn open(mut request: Request) -> Body {
    let mut signal = request.table.subscribe();
    let opened = *signal.borrow_and_update();
    let (initial, end_of_initial, cursor) = match &mut request.start {
        Start::After(revision) => (VecDeque::new(), false, *revision),
        Start::State {
            objects,
            revision,
            bookmark,
        } => (std::mem::take(objects).into(), *bookmark, *revision),
    };
    let too_old = matches!(request.start, Start::After(revision) if revision < request.table.compacted());
    let now = Instant::now();
    let watcher = Watcher {
        too_old,
        initial,
        end_of_initial,
        cursor,
        signal,
        opened,
        deadline: now + request.timeout,
        next_bookmark: request.bookmarks.map(|interval| now + interval),
        headers_sent: false,
        finished: false,
        request,
    };
    Body::from_stream(futures::stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next_chunk().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(chunk), watcher))
    }))
}

/// Why a watcher woke up.
enum Woken {
    Signal,
    Bookmark,
    Deadline,
}

impl Watcher {
    /// The next bytes for the client; `None` ends the answer.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.finished || Instant::now() >= self.deadline {
                return None;
            }
            let ended = self.check_signal()?;
            let chunk = if self.too_old {
                self.too_old(self.request.table.compacted())
            } else if ended {
                self.expired("The resourceVersion for the provided watch is too old.")
            } else {
                self.pending()
            };
            if !chunk.is_empty() {
                return Some(chunk.freeze());
            }
            // Without bookmarks, the deadline comes first.
            let bookmark = self.next_bookmark.unwrap_or(self.deadline);
            let woken = tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.deadline) => Woken::Deadline,
                () = tokio::time::sleep_until(bookmark) => Woken::Bookmark,
                changed = self.signal.changed() => {
                    changed.ok()?;
                    Woken::Signal
                }
            };
            match woken {
                Woken::Signal => {}
                Woken::Deadline => return None,
                Woken::Bookmark => return Some(self.bookmark(false).freeze()),
            }
        }
    }

    /// Checks for forced ends: `None` closes the watch, true expires it.
    fn check_signal(&mut self) -> Option<bool> {
        let signal = *self.signal.borrow_and_update();
        if signal.drops != self.opened.drops {
            return None;
        }
        Some(signal.expiries != self.opened.expiries)
    }

    /// The pending events of this client, up to a chunk.
    fn pending(&mut self) -> BytesMut {
        let mut out = BytesMut::new();
        while let Some(object) = self.initial.pop_front() {
            if self.request.filter.matches(&self.request.resource, &object) {
                self.write(&mut out, "ADDED", &object);
            }
            if out.len() > CHUNK_BYTES {
                return out;
            }
        }
        if std::mem::take(&mut self.end_of_initial) {
            out.extend_from_slice(&self.bookmark(true));
        }
        match self.request.table.since(self.cursor) {
            Since::Compacted(oldest) => {
                out.extend_from_slice(&self.too_old(oldest));
            }
            Since::Events { events, revision } => {
                for event in &events {
                    self.cursor = event.object.revision;
                    self.write_event(&mut out, event);
                    if out.len() > CHUNK_BYTES {
                        return out;
                    }
                }
                self.cursor = self.cursor.max(revision);
            }
        }
        out
    }

    fn write_event(&mut self, out: &mut BytesMut, event: &Event) {
        let filter = &self.request.filter;
        let matched = |object: &Object| filter.matches(&self.request.resource, object);
        let before = event.previous.as_deref().is_some_and(matched);
        match event.change {
            Change::Deleted if before => self.write(out, "DELETED", &event.object),
            Change::Deleted => {}
            Change::Added | Change::Modified => match (before, matched(&event.object)) {
                (true, true) => self.write(out, "MODIFIED", &event.object),
                (false, true) => self.write(out, "ADDED", &event.object),
                (true, false) => {
                    let last_seen = event
                        .previous
                        .as_ref()
                        .map_or(&event.object.value, |previous| &previous.value)
                        .clone();
                    self.write(out, "DELETED", &Object::new(last_seen, event.object.revision));
                }
                (false, false) => {}
            },
        }
    }

    fn write(&mut self, out: &mut BytesMut, kind: &str, object: &Object) {
        let headers = !std::mem::replace(&mut self.headers_sent, true);
        let presenter = Presenter {
            resource: &self.request.resource,
            form: self.request.form,
            clock: &self.request.clock,
        };
        write_line(out, kind, &presenter.object(object, headers));
    }

    /// A bookmark at the cursor, which is up to date when nothing is pending.
    fn bookmark(&mut self, end_of_initial: bool) -> BytesMut {
        let now = Instant::now();
        self.next_bookmark = self.request.bookmarks.map(|interval| now + interval);
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let resource = &self.request.resource;
        let mut out = BytesMut::new();
        let object = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
        let presenter = Presenter {
            resource,
            form: self.request.form,
            clock: &self.request.clock,
        };
        let rendered = presenter.value(&object, !std::mem::replace(&mut self.headers_sent, true));
        write_line(&mut out, "BOOKMARK", &rendered);
        out
    }

    fn too_old(&mut self, oldest: u64) -> BytesMut {
        self.expired(&format!("too old resource version: {} ({oldest})", self.cursor))
    }

    fn expired(&mut self, message: &str) -> BytesMut {
        self.finished = true;
        let mut out = BytesMut::new();
        write_line(
            &mut out,
            "ERROR",
            ApiError::expired(message).to_value().to_string().as_bytes(),
        );
        out
    }
}

fn write_line(out: &mut BytesMut, kind: &str, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.put_slice(br#"{"type":""#);
    out.put_slice(kind.as_bytes());
    out.put_slice(br#"","object":"#);
    out.put_slice(object);
    out.put_slice(b"}\n");
}
