//! One watch per kind for the whole process: list, watch, and tell the subscribers what changed.
//!
//! A watch survives whatever the API server does: dropped connections, expired resource versions (it lists again and reports
//! what vanished meanwhile as deleted), a kind whose CRD is not installed yet, objects that do not decode (logged, counted and
//! passed over; the last readable version stays). What is absent: any knowledge of what the objects mean.

mod kinds;
mod store;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::{Backoff as Waits, ResetTimerBackoff};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use tracing::{Instrument, debug, info, info_span, warn};

pub use kinds::Watched;
pub use store::{Key, Store, Stores};

use crate::api::lenient::{self, Guarded};
use crate::components::bus::{
    Bus, Change, Kind, ToBinder, ToGrouper, ToPodGroups, ToQueues, ToScaleUp, ToScheduler, deliver,
};
use crate::components::readiness::Handle;
use crate::components::retry::Backoff;
use crate::components::{Context, Error};

/// Shortest and longest wait before a failed list or watch is tried again. The longest bounds how late the operator notices
/// that a missing CRD was installed.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(5),
};
/// So long without a failure, and the next one counts as the first again.
const CALM: Duration = Duration::from_secs(20);

/// Runs the watches of all kinds until shutdown. Fills `stores` and tells every subscriber on the bus.
///
/// # Errors
/// If a subscriber's inbox is closed while the process is not shutting down.
pub async fn run(context: Context, stores: Arc<Stores>, bus: Bus) -> Result<(), Error> {
    let mut watches = tokio::task::JoinSet::new();
    for kind in Kind::ALL {
        let readiness = context
            .readiness
            .handle(format!("watch-{}", kind.plural()), "first list is under way");
        let feed = Feed {
            client: context.reads.clone(),
            stores: Arc::clone(&stores),
            bus: bus.clone(),
            readiness,
        };
        let shutdown = context.shutdown.clone();
        let wanted = match kind {
            // The agents that write them do so all the time.
            Kind::NodeResourceTopology => context.settings.numa.is_some(),
            Kind::ConfigMap => context.settings.config_maps,
            _ => true,
        };
        let watch = async move {
            let watch = async {
                if wanted {
                    kinds::start(kind, feed).await
                } else {
                    feed.readiness.ready();
                    publish(&feed.bus, kind, Change::Synced(kind)).await
                }
            };
            shutdown
                .run_until_cancelled_owned(Box::pin(watch))
                .await
                .unwrap_or(Ok(()))
        };
        watches.spawn(watch.instrument(info_span!("watch", kind = kind.plural())));
    }
    while let Some(ended) = watches.join_next().await {
        ended.map_err(|panic| Error::Panicked {
            task: "watch",
            panic: panic.to_string(),
        })??;
    }
    Ok(())
}

/// What one watch works with.
pub struct Feed {
    client: Client,
    stores: Arc<Stores>,
    bus: Bus,
    readiness: Handle,
}

/// Watches one kind until the inbox of a subscriber is closed.
async fn watch<K: Watched>(feed: Feed) -> Result<(), Error> {
    let api = Api::<Guarded<K>>::all(feed.client.clone());
    follow(feed, watcher(api, watcher::Config::default())).await
}

/// The same for a kind of which only the metadata is asked for; the guard of others would hide that from the client.
async fn watch_metadata<K: Watched>(feed: Feed) -> Result<(), Error> {
    let events = watcher(Api::<K>::all(feed.client.clone()), watcher::Config::default());
    let guarded = |object| DeserializeGuard(Ok(object));
    let events = events.map_ok(move |event| match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(guarded(object)),
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::Apply(object) => watcher::Event::Apply(guarded(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(guarded(object)),
    });
    follow(feed, events).await
}

/// Passes on what a watch brings, until the inbox of a subscriber is closed.
async fn follow<K: Watched>(
    feed: Feed,
    events: impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send,
) -> Result<(), Error> {
    let mut events = events.backoff(ResetTimerBackoff::new(Failures(0), CALM)).boxed();
    let mut state = State::<K>::new(K::store(&feed.stores), &feed.readiness);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                for change in state.advance(event) {
                    publish(&feed.bus, K::KIND, change).await?;
                }
            }
            Err(error) if K::KIND.optional() && !state.listed && is_absent(&error) => {
                if state.absent(&error) {
                    publish(&feed.bus, K::KIND, Change::Synced(K::KIND)).await?;
                }
            }
            Err(error) => state.failed(&error),
        }
    }
    Ok(())
}

