//! Leader election on a Lease.
//!
//! One process at a time leads: the one whose name stands in the Lease and who renewed it in time. The rules are those of
//! Kubernetes' own components, so the two can be read side by side: a Lease is free when it has no holder, or when it has not
//! changed for its duration *as this process has watched it* (times written by the holder are not used). Beyond them, a standby
//! watches the Lease instead of asking for it, so that it leads within milliseconds of a release, and every renewal opens
//! the [`Fence`] from before it was sent until the renewal deadline.
//!
//! A Lease is identified by its acquire time as well as by the holder's name: two processes with the same name must not
//! both lead. A process whose scheduler is stuck releases the Lease and ends.
//!
//! Absent: what leading means. Components listen to the watch channel.

mod leads;
pub(super) mod record;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::client::{Clients, Writers};
use super::fence::Fence;
use crate::api::syntax::is_name;
use crate::clock;
use crate::components::heartbeat::Heartbeat;
use crate::components::leadership::Scope;
use crate::components::retry;
pub use leads::{Claim, Leads};
use record::{Free, Observed, Tenure};

/// Which Lease, and how fast. What is a flag here is a flag of every Kubernetes component that elects a leader.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Leader election")]
#[group(skip)]
pub struct Args {
    /// Namespace of the Lease, of the certificate and of the webhook Service
    #[arg(long, env = "UNIKAI_NAMESPACE", value_name = "NAMESPACE", default_value = crate::api::names::object::NAMESPACE)]
    pub namespace: String,

    /// Name of the Lease, with which the names of those of node pools begin; replicas of one operator use the same Lease
    #[arg(long, env = "UNIKAI_LEASE_NAME", value_name = "NAME", default_value = crate::api::names::object::LEASE)]
    pub lease_name: String,

    /// Lease duration, in seconds: how long a standby waits after the last renewal before it takes a Lease that was not released
    #[arg(long, env = "UNIKAI_LEASE_DURATION", value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    pub lease_duration: Duration,

    /// Renewal deadline, in seconds: how long a leader that cannot renew its Lease keeps leading; less than the duration
    #[arg(long, env = "UNIKAI_LEASE_RENEW_DEADLINE", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lease_renew_deadline: Duration,

    /// Time between two renewals, in seconds; less than the deadline
    #[arg(long, env = "UNIKAI_LEASE_RETRY_PERIOD", value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub lease_retry_period: Duration,

    /// Name of this process in the Lease [default: host name and a random suffix]
    #[arg(long, env = "UNIKAI_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Parameters of leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this process, unique.
    pub identity: String,
    /// Lease duration: after this time without a change a standby takes the Lease.
    pub duration: Duration,
    /// Renew deadline: after this time without a renewal the leader stops; the fence is open as long.
    pub renew_deadline: Duration,
    /// Retry period: between two renewals, and between two attempts.
    pub retry_period: Duration,
}

impl Params {
    /// Timeout of requests about the Lease. Three of them fit in the renew deadline, so that one
    /// dead connection does not cost the Lease.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.renew_deadline / 3
    }

    /// How long after the last write may have left another process may take the Lease.
    fn late(&self) -> Duration {
        self.duration.saturating_sub(self.renew_deadline)
    }
}

/// The state of the election, for the state page.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// This process.
    pub identity: String,
    /// Whether it leads.
    pub leading: bool,
    /// The holder, as last observed.
    pub holder: Option<String>,
    /// `leaseTransitions`.
    pub transitions: i32,
}

/// Why leading ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Released,
    /// Another replica is to lead.
    Yielded,
    Lost(&'static str),
    /// The scheduler's thread has been stuck for so long.
    Stuck(Duration),
}

/// Limit on the time for which a write that left is waited for. A shutdown is not delayed for longer.
const LATE: Duration = Duration::from_secs(5);
/// Time for open work when the Lease is passed to another replica.
const YIELD_AFTER: Duration = Duration::from_millis(300);
/// Maximum doublings of the delay before a Lease is passed to another replica.
const YIELDS_MAX: u32 = 8;

/// An acquired Lease.
struct Taken {
    until: Instant,
    writes: Client,
}

