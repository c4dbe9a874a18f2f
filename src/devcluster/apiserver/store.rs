//! Objects and their history in memory: one revision counter, a table per resource, a ring of past events per table. Independent
//! of HTTP, kinds and validation. No lock is held across an await, and an object is serialised once per revision,
//! by the first reader that needs it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Group and plural of a stored resource.
pub(crate) type ResourceKey = (String, String);

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type ObjectKey = (String, String);

/// One revision of an object.
#[derive(Debug)]
pub(crate) struct Object {
    pub value: Value,
    pub revision: u64,
    json: OnceLock<Bytes>,
}

impl Object {
    /// An object at a revision, which it shows as its `resourceVersion`.
    pub fn new(mut value: Value, revision: u64) -> Self {
        value["metadata"]["resourceVersion"] = json!(revision.to_string());
        Object {
            value,
            revision,
            json: OnceLock::new(),
        }
    }

    /// An object that a dry run would have stored, without a revision.
    pub fn unstored(value: Value) -> Self {
        Object {
            value,
            revision: 0,
            json: OnceLock::new(),
        }
    }

    /// The object as compact JSON.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(self.value.to_string()))
    }

    /// Namespace and name.
    pub fn key(&self) -> ObjectKey {
        key_of(&self.value)
    }
}

/// Namespace and name of an object.
pub(crate) fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One entry of a table's history. For a deletion, `object` is the last state with the revision of the deletion.
#[derive(Debug)]
pub(crate) struct Event {
    pub change: Change,
    pub object: Arc<Object>,
    pub previous: Option<Arc<Object>>,
}

/// Why a write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// The name is taken.
    Exists,
    /// No such object.
    Missing,
    /// The object is at another revision than expected.
    Modified,
}

/// What wakes watchers: the newest revision of the table, and the generations of forced ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signal {
    pub revision: u64,
    pub drops: u64,
    pub expiries: u64,
}

/// A consistent reading of a table.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub revision: u64,
    pub objects: Vec<Arc<Object>>,
}

/// The events after a revision, as far as they are kept.
#[derive(Debug)]
pub(crate) enum Since {
    /// All events after the asked revision up to `revision`, oldest first.
    Events { events: Vec<Arc<Event>>, revision: u64 },
    /// The asked revision is older than history; this is the oldest that could be asked for.
    Compacted(u64),
}

/// All objects of the server.
#[derive(Debug)]
pub(crate) struct Store {
    revision: Arc<AtomicU64>,
    tables: RwLock<HashMap<ResourceKey, Arc<Table>>>,
    history: usize,
}

impl Store {
    /// An empty store that keeps so many past events per resource.
    pub fn new(history: usize) -> Self {
        Store {
            revision: Arc::new(AtomicU64::new(1)),
            tables: RwLock::default(),
            history,
        }
    }

    /// The table of a resource, made at first use.
    pub fn table(&self, key: &ResourceKey) -> Arc<Table> {
        if let Some(table) = self.tables.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return table.clone();
        }
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables
            .entry(key.clone())
            .or_insert_with(|| Arc::new(Table::new(self.revision.clone(), self.history)))
            .clone()
    }

    /// The table of a resource of this group and plural.
    pub fn of(&self, group: &str, plural: &str) -> Arc<Table> {
        self.table(&(group.to_owned(), plural.to_owned()))
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    /// Compacts all history.
    pub fn compact(&self) {
        for (_, table) in self.tables_of(None) {
            let mut inner = table.lock();
            inner.dropped = inner
                .history
                .back()
                .map_or(inner.dropped, |event| event.object.revision);
            inner.history.clear();
            inner.compacted = self.revision();
        }
    }

    /// Closes open watches without an event.
    pub fn drop_watches(&self, resource: Option<&str>) {
        for (_, table) in self.tables_of(resource) {
            table.signal.send_modify(|signal| signal.drops += 1);
        }
    }

    /// Ends open watches with 410 Gone.
    pub fn expire_watches(&self, resource: Option<&str>) {
        for (_, table) in self.tables_of(resource) {
            table.signal.send_modify(|signal| signal.expiries += 1);
        }
    }

    fn tables_of(&self, resource: Option<&str>) -> Vec<(ResourceKey, Arc<Table>)> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: Vec<_> = tables
            .iter()
            .filter(|((_, plural), _)| resource.is_none_or(|resource| resource == plural))
            .map(|(key, table)| (key.clone(), table.clone()))
            .collect();
        wanted.sort_by(|(left, _), (right, _)| left.cmp(right));
        wanted
    }
}

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Table {
    revision: Arc<AtomicU64>,
    capacity: usize,
    inner: Mutex<Inner>,
    signal: watch::Sender<Signal>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    history: VecDeque<Arc<Event>>,
    /// Revision of the newest event that is no longer kept.
    dropped: u64,
    /// The oldest revision that may still be asked for.
    compacted: u64,
}

impl Table {
    fn new(revision: Arc<AtomicU64>, capacity: usize) -> Self {
        Table {
            revision,
            capacity,
            inner: Mutex::default(),
            signal: watch::Sender::default(),
        }
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.lock().objects.get(key).cloned()
    }

