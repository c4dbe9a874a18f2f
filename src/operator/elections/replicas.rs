//! The list of replicas: each renews a Lease as a heartbeat. Needed only if there are shards to divide.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::super::client::Clients;
use super::super::lease::Params;
use super::super::lease::record;
use crate::api::names::label;
use crate::clock;

/// Renewals per Lease duration.
const RENEWALS: u32 = 3;
/// A replica's Lease is deleted after so many durations without a renewal.
const FORGOTTEN: u32 = 20;

/// The last observation of a replica's Lease.
struct Seen {
    lease: Lease,
    /// When its content was first observed. Expiry is measured from here, so that clocks of machines do not matter.
    since: Instant,
}

/// The list of replicas, and this one's own Lease.
pub struct Replicas {
    api: Api<Lease>,
    params: Params,
    /// The label value: replicas of another cluster Lease are ignored.
    of: String,
    events: BoxStream<'static, watcher::Result<watcher::Event<Lease>>>,
    seen: BTreeMap<String, Seen>,
    /// The names in the list that is being read.
    listing: Vec<String>,
    own: Option<Lease>,
    /// Whether this replica counts.
    joined: bool,
    renew_at: Instant,
}

impl Replicas {
    /// Sends no request.
    #[must_use]
    pub fn new(clients: &Clients, params: &Params, watch_timeout: u32) -> Self {
        let of = params.name.clone();
        let config = watcher::Config::default()
            .timeout(watch_timeout)
            .labels(&format!("{}={of}", label::REPLICA_OF));
        let watched = Api::<Lease>::namespaced(clients.watches.clone(), &params.namespace);
        let digest = Sha256::digest(&params.identity);
        let id: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self {
            api: Api::namespaced(clients.lease.clone(), &params.namespace),
            params: Params {
                name: format!("{of}-replica-{id}"),
                ..params.clone()
            },
            of,
            events: watcher(watched, config).default_backoff().boxed(),
            seen: BTreeMap::new(),
            listing: Vec::new(),
            own: None,
            joined: false,
            renew_at: Instant::now(),
        }
    }

    /// This replica counts from now on: it renews its Lease.
    pub fn join(&mut self) {
        self.joined = true;
    }

    /// The names of the live replicas, including this one once it has joined.
    #[must_use]
    pub fn known(&self) -> Vec<String> {
        let now = Instant::now();
        let alive = self
            .seen
            .values()
            .filter(|seen| now < seen.since + self.params.duration);
        let mut names: Vec<String> = alive
            .filter_map(|seen| record::holder(&seen.lease).map(str::to_owned))
            .chain(self.joined.then(|| self.params.identity.clone()))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Waits until the replicas are others than `known`. `wanted`: whether this replica renews its Lease, if it has joined, and watches others. May be
    /// dropped and called again.
    pub async fn changed(&mut self, known: &[String], wanted: bool) {
        let renews = wanted && self.joined;
        while self.known() == known {
            if renews && Instant::now() >= self.renew_at {
                self.renew().await;
            }
            let expiry = self.seen.values().map(|seen| seen.since + self.params.duration);
            let expiry = expiry.filter(|expiry| *expiry > Instant::now()).min();
            let renewal = renews.then_some(self.renew_at);
            let wake = expiry.into_iter().chain(renewal).min();
            let at = wake.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
            tokio::select! {
                event = self.events.next(), if wanted => self.observe(event),
                () = sleep_until(at) => {}
            }
        }
    }

    /// Deletes this replica's Lease.
    pub async fn leave(&mut self) {
        if let Some(own) = self.own.take() {
            delete(&self.api, &own).await;
        }
    }

    /// Renews this replica's Lease. If this is interrupted, the next call does it at once.
    async fn renew(&mut self) {
        let began = Instant::now();
        if let Err(error) = self.write().await {
            debug!(%error, "the heartbeat of this replica was not written; trying again");
            // An interrupted renewal may have taken effect, and so may one without an answer: the API server says what the Lease is.
            self.own = self.api.get_opt(&self.params.name).await.ok().flatten();
            if let Err(error) = self.write().await {
                debug!(%error, "the heartbeat of this replica was not written");
            }
        }
        self.renew_at = began + self.params.duration / RENEWALS;
        self.forget_old().await;
    }

    async fn write(&mut self) -> kube::Result<()> {
        let (now, how) = (record::in_microseconds(clock::now()), PostParams::default());
        let written = match &self.own {
            Some(own) => {
                self.api
                    .replace(&self.params.name, &how, &record::renewed(own, now))
                    .await
            }
            None => {
                let mut lease = record::created(&self.params, now);
                lease.labels_mut().insert(label::REPLICA_OF.to_owned(), self.of.clone());
                self.api.create(&how, &lease).await
            }
        };
        self.own = Some(written?);
        Ok(())
    }

    /// Expired Leases of replicas that did not delete them.
    async fn forget_old(&mut self) {
        let now = Instant::now();
        let old = self
            .seen
            .values()
            .find(|seen| now > seen.since + self.params.duration * FORGOTTEN);
        if let Some(lease) = old.map(|seen| seen.lease.clone()) {
            info!(lease = lease.name_any(), "the lease of a stopped replica is deleted");
            delete(&self.api, &lease).await;
        }
    }

    fn observe(&mut self, event: Option<watcher::Result<watcher::Event<Lease>>>) {
        match event {
            Some(Ok(watcher::Event::Init)) => self.listing.clear(),
            Some(Ok(watcher::Event::InitApply(lease))) => {
                self.listing.push(lease.name_any());
                self.see(lease);
            }
            Some(Ok(watcher::Event::InitDone)) => {
                let listed = std::mem::take(&mut self.listing);
                self.seen.retain(|name, _| listed.contains(name));
            }
            Some(Ok(watcher::Event::Apply(lease))) => self.see(lease),
            Some(Ok(watcher::Event::Delete(lease))) => {
                self.seen.remove(&lease.name_any());
            }
            Some(Err(error)) => debug!(%error, "the watch of replicas failed; it is tried again"),
            None => {}
        }
    }

    fn see(&mut self, lease: Lease) {
        let since = Instant::now();
        match self.seen.get_mut(&lease.name_any()) {
            Some(seen) if seen.lease.spec == lease.spec => seen.lease = lease,
            _ => {
                self.seen.insert(lease.name_any(), Seen { lease, since });
            }
        }
    }
}

async fn delete(api: &Api<Lease>, lease: &Lease) {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: lease.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    if let Err(error) = api.delete(&lease.name_any(), &params).await {
        debug!(%error, lease = lease.name_any(), "the lease of a replica was not deleted");
    }
}