/// Takes part in the election.
pub struct Elector {
    api: Api<Lease>,
    writers: Writers,
    params: Params,
    /// The fence of this term, or of the next while this process does not lead.
    fence: Fence,
    /// The scope of leadership.
    scope: Scope,
    heartbeat: Heartbeat,
    status: Arc<watch::Sender<Status>>,
    leads: Arc<Leads>,
    /// Whether this process is to have the Lease, or another replica.
    claim: watch::Receiver<Claim>,
    /// How often the Lease was released for another replica, since this one was to have it or another kept it.
    unused_yields: u32,
    events: BoxStream<'static, watcher::Result<watcher::Event<Lease>>>,
    observed: Option<Observed>,
    /// The tenure that this process last wrote.
    tenure: Option<Tenure>,
    synced: bool,
    told_of_namesake: bool,
}

impl Elector {
    /// Sends no request before [`Elector::run`].
    #[must_use]
    pub fn new(
        clients: &Clients,
        params: Params,
        scope: Scope,
        watch_timeout: u32,
        heartbeat: Heartbeat,
        leads: Arc<Leads>,
        claim: watch::Receiver<Claim>,
    ) -> Self {
        let api = |client: &Client| Api::<Lease>::namespaced(client.clone(), &params.namespace);
        let only = watcher::Config::default().timeout(watch_timeout);
        let only = only.fields(&format!("metadata.name={}", params.name));
        let status = Status {
            identity: params.identity.clone(),
            ..Status::default()
        };
        Self {
            events: watcher(api(&clients.watches), only).default_backoff().boxed(),
            api: api(&clients.lease),
            writers: clients.writers.clone(),
            params,
            fence: Fence::closed(),
            scope,
            heartbeat,
            status: Arc::new(watch::Sender::new(status)),
            leads,
            claim,
            unused_yields: 0,
            observed: None,
            tenure: None,
            synced: false,
            told_of_namesake: false,
        }
    }

    /// The state of the election.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Takes part until `release`, then releases a held Lease. Failures of the API server are retried.
    ///
    /// # Errors
    /// If the scheduler's thread is stuck while this process leads. The Lease has been released then.
    pub async fn run(mut self, release: CancellationToken) -> anyhow::Result<()> {
        while let Some(Taken { until, writes }) = self.stand_by(&release).await {
            let number = self.leads.begin(&self.scope, writes, &self.fence);
            self.status.send_modify(|status| status.leading = true);
            info!(
                lease = self.params.name,
                identity = self.params.identity,
                term = number,
                "leading"
            );
            let end = match (self.lead(until, &release).await, self.stuck()) {
                // Renewals may fail at the same time.
                (End::Lost(_), Some(busy_for)) => End::Stuck(busy_for),
                (end, _) => end,
            };
            if end == End::Yielded {
                // No new work is started; open work may finish.
                self.leads.end(&self.scope, number);
                tokio::time::sleep(YIELD_AFTER.min(self.params.retry_period)).await;
            }
            self.fence.close();
            self.leads.end(&self.scope, number);
            self.status.send_modify(|status| status.leading = false);
            self.settled(end == End::Yielded, &release).await;
            self.fence = Fence::closed();
            match end {
                End::Released => break,
                End::Yielded => {
                    info!(lease = self.params.name, "the lease is released to another replica");
                    self.unused_yields = (self.unused_yields + 1).min(YIELDS_MAX);
                    self.give_up().await;
                }
                End::Lost(reason) => warn!(lease = self.params.name, reason, "no longer leading"),
                End::Stuck(busy_for) => {
                    self.give_up().await;
                    let seconds = busy_for.as_secs();
                    anyhow::bail!(
                        "the scheduler has been stuck for {seconds} s; the lease is given up, for another process to lead"
                    );
                }
            }
        }
        self.give_up().await;
        Ok(())
    }

    /// What has left may still arrive, and must not do so in the term of the next holder.
    async fn settled(&mut self, yielded: bool, release: &CancellationToken) {
        if yielded {
            // The Lease is still held. Should it run out meanwhile, another process may take it, and it is not released.
            let late = retry::LATE.min(self.params.duration);
            tokio::select! {
                () = self.fence.settled(late) => return,
                () = release.cancelled() => {}
            }
        }
        self.fence.settled(self.params.late().min(LATE)).await;
    }