/// Failures in a row, as the waits that follow them.
struct Failures(u32);

impl Iterator for Failures {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 = self.0.saturating_add(1);
        Some(RETRY.wait(self.0))
    }
}

impl Waits for Failures {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

/// Where a watch stands: the store it keeps in step, and during a relist what has been seen again.
struct State<'a, K: Watched> {
    store: &'a Store<K>,
    readiness: &'a Handle,
    seen: HashSet<Key>,
    listed: bool,
    failing: bool,
    /// The API server has no such kind, and nobody waits for it.
    missed: bool,
}

impl<'a, K: Watched> State<'a, K> {
    fn new(store: &'a Store<K>, readiness: &'a Handle) -> Self {
        Self {
            store,
            readiness,
            seen: HashSet::new(),
            listed: false,
            failing: false,
            missed: false,
        }
    }

    /// The API server is without this kind, which it may be. True the first time.
    fn absent(&mut self, error: &watcher::Error) -> bool {
        if std::mem::replace(&mut self.missed, true) {
            return false;
        }
        info!(%error, "the API server is without this kind; it is asked again now and then");
        self.readiness.ready();
        true
    }

    /// Takes one event of the watch into the store and says what changed.
    fn advance(&mut self, event: watcher::Event<Guarded<K>>) -> Vec<Change> {
        if let watcher::Event::Init = event {
            self.seen.clear();
            return Vec::new();
        }
        self.recovered();
        match event {
            watcher::Event::Init => Vec::new(),
            watcher::Event::InitApply(object) => {
                self.seen.insert(Key::of(Resource::meta(&object)));
                self.apply(object)
            }
            watcher::Event::InitDone => self.init_done(),
            watcher::Event::Apply(object) => self.apply(object),
            watcher::Event::Delete(object) => {
                let gone = self.store.remove(&Key::of(Resource::meta(&object)));
                gone.map(|last| Change::Deleted(K::object(last))).into_iter().collect()
            }
        }
    }

    fn apply(&mut self, guarded: Guarded<K>) -> Vec<Change> {
        let mut object = match lenient::unguard(guarded) {
            Ok(object) => object,
            Err(rejection) => {
                metrics::counter!("unikai_watch_undecodable_total", "kind" => K::KIND.plural()).increment(1);
                warn!(
                    ns = rejection.namespace,
                    name = rejection.name,
                    error = rejection.reason,
                    "object passed over: it does not decode"
                );
                return Vec::new();
            }
        };
        object.trim();
        let object = Arc::new(object);
        let Some(previous) = self.store.insert(Arc::clone(&object)) else {
            return vec![Change::Applied(K::object(object))];
        };
        if previous.meta().uid != object.meta().uid {
            return vec![Change::Deleted(K::object(previous)), Change::Applied(K::object(object))];
        }
        let same = previous.meta().resource_version.is_some()
            && previous.meta().resource_version == object.meta().resource_version;
        if same {
            Vec::new()
        } else {
            vec![Change::Applied(K::object(object))]
        }
    }

    /// The list is complete: what it did not name is gone.
    fn init_done(&mut self) -> Vec<Change> {
        let gone = self.store.retain(|key| self.seen.contains(key));
        self.seen.clear();
        if !self.listed {
            self.listed = true;
            info!(objects = self.store.len(), "kind listed");
        }
        self.readiness.ready();
        let deletions = gone.into_iter().map(|last| Change::Deleted(K::object(last)));
        deletions.chain([Change::Synced(K::KIND)]).collect()
    }

