//! The kinds that the API server serves, and a metadata watch of each that no controller watches anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::Collector;
use super::graph::Kind;
use crate::devcluster::world::informer::Informer;

/// Group and plural name.
type Name = (String, String);

/// Kinds that change all the time and own nothing, and namespaces, which their controller deletes.
const LEFT_OUT: [(&str, &str); 4] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
    ("", "namespaces"),
];

/// The kinds found so far.
pub(super) struct Kinds {
    known: watch::Sender<Option<Vec<Arc<Kind>>>>,
    /// Kinds that arrive by a shared watch.
    shared: Mutex<BTreeSet<Name>>,
    changed: Arc<Notify>,
}

impl Default for Kinds {
    fn default() -> Self {
        Self {
            known: watch::Sender::new(None),
            shared: Mutex::default(),
            changed: Arc::default(),
        }
    }
}

impl Kinds {
    /// This kind is watched elsewhere.
    pub fn shared(&self, resource: &ApiResource) {
        self.shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name(resource));
    }

    /// All kinds, after the first discovery.
    pub async fn known(&self) -> Vec<Arc<Kind>> {
        let mut known = self.known.subscribe();
        let found = known.wait_for(Option::is_some).await;
        found.ok().and_then(|kinds| kinds.clone()).unwrap_or_default()
    }

    /// The kind that an owner reference names, of whatever version.
    pub fn find(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let known = self.known.borrow();
        known
            .iter()
            .flatten()
            .find(|known| known.resource.group == group && known.resource.kind == kind)
            .cloned()
    }

    fn is_shared(&self, resource: &ApiResource) -> bool {
        self.shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&name(resource))
    }
}

/// Finds the kinds and watches them, again whenever a CustomResourceDefinition changes, for ever.
pub(super) async fn follow(collector: &Arc<Collector>) {
    let mut watches: BTreeMap<Name, JoinSet<()>> = BTreeMap::new();
    let mut fresh = true;
    loop {
        match discover(collector).await {
            Ok(found) => {
                let served: BTreeSet<Name> = found.iter().map(|kind| name(&kind.resource)).collect();
                // Its last objects were deleted with the kind itself.
                watches.retain(|name, _| served.contains(name));
                for kind in &found {
                    if !collector.kinds.is_shared(&kind.resource) && !watches.contains_key(&name(&kind.resource)) {
                        watches.insert(name(&kind.resource), watch_kind(collector, Arc::clone(kind)).await);
                    }
                }
                collector.kinds.known.send_replace(Some(found));
                wait_for_change(&collector.kinds.changed, &mut fresh).await;
            }
            Err(error) => {
                tracing::warn!(%error, "discovery failed, retrying");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Waits for a change of the kinds. An API server may show a change in its discovery only a moment later: `fresh` asks for one
/// more look.
async fn wait_for_change(changed: &Notify, fresh: &mut bool) {
    if *fresh {
        *fresh = tokio::time::timeout(Duration::from_secs(2), changed.notified())
            .await
            .is_ok();
    } else {
        changed.notified().await;
        *fresh = true;
    }
}

async fn discover(collector: &Collector) -> kube::Result<Vec<Arc<Kind>>> {
    let discovery = Discovery::new(collector.client.clone()).run().await?;
    // A kind may be served in another version than the one that its group prefers, and in no other.
    let resources = discovery
        .groups_alphabetical()
        .into_iter()
        .flat_map(ApiGroup::resources_by_stability);
    let collectable = resources.filter(|(resource, capabilities)| {
        let left_out = LEFT_OUT
            .iter()
            .any(|(group, plural)| resource.group == *group && resource.plural == *plural);
        !left_out
            && [verbs::LIST, verbs::WATCH, verbs::DELETE]
                .iter()
                .all(|verb| capabilities.supports_operation(verb))
    });
    let mut kinds: Vec<_> = collectable
        .map(|(resource, capabilities)| Arc::new(Kind::of(resource, &capabilities)))
        .collect();
    kinds.sort_by_cached_key(|kind| name(&kind.resource));
    Ok(kinds)
}

/// Starts the metadata watch of a kind and waits for its first list.
async fn watch_kind(collector: &Arc<Collector>, kind: Arc<Kind>) -> JoinSet<()> {
    let informer: Arc<Informer<PartialObjectMeta<DynamicObject>>> = Informer::new();
    if kind.resource.plural == "customresourcedefinitions" {
        let changed = Arc::clone(&collector.kinds.changed);
        informer.on_change(move |change| {
            let generation = |object: Option<&Arc<PartialObjectMeta<DynamicObject>>>| {
                object.map(|o| o.meta().resource_version.clone())
            };
            if generation(change.old) != generation(change.new) {
                changed.notify_one();
            }
        });
    }
    collector.follow(&informer, Arc::clone(&kind));
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(collector.client.clone(), &kind.resource);
    let mut task = JoinSet::new();
    let feeder = Arc::clone(&informer);
    task.spawn(async move { feeder.run(watcher(api, watcher::Config::default())).await });
    // A kind that cannot be listed (its CRD is being deleted) must not hold up the others.
    let _ = tokio::time::timeout(Duration::from_secs(5), informer.synced()).await;
    task
}

fn name(resource: &ApiResource) -> Name {
    (resource.group.clone(), resource.plural.clone())
}