    /// Waits for the Lease to be free and takes it. Returns until when it is valid, or `None` on release.
    async fn stand_by(&mut self, release: &CancellationToken) -> Option<Taken> {
        let mut not_before = Instant::now();
        // Since when it is free, but left to another replica.
        let mut left = None;
        loop {
            // It may have lost the Lease while it shuts down.
            if release.is_cancelled() {
                return None;
            }
            let free = if self.synced { self.free() } else { Free::Unknown };
            let preferred = *self.claim.borrow_and_update() == Claim::Preferred;
            let attempt = match free {
                Free::Now if preferred => Some(not_before),
                Free::Now => Some(not_before.max(*left.get_or_insert_with(Instant::now) + self.grace())),
                Free::At(instant) => Some(instant.max(not_before)),
                Free::Unknown => None,
            };
            if free != Free::Now || preferred {
                left = None;
            }
            let now = Instant::now();
            if preferred || self.is_kept_by_another(now) {
                self.unused_yields = 0;
            }
            if attempt.is_some_and(|at| at <= now) {
                let taken = self.try_to_lead(release).await;
                if taken.is_some() {
                    return taken;
                }
                not_before = Instant::now() + jittered(self.params.retry_period);
                continue;
            }
            tokio::select! {
                biased;
                () = release.cancelled() => return None,
                event = self.events.next() => {
                    // A Lease that was just released is taken at once.
                    if self.observe(event) && self.observed.as_ref().is_none_or(|seen| seen.holder().is_none()) {
                        not_before = Instant::now();
                    }
                }
                Ok(()) = self.claim.changed() => {}
                () = sleep_until(attempt) => {}
            }
        }
    }

    /// How long this replica leaves a free Lease to the one that is to have it.
    fn grace(&self) -> Duration {
        self.params.retry_period * 2
    }

    /// When to release the Lease for another replica: with a growing delay if that did not take and keep it before.
    fn yield_at(&mut self, since: Instant) -> Option<Instant> {
        if *self.claim.borrow_and_update() == Claim::Preferred {
            self.unused_yields = 0;
            return None;
        }
        Some(since + self.grace() * 2_u32.pow(self.unused_yields))
    }

    /// Whether another process has held the Lease for longer than one that is to release it. Two of those would pass it to each other without a pause.
    fn is_kept_by_another(&self, now: Instant) -> bool {
        let longest = self.grace() * 2_u32.pow(YIELDS_MAX + 1);
        let seen = self.observed.as_ref();
        seen.is_some_and(|seen| seen.holder().is_some() && !self.is_ours(seen) && seen.tenure_lasts(now) > longest)
    }

    /// When the Lease may be taken. One unchanged since this process wrote it may be taken at once.
    fn free(&self) -> Free {
        if self.observed.as_ref().is_some_and(|seen| self.is_ours(seen)) {
            return Free::Now;
        }
        Free::of(self.observed.as_ref(), Instant::now())
    }

    /// Whether the Lease has the tenure of this process. The name alone is not enough: another process may have the same.
    fn is_ours(&self, seen: &Observed) -> bool {
        seen.held_by(&self.params.identity) && self.tenure.as_ref() == Some(&seen.tenure())
    }

    /// Takes the Lease, if it is free and the scheduler is not stuck.
    async fn try_to_lead(&mut self, release: &CancellationToken) -> Option<Taken> {
        let max_wait = self.params.retry_period;
        let mut attempt = pin!(self.attempt());
        tokio::select! {
            biased;
            taken = &mut attempt => return taken,
            () = release.cancelled() => {}
        }
        // It may be answered soon; then the Lease is released, and need not run out.
        tokio::time::timeout(max_wait, attempt).await.ok().flatten()
    }

    async fn attempt(&mut self) -> Option<Taken> {
        if self.stuck().is_some() {
            warn!("the scheduler is stuck; the lease is not taken");
            return None;
        }
        let writes = match self.writers.behind(&self.fence, self.params.late()) {
            Ok(writes) => writes,
            Err(error) => {
                warn!(error = %format!("{error:#}"), "cannot lead");
                return None;
            }
        };
        match self.take().await {
            Ok(Some(until)) => Some(Taken { until, writes }),
            Ok(None) => None,
            Err(error) => {
                self.explain(&error);
                None
            }
        }
    }

    /// For how long the scheduler's thread has been stuck, if it is.
    fn stuck(&self) -> Option<Duration> {
        Some(self.heartbeat.busy_for()).filter(|busy_for| *busy_for >= self.params.duration)
    }