    /// Reports the first failure of a row, and what it means for readiness; the rest of the row is for debugging.
    fn failed(&mut self, error: &watcher::Error) {
        metrics::counter!("unikai_watch_failures_total", "kind" => K::KIND.plural()).increment(1);
        if !self.listed {
            self.readiness.not_ready(explain(error));
        }
        if self.failing || is_expired(error) {
            debug!(%error, "watch failed");
        } else {
            warn!(%error, "watch failed; it is tried again until it works");
        }
        self.failing = true;
    }

    fn recovered(&mut self) {
        if self.failing {
            self.failing = false;
            debug!("watch works again");
        }
    }
}

/// The server's answer, if the error is one.
fn status(error: &watcher::Error) -> Option<&kube::core::Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// An expired resource version is part of a watch's life: the next list repairs it.
fn is_expired(error: &watcher::Error) -> bool {
    status(error).is_some_and(|status| status.code == 410)
}

/// The API server does not serve the kind, or not to us.
fn is_absent(error: &watcher::Error) -> bool {
    status(error).is_some_and(|status| matches!(status.code, 403 | 404))
}

/// Why the first list does not come, in words for `/readyz`.
fn explain(error: &watcher::Error) -> String {
    match status(error).map(|status| status.code) {
        Some(404) => "the API server does not know this kind: its CRD is not installed".to_owned(),
        Some(403) => format!("not allowed to list: {error}"),
        _ => error.to_string(),
    }
}

/// Who hears of a change besides the scheduler, which hears of all.
#[derive(Default)]
struct Audience {
    grouper: bool,
    podgroups: bool,
    queues: bool,
    binder: bool,
    scaleup: bool,
}

impl Audience {
    fn of(kind: Kind, change: &Change) -> Self {
        let nobody = Self::default();
        match kind {
            Kind::Pod => Self {
                grouper: true,
                podgroups: true,
                binder: true,
                scaleup: true,
                ..nobody
            },
            Kind::PodGroup | Kind::PriorityClass => Self {
                grouper: true,
                podgroups: true,
                ..nobody
            },
            Kind::Namespace => Self {
                grouper: true,
                ..nobody
            },
            Kind::Queue => Self { queues: true, ..nobody },
            Kind::BindRequest => Self { binder: true, ..nobody },
            Kind::Node | Kind::PersistentVolume | Kind::PersistentVolumeClaim => Self {
                binder: matches!(change, Change::Synced(_)),
                ..nobody
            },
            Kind::Topology
            | Kind::DeviceClass
            | Kind::ResourceSlice
            | Kind::ResourceClaim
            | Kind::StorageClass
            | Kind::CsiDriver
            | Kind::CsiNode
            | Kind::CsiStorageCapacity
            | Kind::VolumeAttachment
            | Kind::PodDisruptionBudget
            | Kind::NodeResourceTopology
            | Kind::ConfigMap => nobody,
        }
    }
}

/// Tells everyone who listens to the kind.
async fn publish(bus: &Bus, kind: Kind, change: Change) -> Result<(), Error> {
    let audience = Audience::of(kind, &change);
    if audience.podgroups {
        deliver(&bus.podgroups, ToPodGroups::Change(change.clone())).await?;
    }
    if let Some(scaleup) = bus.scaleup.as_ref().filter(|_| audience.scaleup) {
        deliver(scaleup, ToScaleUp::Change(change.clone())).await?;
    }
    if audience.queues {
        deliver(&bus.queues, ToQueues::Change(change.clone())).await?;
    }
    deliver(&bus.scheduler, ToScheduler::Change(change.clone())).await?;
    // What these two make of a change, the scheduler is to hear after the change.
    if audience.grouper {
        deliver(&bus.grouper, ToGrouper::Change(change.clone())).await?;
    }
    if audience.binder {
        deliver(&bus.binder, ToBinder::Change(change)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
