//! One watch per kind for the whole process: list, watch, and pass changes to the subscribers.
//!
//! A watch survives dropped connections, expired resource versions (it lists again and reports missing objects as deleted), kinds whose CRD is not
//! installed yet, and objects that do not decode (logged, counted and skipped; the last readable version stays). Watches do not interpret objects,
//! with one exception: labels and annotations that determine what a bound pod is charged for are restored before any subscriber gets the pod
//! ([`charged`]).

mod catchup;
mod charged;
mod kinds;
mod read;
mod recent;
mod store;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, pending};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::{DeserializeGuard, Request};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::{Backoff as Waits, ResetTimerBackoff};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, debug, info, info_span, warn};

use catchup::{CatchUp, Listing};
use charged::Charged;
pub use charged::{found_group, recorded_group};
pub use kinds::Watched;
use read::Read;
pub use store::{Included, Key, Store, Stores};

use crate::api::lenient::{self, Guarded};
use crate::components::bus::{
    Bus, Change, Kind, Listener, Position, ToBinder, ToGrouper, ToPodGroups, ToQueues, ToScaleUp, ToScheduler, deliver,
};
use crate::components::connection_failures::ConnectionFailed;
use crate::components::leadership::Leading;
use crate::components::readiness::Handle;
use crate::components::retry::Backoff;
use crate::components::{Context, Error, Settings, panics};
use crate::kinds::Condition;
use crate::mirror;

/// Shortest and longest wait before a failed list or watch is retried. The longest bounds the delay until a newly installed CRD is noticed.
pub const RETRY: Backoff = Backoff {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(5),
};
/// After this time without a failure, the next failure counts as the first.
const CALM: Duration = Duration::from_secs(20);
/// A watch that has not caught up by then in a new term is replaced by a new one, which lists all objects, unless it has come closer, or lists already.
const CATCH_UP: Duration = Duration::from_secs(5);
/// How long watches, and then lists, of an optional kind that was listed must be answered with nothing but that it is absent, until it counts as having
/// no objects: all leave at once then, and decisions are made without them. One of several API servers may answer so while it starts or is upgraded, and
/// all of them while a role is replaced.
pub const ABSENT: Duration = Duration::from_secs(10);
/// The same of an optional kind that has not been listed yet. It is asked for five times in this time. It is short, as most clusters lack some kind, and
/// nothing is scheduled before.
const NEVER_THERE: Duration = Duration::from_millis(1_400);
/// A watch is replaced, too, if it is not known by then what is missing, as the list of names and versions fails.
const UNKNOWN: Duration = Duration::from_secs(15);
/// Page size of the metadata list that catching up is compared with.
const PAGE: u32 = 5_000;