    /// Renews until the renew deadline, loss of the Lease, a stuck scheduler, or `release`.
    async fn lead(&mut self, mut until: Instant, release: &CancellationToken) -> End {
        let mut renew_at = Instant::now() + self.params.retry_period;
        let mut reserve_since = Instant::now();
        loop {
            let yield_at = self.yield_at(reserve_since);
            tokio::select! {
                biased;
                () = release.cancelled() => return End::Released,
                event = self.events.next() => {
                    if self.observe(event) && !self.observed.as_ref().is_some_and(|seen| self.is_ours(seen)) {
                        return End::Lost("another process holds the lease, or it was deleted");
                    }
                    continue;
                }
                Ok(()) = self.claim.changed() => {
                    reserve_since = Instant::now();
                    continue;
                }
                () = sleep_until(yield_at) => return End::Yielded,
                () = sleep_until(Some(renew_at.min(until))) => {}
            }
            let now = Instant::now();
            if now >= until {
                return End::Lost("the lease could not be renewed in time");
            }
            if let Some(busy_for) = self.stuck() {
                return End::Stuck(busy_for);
            }
            let renewed = tokio::select! {
                biased;
                // A renewal that has left and arrives late does not hold the Lease: it conflicts with its release.
                () = release.cancelled() => return End::Released,
                renewed = tokio::time::timeout(until - now, self.renew()) => renewed,
            };
            match renewed {
                Ok(Ok(Some(extended))) => until = extended,
                Ok(Ok(None)) => return End::Lost("another process holds the lease"),
                Ok(Err(error)) => warn!(%error, "the lease was not renewed; trying again"),
                Err(_elapsed) => {}
            }
            renew_at = Instant::now() + jittered(self.params.retry_period);
        }
    }

    /// Writes this process into the Lease. `None`: it is not free, or another process was faster.
    async fn take(&mut self) -> kube::Result<Option<Instant>> {
        if self.observed.as_ref().is_some_and(|seen| seen.holder().is_some()) {
            // An expired holder is read once more: this process may be the one that was suspended, and must not
            // write, not even an update that conflicts.
            let now = self.api.get_opt(&self.params.name).await?;
            self.see(now);
            if self.free() != Free::Now {
                return Ok(None);
            }
        }
        let sent = Instant::now();
        let now = record::in_microseconds(clock::now());
        let exists = self.observed.is_some();
        let lease = match &self.observed {
            None => record::created(&self.params, now),
            Some(seen) => record::taken(seen.lease(), &self.params, now),
        };
        self.tenure = Some(Tenure::of(&lease));
        let how = PostParams::default();
        let written = if exists {
            self.api.replace(&self.params.name, &how, &lease).await
        } else {
            self.api.create(&how, &lease).await
        };
        match written {
            Err(error) if !exists && code(&error) == Some(404) => Err(error),
            // Unknown whether it was taken: read before another attempt.
            Err(error) if !matches!(error, kube::Error::Api(_)) => {
                let seen = self.api.get_opt(&self.params.name).await?;
                self.see(seen);
                let until = sent + self.params.renew_deadline;
                if !self.observed.as_ref().is_some_and(|seen| self.is_ours(seen)) || until <= Instant::now() {
                    return Err(error);
                }
                self.fence.extend(until);
                Ok(Some(until))
            }
            written => self.written(written, sent).await,
        }
    }

    /// Renews the Lease. `None`: it is no longer ours.
    async fn renew(&mut self) -> kube::Result<Option<Instant>> {
        loop {
            let Some(seen) = self.observed.as_ref().filter(|seen| self.is_ours(seen)) else {
                return Ok(None);
            };
            let lease = record::renewed(seen.lease(), clock::now());
            let sent = Instant::now();
            let written = self
                .api
                .replace(&self.params.name, &PostParams::default(), &lease)
                .await;
            if let Some(until) = self.written(written, sent).await? {
                return Ok(Some(until));
            }
            // A conflict: `observed` is fresh now. Another client changed the Lease, and it may still be ours.
        }
    }

