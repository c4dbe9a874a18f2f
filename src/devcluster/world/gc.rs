//! The garbage collector: deletes objects whose owners are gone; foreground deletions wait for dependents; orphans lose their owner references.
//!
//! It watches the metadata of every kind that the API server serves, kinds of custom resources as they come and go, except events and
//! Leases, which own nothing and which change all the time.

pub(super) mod graph;
mod kinds;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::task::JoinSet;

use self::graph::{Entry, FOREGROUND, Graph, Kind, ORPHAN, Plan, Uid};
use self::kinds::Kinds;
use super::Shared;
use super::informer::{Informer, Key};
use super::queue::{Again, WorkQueue};

/// How long until an owner that no watch has shown is looked up again.
const UNSEEN_OWNER: SignedDuration = SignedDuration::from_secs(10);

/// The garbage collector and its graph of objects, which the namespace controller uses too.
pub(super) struct Collector {
    client: Client,
    graph: Mutex<Graph>,
    kinds: Kinds,
    queue: WorkQueue<Uid>,
    /// Called with the namespace of each object that is gone.
    on_gone: Box<dyn Fn(&str) + Send + Sync>,
}

impl Collector {
    /// A collector that calls `on_gone` with the namespace of each deleted object.
    pub fn new(client: Client, on_gone: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            client,
            graph: Mutex::default(),
            kinds: Kinds::default(),
            queue: WorkQueue::new(),
            on_gone: Box::new(on_gone),
        })
    }

    /// Gets the objects of one kind from its shared watch, so that the kind is not watched twice.
    pub fn listen<K>(self: &Arc<Self>, informer: &Informer<K>)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let resource = kube::core::ApiResource::erase::<K>(&());
        let namespaced = resource.kind != "Node" && resource.kind != "Namespace";
        self.kinds.shared(&resource);
        self.follow(informer, Arc::new(Kind { resource, namespaced }));
    }

    /// Spawns the collector: it finds the kinds, watches them and collects.
    pub fn spawn(self: &Arc<Self>, tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>) {
        let collector = Arc::clone(self);
        tasks.spawn(async move {
            kinds::follow(&collector).await;
            "discovery of kinds"
        });
        let (collector, shared) = (Arc::clone(self), Arc::clone(shared));
        tasks.spawn(async move {
            collector.kinds.known().await;
            collector
                .queue
                .run(&shared.clock, 16, |uid| collector.collect(uid, shared.clock.now()))
                .await;
            "garbage collection"
        });
    }

    /// The kinds that have been found; waits for the first discovery.
    pub async fn kinds(&self) -> Vec<Arc<Kind>> {
        self.kinds.known().await
    }

    /// All known objects of a namespace.
    pub fn in_namespace(&self, ns: &str) -> Vec<(Uid, Entry)> {
        self.graph().in_namespace(ns)
    }

    /// Deletes an object, if it is still this one; one that is gone is no error.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn delete(&self, uid: &Uid, entry: &Entry, policy: PropagationPolicy) -> kube::Result<()> {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: Some(uid.0.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api(entry).delete(&entry.key.name, &params).await {
            Ok(_) => Ok(()),
            // Gone, or another of its name: the watch will show it.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn follow<K>(self: &Arc<Self>, informer: &Informer<K>, kind: Arc<Kind>)
    where
        K: Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let collector = Arc::downgrade(self);
        informer.on_change(move |change| {
            let Some(collector) = collector.upgrade() else { return };
            if let Some(old) = change.old
                && change.new.is_none_or(|new| new.meta().uid != old.meta().uid)
            {
                collector.gone(old.meta());
            }
            if let Some(new) = change.new {
                let unchanged = change.old.is_some_and(|old| is_same(old.meta(), new.meta()));
                if !unchanged {
                    collector.seen(&kind, new.meta());
                }
            }
        });
    }

    fn seen(&self, kind: &Arc<Kind>, meta: &ObjectMeta) {
        let look_at = self.graph().observe(kind, meta);
        look_at.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn gone(&self, meta: &ObjectMeta) {
        let uid = Uid(meta.uid.clone().unwrap_or_default());
        let look_at = self.graph().remove(&uid);
        look_at.into_iter().for_each(|uid| self.queue.add(uid));
        if let Some(ns) = &meta.namespace {
            (self.on_gone)(ns);
        }
    }

    async fn collect(&self, uid: Uid, now: Timestamp) -> kube::Result<Again> {
        let (plan, entry) = {
            let graph = self.graph();
            (graph.plan(&uid), graph.entry(&uid))
        };
        let Some(entry) = entry else { return Ok(Again::OnChange) };
        match plan {
            Plan::Nothing => {}
            Plan::Await { dependents } => dependents.into_iter().for_each(|dependent| self.queue.add(dependent)),
            Plan::LetGo { finalizer } => self.let_go(&uid, &entry, finalizer).await?,
            Plan::Orphan { dependents } => {
                let freed = join_all(dependents.iter().map(|dependent| self.free(dependent, &uid))).await;
                freed.into_iter().collect::<kube::Result<Vec<()>>>()?;
                self.let_go(&uid, &entry, ORPHAN).await?;
            }
            Plan::CheckOwners {
                mut live,
                waiting,
                unknown,
                has_dependents,
            } => {
                let (found, absent) = self.look_up(&entry, unknown).await?;
                // An owner that is deleted before its watch has shown it is never seen to go.
                let unseen = found
                    .iter()
                    .any(|owner| self.kinds.find(&owner.api_version, &owner.kind).is_some());
                let again = if unseen {
                    Again::At(now + UNSEEN_OWNER)
                } else {
                    Again::OnChange
                };
                live.extend(found);
                if live.is_empty() {
                    let foreground =
                        entry.finalizers.iter().any(|f| f == FOREGROUND) || (!waiting.is_empty() && has_dependents);
                    let policy = if foreground {
                        PropagationPolicy::Foreground
                    } else {
                        PropagationPolicy::Background
                    };
                    self.delete(&uid, &entry, policy).await?;
                } else if !absent.is_empty() || !waiting.is_empty() {
                    self.patch_meta(&uid, &entry, &json!({"ownerReferences": live})).await?;
                }
                return Ok(again);
            }
        }
        Ok(Again::OnChange)
    }

    /// Asks the API server about owners that the watches have not shown: those that exist, and those that do not.
    async fn look_up(
        &self,
        dependent: &Entry,
        owners: Vec<OwnerReference>,
    ) -> kube::Result<(Vec<OwnerReference>, Vec<OwnerReference>)> {
        let (mut found, mut absent) = (Vec::new(), Vec::new());
        for owner in owners {
            // An owner of a kind that is not served may be waiting for its CRD.
            let exists = match self.kinds.find(&owner.api_version, &owner.kind) {
                None => true,
                Some(kind) => {
                    let ns = if kind.namespaced { dependent.key.ns.as_str() } else { "" };
                    let live = self.api_of(&kind, ns).get_metadata_opt(&owner.name).await?;
                    live.is_some_and(|live| live.metadata.uid.as_deref() == Some(&owner.uid))
                }
            };
            if exists { found.push(owner) } else { absent.push(owner) }
        }
        Ok((found, absent))
    }

    async fn free(&self, dependent: &Uid, owner: &Uid) -> kube::Result<()> {
        let Some(entry) = self.graph().entry(dependent) else {
            return Ok(());
        };
        let kept: Vec<_> = entry
            .owners
            .iter()
            .filter(|reference| reference.uid != owner.0)
            .collect();
        self.patch_meta(dependent, &entry, &json!({"ownerReferences": kept}))
            .await
    }

    async fn let_go(&self, uid: &Uid, entry: &Entry, finalizer: &str) -> kube::Result<()> {
        let kept: Vec<_> = entry.finalizers.iter().filter(|own| *own != finalizer).collect();
        self.patch_meta(uid, entry, &json!({"finalizers": kept})).await
    }

    /// Changes an object's metadata, if it is still this object; one that is gone is no error.
    async fn patch_meta(&self, uid: &Uid, entry: &Entry, change: &serde_json::Value) -> kube::Result<()> {
        let mut meta = change.clone();
        meta["uid"] = json!(uid.0);
        let patch = Patch::Merge(json!({"metadata": meta}));
        match self
            .api(entry)
            .patch_metadata(&entry.key.name, &PatchParams::default(), &patch)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn api(&self, entry: &Entry) -> Api<DynamicObject> {
        self.api_of(&entry.kind, &entry.key.ns)
    }

    fn api_of(&self, kind: &Kind, ns: &str) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), ns, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing that the collector looks at has changed.
fn is_same(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    old.uid == new.uid
        && old.owner_references == new.owner_references
        && old.finalizers == new.finalizers
        && old.deletion_timestamp.is_some() == new.deletion_timestamp.is_some()
        && Key::of(old) == Key::of(new)
}