    /// True when it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.lock().objects.is_empty()
    }

    /// All objects of a namespace, or of all namespaces when it is empty, by namespace and name.
    pub fn list(&self, namespace: &str) -> Snapshot {
        let inner = self.lock();
        Snapshot {
            revision: self.revision.load(Ordering::SeqCst),
            objects: in_namespace(&inner.objects, namespace, None)
                .map(|(_, object)| object.clone())
                .collect(),
        }
    }

    /// The objects after a key, as they were at a past revision; `None` when history does not reach back that far.
    pub fn list_at(&self, namespace: &str, revision: u64, after: Option<&ObjectKey>) -> Option<Vec<Arc<Object>>> {
        let inner = self.lock();
        if revision < inner.compacted {
            return None;
        }
        let since = inner.history.iter().rev();
        let since = since.take_while(|event| event.object.revision > revision);
        // From the last change to the first one, which knows what was there before.
        let changed: BTreeMap<ObjectKey, Option<&Arc<Object>>> = since
            .map(|event| (event.object.key(), event.previous.as_ref()))
            .collect();
        let now = in_namespace(&inner.objects, namespace, after);
        let mut objects: Vec<_> = now.filter(|(key, _)| !changed.contains_key(*key)).collect();
        let then = in_namespace(&changed, namespace, after);
        objects.extend(then.filter_map(|(key, object)| Some((key, (*object)?))));
        objects.sort_unstable_by_key(|(key, _)| *key);
        Some(objects.into_iter().map(|(_, object)| object.clone()).collect())
    }

    /// The oldest revision that a new watch may start from.
    pub fn compacted(&self) -> u64 {
        self.lock().compacted
    }

    /// The events after a revision; a reader that has seen all that was dropped misses nothing.
    pub fn since(&self, revision: u64) -> Since {
        let inner = self.lock();
        if revision < inner.dropped {
            return Since::Compacted(inner.compacted);
        }
        let start = inner.history.partition_point(|event| event.object.revision <= revision);
        Since::Events {
            events: inner.history.range(start..).cloned().collect(),
            revision: self.revision.load(Ordering::SeqCst),
        }
    }

    /// The revision of the last change that watchers were told of; 0 if there was none.
    pub fn changed(&self) -> u64 {
        self.signal.borrow().revision
    }

    /// Wakes on changes.
    pub fn subscribe(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    /// Adds an object under its namespace and name.
    pub fn create(&self, value: Value) -> Result<Arc<Object>, WriteError> {
        let key = key_of(&value);
        let mut inner = self.lock();
        if inner.objects.contains_key(&key) {
            return Err(WriteError::Exists);
        }
        let object = Arc::new(Object::new(value, self.next_revision()));
        inner.objects.insert(key, object.clone());
        self.publish(
            inner,
            Event {
                change: Change::Added,
                object: object.clone(),
                previous: None,
            },
        );
        Ok(object)
    }

    /// Replaces the object that is at the expected revision.
    pub fn replace(&self, key: &ObjectKey, expected: u64, value: Value) -> Result<Arc<Object>, WriteError> {
        let mut inner = self.lock();
        let previous = expect(&inner, key, expected)?;
        let object = Arc::new(Object::new(value, self.next_revision()));
        inner.objects.insert(key.clone(), object.clone());
        self.publish(
            inner,
            Event {
                change: Change::Modified,
                object: object.clone(),
                previous: Some(previous),
            },
        );
        Ok(object)
    }

    /// Removes the object that is at the expected revision; `last` is its last state.
    pub fn remove(&self, key: &ObjectKey, expected: u64, last: Value) -> Result<Arc<Object>, WriteError> {
        let mut inner = self.lock();
        let previous = expect(&inner, key, expected)?;
        let object = Arc::new(Object::new(last, self.next_revision()));
        inner.objects.remove(key);
        self.publish(
            inner,
            Event {
                change: Change::Deleted,
                object: object.clone(),
                previous: Some(previous),
            },
        );
        Ok(object)
    }

    /// Writes of a table are ordered by its lock, so revisions in its history only grow.
    fn next_revision(&self) -> u64 {
        self.revision.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn publish(&self, mut inner: MutexGuard<'_, Inner>, event: Event) {
        let revision = event.object.revision;
        inner.history.push_back(Arc::new(event));
        if inner.history.len() > self.capacity
            && let Some(oldest) = inner.history.pop_front()
        {
            inner.dropped = oldest.object.revision;
            inner.compacted = inner.compacted.max(inner.dropped);
        }
        drop(inner);
        self.signal
            .send_modify(|signal| signal.revision = signal.revision.max(revision));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn expect(inner: &Inner, key: &ObjectKey, revision: u64) -> Result<Arc<Object>, WriteError> {
    let object = inner.objects.get(key).ok_or(WriteError::Missing)?;
    if object.revision == revision {
        Ok(object.clone())
    } else {
        Err(WriteError::Modified)
    }
}

/// What a namespace has after a key; of all namespaces if its name is empty.
fn in_namespace<'m, V>(
    map: &'m BTreeMap<ObjectKey, V>,
    namespace: &'m str,
    after: Option<&ObjectKey>,
) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> {
    let first = (namespace.to_owned(), String::new());
    let start = match after.filter(|after| **after >= first) {
        Some(after) => Bound::Excluded(after),
        None => Bound::Included(&first),
    };
    map.range::<ObjectKey, _>((start, Bound::Unbounded))
        .take_while(move |((at, _), _)| namespace.is_empty() || at == namespace)
}

#[cfg(test)]
mod tests;