    /// Handles the answer to a write sent at `sent`. After a conflict, reads the Lease.
    async fn written(&mut self, answer: kube::Result<Lease>, sent: Instant) -> kube::Result<Option<Instant>> {
        match answer {
            Ok(lease) => {
                let until = sent + self.params.renew_deadline;
                self.fence.extend(until);
                self.see(Some(lease));
                Ok(Some(until))
            }
            Err(error) if matches!(code(&error), Some(404 | 409)) => {
                let now = self.api.get_opt(&self.params.name).await?;
                self.see(now);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Clears the holder, so that a standby need not wait.
    async fn give_up(&mut self) {
        let max_wait = self.params.retry_period;
        match tokio::time::timeout(max_wait, self.release()).await {
            Ok(Ok(true)) => info!(lease = self.params.name, "lease released"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => warn!(%error, "the lease was not released; a standby waits until it has run out"),
            Err(_elapsed) => warn!("the lease was not released in time; a standby waits until it has run out"),
        }
    }

    /// Writes the Lease without a holder. False: it is not ours.
    async fn release(&mut self) -> kube::Result<bool> {
        loop {
            let Some(seen) = self.observed.as_ref().filter(|seen| self.is_ours(seen)) else {
                return Ok(false);
            };
            let lease = record::released(seen.lease(), clock::now());
            let written = self
                .api
                .replace(&self.params.name, &PostParams::default(), &lease)
                .await;
            match written {
                // A renewal of ours arrived first.
                Err(error) if code(&error) == Some(409) => {
                    let now = self.api.get_opt(&self.params.name).await?;
                    self.see(now);
                }
                written => return written.map(|_| true),
            }
        }
    }

    /// Handles a watch event. False: it was not about the Lease.
    fn observe(&mut self, event: Option<watcher::Result<watcher::Event<Lease>>>) -> bool {
        match event {
            Some(Ok(watcher::Event::Init)) => return false,
            Some(Ok(watcher::Event::InitDone)) => self.synced = true,
            Some(Ok(watcher::Event::InitApply(lease) | watcher::Event::Apply(lease))) => self.see(Some(lease)),
            Some(Ok(watcher::Event::Delete(_))) => self.see(None),
            Some(Err(error)) => {
                debug!(%error, "the watch of the lease failed; it is tried again");
                return false;
            }
            None => return false,
        }
        true
    }

    fn see(&mut self, lease: Option<Lease>) {
        self.look_for_namesake(lease.as_ref());
        match lease {
            Some(lease) => match &mut self.observed {
                Some(seen) => seen.update(lease, Instant::now()),
                none => *none = Some(Observed::new(lease, Instant::now())),
            },
            None => self.observed = None,
        }
        let (holder, transitions) = self
            .observed
            .as_ref()
            .map_or((None, 0), |seen| (seen.holder().map(str::to_owned), seen.transitions()));
        self.status.send_if_modified(|status| {
            let changed = (&status.holder, status.transitions) != (&holder, transitions);
            (status.holder, status.transitions) = (holder, transitions);
            changed
        });
    }

    /// Logs if another process renews the Lease with the same name.
    fn look_for_namesake(&mut self, lease: Option<&Lease>) {
        let Some((seen, lease)) = self.observed.as_ref().zip(lease) else {
            return;
        };
        let foreign = seen.held_by(&self.params.identity) && !self.is_ours(seen);
        if foreign && seen.is_renewed_by(lease) && !std::mem::replace(&mut self.told_of_namesake, true) {
            let identity = self.params.identity.as_str();
            warn!(
                identity,
                "another process has the name of this one; give each replica a name of its own (--identity), or none"
            );
        }
    }

    fn explain(&self, error: &kube::Error) {
        let lease = self.params.name.as_str();
        match code(error) {
            Some(403) => {
                warn!(%error, lease, "not allowed to take the lease; `unikai manifests` prints the rights that are needed");
            }
            Some(404) => warn!(
                ns = self.params.namespace,
                lease, "the lease's namespace does not exist; `unikai manifests` prints it"
            ),
            _ => warn!(%error, lease, "the lease was not taken; trying again"),
        }
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Between 1 and 1.2 times the period, so that several standbys do not try in step.
fn jittered(period: Duration) -> Duration {
    let drawn = crate::random::uuid().as_u128() % 1000;
    period.mul_f64(1.0 + drawn as f64 / 5000.0)
}

/// The name of this process in the Lease if no flag gives one: the host's name, and a random part, because a container
/// that starts again keeps its host name.
#[must_use]
pub fn identity() -> String {
    identity_on(&std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default())
}

fn identity_on(host: &str) -> String {
    let host = host.trim();
    let host = if host.is_empty() { "unikai" } else { host };
    format!("{host}_{}", crate::random::uuid())
}

/// The name of a node pool's Lease: as in KAI, that of the cluster's Lease and the label value of the pool. If no object can have the value in its name, the
/// name of the pool's shard follows, after a dot, so that no two pools share a Lease.
#[must_use]
pub fn name_for_pool(cluster: &str, pool: &str, shard: &str) -> String {
    let name = format!("{cluster}-{pool}");
    if is_name(&name) {
        name
    } else {
        format!("{cluster}.{shard}")
    }
}

/// Whether a Lease in the API server has a holder; for tools and tests.
#[must_use]
pub fn holder(lease: &Lease) -> Option<&str> {
    record::holder(lease)
}

#[cfg(test)]
mod tests;