/// Runs the watches of all kinds until shutdown. Updates `stores` and sends changes to the subscribers on the bus.
///
/// # Errors
/// If a subscriber's inbox is closed while the process is not shutting down.
pub async fn run(context: Context, stores: Arc<Stores>, bus: Bus) -> Result<(), Error> {
    let mut watches = tokio::task::JoinSet::new();
    for &kind in Kind::ALL {
        let readiness = context
            .readiness
            .handle(format!("watch-{}", kind.plural()), "first list is under way");
        let feed = Feed {
            client: context.watches.clone(),
            config: config(&context.settings),
            stores: Arc::clone(&stores),
            bus: bus.clone(),
            leading: {
                let mut leading = context.leading.clone();
                // The kind may have been absent for a while.
                leading.mark_changed();
                leading
            },
            readiness,
            charged: Charged::new(Arc::clone(&stores), &context.settings),
        };
        let shutdown = context.shutdown.clone();
        let wanted = match kind.condition() {
            Condition::Always => true,
            Condition::WithNuma => context.settings.numa.is_some(),
            Condition::WithConfigMaps => context.settings.config_maps,
        };
        let watch = async move {
            let watch = async {
                if wanted {
                    kinds::start(kind, feed).await
                } else {
                    unwatched(kind, feed).await
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

/// Parameters of all watches: a watch ends after a short time and is resumed, so that a silently dropped connection is noticed soon. Bookmarks keep
/// the resource version recent.
#[must_use]
pub fn config(settings: &Settings) -> watcher::Config {
    watcher::Config::default().timeout(settings.watch_timeout)
}

/// What one watch uses.
pub struct Feed {
    client: Client,
    config: watcher::Config,
    stores: Arc<Stores>,
    bus: Bus,
    leading: Leading,
    readiness: Handle,
    charged: Charged,
}

/// A kind that is not watched counts as caught up in every term.
async fn unwatched(kind: Kind, mut feed: Feed) -> Result<(), Error> {
    feed.readiness.ready();
    publish(&feed.bus, kind, Change::Synced(kind), 0).await?;
    let mut last = 0;
    loop {
        for term in next_terms(&mut feed.leading, last).await {
            last = last.max(term);
            caught_up(&feed.bus, kind, term).await?;
        }
    }
}

/// Waits until the terms change to some with higher numbers.
async fn next_terms(leading: &mut Leading, after: u64) -> Vec<u64> {
    loop {
        if leading.changed().await.is_err() {
            // The process is about to end.
            pending::<()>().await;
        }
        let terms = leading.borrow_and_update();
        let new: Vec<u64> = terms
            .all()
            .map(|(_, term)| term.number)
            .filter(|number| *number > after)
            .collect();
        if !new.is_empty() {
            return new;
        }
    }
}

/// Reports that the store has caught up with the state at the beginning of the term.
async fn caught_up(bus: &Bus, kind: Kind, term: u64) -> Result<(), Error> {
    bus.schedulers.send(ToScheduler::Current(kind, term)).await?;
    deliver(&bus.binder, ToBinder::Current(kind, term)).await
}

/// Watches one kind until the inbox of a subscriber is closed.
async fn watch<K: Watched>(feed: Feed) -> Result<(), Error> {
    let api = Api::<Read<K>>::all(feed.client.clone());
    let config = feed.config.clone();
    let read = |event| each(event, |Read(object)| object);
    follow(feed, || watcher(api.clone(), config.clone()).map_ok(read).boxed()).await
}

/// The same for a kind of which only the metadata is requested; `Guarded` would hide that from the client.
async fn watch_metadata<K: Watched>(feed: Feed) -> Result<(), Error> {
    let api = Api::<K>::all(feed.client.clone());
    let config = feed.config.clone();
    let guard = |event| each(event, |object| DeserializeGuard(Ok(object)));
    follow(feed, || watcher(api.clone(), config.clone()).map_ok(guard).boxed()).await
}

/// Converts an event to another form of the object.
fn each<A, B>(event: watcher::Event<A>, form: impl FnOnce(A) -> B) -> watcher::Event<B> {
    match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(form(object)),
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::Apply(object) => watcher::Event::Apply(form(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(form(object)),
    }
}

/// Events of a watch.
type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<Guarded<K>>>>;

/// Passes on events of a watch until the inbox of a subscriber is closed. When a term of leadership begins, starts catching up with the state at that
/// time, and reports when it is done.
async fn follow<K: Watched>(mut feed: Feed, start: impl Fn() -> Events<K> + Send) -> Result<(), Error> {
    let anew = || start().backoff(waits()).boxed();
    let mut events = anew();
    let mut state = State::<K>::new(K::store(&feed.stores), &feed.readiness);
    state.charged = std::mem::take(&mut feed.charged);
    let mut listing: BoxFuture<'static, Listing> = pending().boxed();
    let mut replace_at = None;
    // The latest term for which catching up was started.
    let mut asked = 0;
    loop {
        tokio::select! {
            event = events.next() => match event {
                None => return Ok(()),
                Some(Ok(event)) => {
                    // Which pod group a bound pod is charged to depends on the pod groups that exist.
                    if K::KIND == Kind::Pod && matches!(event, watcher::Event::InitDone) {
                        feed.readiness.ready();
                        feed.stores.pod_groups.listed().await;
                    }
                    for change in state.advance(event) {
                        publish(&feed.bus, K::KIND, change, state.store.changes_made()).await?;
                    }
                    for note in state.charged.notes() {
                        feed.bus.events.send_as_cluster(note);
                    }
                }
                Some(Err(error)) if K::KIND.optional() && is_absent(&error) => match state.absent(&error) {
                    Absence::Doubtful => {}
                    Absence::ToBeListed => events = anew(),
                    Absence::Certain(changes) => {
                        for change in changes {
                            publish(&feed.bus, K::KIND, change, state.store.changes_made()).await?;
                        }
                    }
                },
                Some(Err(error)) => {
                    state.absent_since = None;
                    state.failed(&error);
                }
            },
            new = next_terms(&mut feed.leading, asked) => {
                asked = new.iter().copied().fold(asked, u64::max);
                // The state at the beginning of this term is that of the earlier terms' start, or newer.
                let waiting = state.catch_up.take().map(|catch_up| catch_up.terms).unwrap_or_default();
                state.catch_up = Some(CatchUp::begin([waiting, new].concat(), Instant::now()));
                listing = list_versions::<K>(feed.client.clone()).boxed();
                replace_at = Some(Instant::now() + CATCH_UP);
            }
            listed = &mut listing => {
                listing = pending().boxed();
                if !state.listed_versions(listed) {
                    events = anew();
                }
            }
            () = sleep_until(replace_at.unwrap_or_else(Instant::now)), if replace_at.is_some() => {
                replace_at = None;
                if feed.leading.borrow().all().next().is_none() {
                    state.catch_up = None;
                    if state.listed {
                        state.readiness.ready();
                    }
                    continue;
                }
                state.is_behind();
                if state.is_stuck() {
                    // A new watch begins with a complete list.
                    events = anew();
                }
                replace_at = Some(Instant::now() + CATCH_UP.max(max_wait_of(&feed.config)));
            }
        }
        if let Some(terms) = state.caught_up() {
            (listing, replace_at) = (pending().boxed(), None);
            for term in terms {
                caught_up(&feed.bus, K::KIND, term).await?;
            }
        }
    }
}

/// A list of whole objects may take longer than a list of metadata.
fn max_wait_of(config: &watcher::Config) -> Duration {
    Duration::from_secs(u64::from(config.timeout.unwrap_or_default()))
}

/// Lists the metadata of a kind, current rather than cached; retries until it succeeds.
async fn list_versions<K: Watched>(client: Client) -> Listing {
    let mut failures = 0;
    loop {
        match try_list_versions::<K>(&client).await {
            Ok(listing) => return listing,
            Err(error) => debug!(kind = K::KIND.plural(), %error, "versions not listed"),
        }
        failures += 1;
        tokio::time::sleep(RETRY.wait(failures)).await;
    }
}

async fn try_list_versions<K: Watched>(client: &Client) -> kube::Result<Listing> {
    let request = Request::new(K::url_path(&(), None));
    let mut params = ListParams::default().limit(PAGE);
    let mut whole = Listing::default();
    loop {
        let page = request.list_metadata(&params).map_err(kube::Error::BuildRequest)?;
        let page: Listing = client.request(page).await?;
        params.continue_token = page.next();
        whole.extend(page);
        if params.continue_token.is_none() {
            return Ok(whole);
        }
    }
}

/// Consecutive failures, for the wait that follows them.
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

/// The waits of a watch after its failures.
pub fn waits() -> impl Waits {
    Lasting(ResetTimerBackoff::new(Failures(0), CALM))
}

/// Waits that only a calm time resets. An event does not, as a watcher tells the beginning of each list, also of those that fail.
struct Lasting(ResetTimerBackoff<Failures>);

impl Iterator for Lasting {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }
}

impl Waits for Lasting {
    fn reset(&mut self) {}
}

/// The progress of a first list is shown on `/readyz` each time so many objects were read.
const PROGRESS_EVERY: usize = 1_000;

/// State of a watch: the store that it updates, and during a relist the objects seen again.
struct State<'a, K: Watched> {
    store: &'a Store<K>,
    readiness: &'a Handle,
    seen: HashSet<Key>,
    /// It lists, from the beginning of a list to its end.
    lists: bool,
    /// A list was complete, and the kind has not become absent since.
    listed: bool,
    failing: bool,
    /// The kind, which is optional, was absent once.
    missed: bool,
    /// Since when nothing else was answered than that the kind is absent.
    absent_since: Option<Instant>,
    /// Objects that do not decode, with their versions.
    unreadable: HashMap<Key, Option<String>>,
    /// What is missing until this process may decide with objects of the kind.
    catch_up: Option<CatchUp>,
    charged: Charged,
}

impl<'a, K: Watched> State<'a, K> {
    fn new(store: &'a Store<K>, readiness: &'a Handle) -> Self {
        Self {
            store,
            readiness,
            seen: HashSet::new(),
            lists: false,
            listed: false,
            failing: false,
            missed: false,
            absent_since: None,
            unreadable: HashMap::new(),
            catch_up: None,
            charged: Charged::default(),
        }
    }

    /// The metadata list is complete. False: it cannot be compared, and a new list of whole objects is needed.
    fn listed_versions(&mut self, listing: Listing) -> bool {
        let Some(catch_up) = &mut self.catch_up else {
            return true;
        };
        let mut shown = self.store.versions();
        shown.extend(
            self.unreadable
                .iter()
                .map(|(key, version)| (key.clone(), version.clone())),
        );
        let number = |version: Option<String>| version.and_then(|version| version.parse().ok());
        let shown = shown.into_iter().map(|(key, version)| (key, number(version)));
        catch_up.listed(listing, &shown.collect())
    }

    /// Whether a watch that has not caught up is to be replaced. A list is left alone, since it would begin again: one of which nothing arrives ends by the
    /// deadlines of the client.
    fn is_stuck(&mut self) -> bool {
        let Some(catch_up) = &mut self.catch_up else {
            return false;
        };
        // A whole list may succeed where that of names and versions fails.
        let is_unknown = catch_up.behind().is_none() && catch_up.began.elapsed() > UNKNOWN;
        let came_closer = catch_up.came_closer();
        !self.lists && (is_unknown || !came_closer)
    }

    /// The terms in which this process may decide with objects of the kind from now on, each returned once.
    fn caught_up(&mut self) -> Option<Vec<u64>> {
        // A kind that is not served has no objects. The last answer says so: a list that has begun meanwhile may have some.
        let absent = self.missed && !self.listed && self.absent_since.is_some();
        let done = self.catch_up.take_if(|catch_up| absent || catch_up.is_done())?;
        let took_ms = done.began.elapsed().as_millis();
        debug!(
            kind = K::KIND.plural(),
            terms = ?done.terms,
            took_ms,
            "the watch has caught up"
        );
        if self.listed {
            self.readiness.ready();
        }
        Some(done.terms)
    }

    /// Logs that catching up takes too long.
    fn is_behind(&self) {
        let Some(catch_up) = &self.catch_up else { return };
        let (kind, objects) = (K::KIND.plural(), catch_up.behind());
        let seconds = catch_up.began.elapsed().as_secs();
        warn!(
            kind,
            objects, seconds, "nothing is decided: the watch has not caught up with the beginning of the term"
        );
        self.readiness
            .not_ready("leads, and the watch has not shown yet what is current; nothing is decided before");
    }

    /// Records that the watch has delivered an object or its deletion.
    fn saw(&mut self, meta: &ObjectMeta, still_there: bool) {
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.saw(&Key::of(meta), meta.resource_version.as_deref(), still_there);
        }
    }

    /// The API server does not serve this kind, which is optional, or does not let us read it.
    fn absent(&mut self, error: &watcher::Error) -> Absence {
        let now = Instant::now();
        let since = *self.absent_since.get_or_insert(now);
        let lasts = now.duration_since(since);
        if self.listed && lasts < ABSENT {
            self.failed(error);
            return Absence::Doubtful;
        }
        // So may an API server answer that starts.
        if !self.listed && !self.missed && lasts < NEVER_THERE {
            debug!(%error, "the kind is absent; it is looked for again");
            return Absence::Doubtful;
        }
        // A watch without changes may have worked between two such answers: only a list shows that.
        if self.listed && !self.lists {
            self.failed(error);
            return Absence::ToBeListed;
        }
        self.readiness.ready();
        let was_listed = std::mem::take(&mut self.listed);
        let is_first = !std::mem::replace(&mut self.missed, true);
        if was_listed || is_first {
            let objects = self.store.len();
            info!(%error, objects, "the API server does not serve this kind; it is checked again at intervals");
        }
        self.unreadable.clear();
        let gone = self.store.retain(|_| false);
        let mut changes: Vec<_> = gone.into_iter().map(|last| self.gone(last)).collect();
        if is_first {
            changes.push(Change::Synced(K::KIND));
        }
        Absence::Certain(changes)
    }

    /// Applies one event of the watch to the store; returns the changes.
    fn advance(&mut self, event: watcher::Event<Guarded<K>>) -> Vec<Change> {
        if let watcher::Event::Init = event {
            if !std::mem::replace(&mut self.lists, true) {
                // Only the answers to lists count from now on.
                self.absent_since = None;
            }
            self.seen.clear();
            self.unreadable.clear();
            if let Some(catch_up) = &mut self.catch_up {
                catch_up.relisting();
            }
            return Vec::new();
        }
        self.recovered();
        match event {
            watcher::Event::Init => Vec::new(),
            watcher::Event::InitApply(object) => {
                self.seen.insert(Key::of(Resource::meta(&object)));
                if !self.listed && self.seen.len().is_multiple_of(PROGRESS_EVERY) {
                    self.readiness
                        .not_ready(format!("first list: {} objects so far", self.seen.len()));
                }
                self.apply(object)
            }
            watcher::Event::InitDone => self.init_done(),
            watcher::Event::Apply(object) => self.apply(object),
            watcher::Event::Delete(object) => {
                let key = Key::of(Resource::meta(&object));
                self.saw(Resource::meta(&object), false);
                self.unreadable.remove(&key);
                let gone = self.store.remove(&key);
                gone.map(|last| self.gone(last)).into_iter().collect()
            }
        }
    }

    fn apply(&mut self, guarded: Guarded<K>) -> Vec<Change> {
        let meta = Resource::meta(&guarded);
        let (key, version) = (Key::of(meta), meta.resource_version.clone());
        self.saw(meta, true);
        let mut object = match lenient::unguard(guarded) {
            Ok(object) => {
                self.unreadable.remove(&key);
                object
            }
            Err(rejection) => {
                self.unreadable.insert(key, version);
                metrics::counter!("unikai_watch_undecodable_total", "kind" => K::KIND.plural()).increment(1);
                warn!(
                    ns = rejection.namespace,
                    name = rejection.name,
                    error = rejection.reason,
                    "object ignored: it does not decode"
                );
                return Vec::new();
            }
        };
        let (store, key) = (self.store, Key::of(object.meta()));
        // Listed again: it stays as it was restored, with what was known then.
        if store.is_at(&key, object.meta()) {
            return Vec::new();
        }
        kinds::trim(&mut object);
        // Most changes of pods are in fields that no component reads.
        if store.update_version(&key, &mut object) {
            return Vec::new();
        }
        let uid = object.meta().uid.clone();
        // One of that name that was deleted unseen: it leaves before what is known of the new one is recorded.
        let last = self.store.get_other(&key, uid.as_deref());
        let mut changes: Vec<Change> = last.map(|last| self.gone(last)).into_iter().collect();
        let before = || store.get_same(&key.namespace, &key.name, uid.as_deref());
        let others = object.settle(before, &mut self.charged);
        let (object, _) = self.store.insert(object);
        changes.push(Change::Applied(K::object(object)));
        changes.extend(others.iter().filter_map(|key| self.again(key, false)));
        changes
    }

    /// Restores the charged fields of an object again, as more is known now.
    fn again(&mut self, key: &Key, first: bool) -> Option<Change> {
        let known = self.store.get(&key.namespace, &key.name)?;
        let (object, _) = self.store.insert(known.again(&mut self.charged, first)?);
        Some(Change::Applied(K::object(object)))
    }

    fn gone(&mut self, last: Arc<K>) -> Change {
        last.leave(&mut self.charged);
        Change::Deleted(K::object(last))
    }

    /// The list is complete: objects that it does not contain are deleted.
    fn init_done(&mut self) -> Vec<Change> {
        self.lists = false;
        let seen = std::mem::take(&mut self.seen);
        let gone = self.store.retain(|key| seen.contains(key));
        // If the list began before the term, they may be waited for.
        for last in &gone {
            self.saw(last.meta(), false);
        }
        if !self.listed {
            self.listed = true;
            info!(objects = self.store.len(), "kind listed");
        }
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.relisted();
        }
        self.readiness.ready();
        self.store.set_listed();
        let mut changes: Vec<_> = gone.into_iter().map(|last| self.gone(last)).collect();
        let unsure = self.charged.listed();
        changes.extend(unsure.iter().filter_map(|key| self.again(key, true)));
        changes.push(Change::Synced(K::KIND));
        changes
    }

    /// Logs the first of consecutive failures and updates readiness; logs the others at debug level.
    fn failed(&mut self, error: &watcher::Error) {
        metrics::counter!("unikai_watch_failures_total", "kind" => K::KIND.plural()).increment(1);
        if !self.listed {
            self.readiness.not_ready(explain(error));
        }
        // A failed connection is logged once for all kinds.
        if self.failing || is_expired(error) || ConnectionFailed::is_cause_of(error) {
            debug!(%error, "watch failed");
        } else {
            warn!(%error, "watch failed; it is retried");
        }
        self.failing = true;
    }

    fn recovered(&mut self) {
        self.absent_since = None;
        if self.failing {
            self.failing = false;
            debug!("watch works again");
        }
    }
}

/// What follows from an answer that an optional kind is absent.
enum Absence {
    /// Nothing yet: it may be there in a moment.
    Doubtful,
    /// A new list is to show whether it is.
    ToBeListed,
    /// The kind has no objects any more: these changes.
    Certain(Vec<Change>),
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

/// An expired resource version is normal: the next list repairs it.
fn is_expired(error: &watcher::Error) -> bool {
    status(error).is_some_and(|status| status.code == 410)
}

/// The API server does not serve the kind, or this client may not read it.
fn is_absent(error: &watcher::Error) -> bool {
    status(error).is_some_and(|status| matches!(status.code, 403 | 404))
}

/// Why the first list fails, for `/readyz`, which is public: without names of objects. The log has the details.
fn explain(error: &watcher::Error) -> String {
    match status(error).map(|status| status.code) {
        Some(404) => "the API server does not know this kind: its CRD is not installed".to_owned(),
        Some(403) => "the API server does not allow us to list this kind".to_owned(),
        Some(code) => format!("the API server answers with status {code}"),
        None => "the API server does not answer".to_owned(),
    }
}

/// A change as the schedulers get it.
fn packed(change: Change, position: Position) -> ToScheduler {
    let (object, there) = match change {
        Change::Applied(object) => (object, true),
        Change::Deleted(object) => (object, false),
        Change::Synced(kind) => return ToScheduler::Synced(kind),
    };
    let kept = object.clone();
    match panics::catch(|| mirror::packed_change(object, there)) {
        Ok(change) => ToScheduler::Change(change, position),
        Err(panic) if there => ToScheduler::Unreadable(kept.identity(), panic, position),
        // The model may have an earlier state of it, which takes resources until it is deleted.
        Err(_) => ToScheduler::Change(mirror::packed::bare_deletion(kept), position),
    }
}

/// Sends a change to all subscribers of the kind. It is one of the first changes of the store, as many as `number` tells.
async fn publish(bus: &Bus, kind: Kind, change: Change, number: u64) -> Result<(), Error> {
    let told = |listener| kind.listeners().contains(&listener);
    if told(Listener::PodGroups) {
        deliver(&bus.podgroups, ToPodGroups::Change(change.clone())).await?;
    }
    if let Some(scaleup) = bus.scaleup.as_ref().filter(|_| told(Listener::ScaleUp)) {
        deliver(scaleup, ToScaleUp::Change(change.clone())).await?;
    }
    if told(Listener::Queues) {
        deliver(&bus.queues, ToQueues::Change(change.clone())).await?;
    }
    bus.schedulers
        .send(packed(change.clone(), Position { kind, number }))
        .await?;
    // The scheduler gets what these two derive from a change after the change itself.
    if told(Listener::Grouper) {
        deliver(&bus.grouper, ToGrouper::Change(change.clone())).await?;
    }
    let listed = matches!(change, Change::Synced(_));
    if told(Listener::Binder) || listed && told(Listener::BinderOnceListed) {
        deliver(&bus.binder, ToBinder::Change(change)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
