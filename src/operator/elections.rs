//! All leader elections of the process: one on the Lease of the cluster and the default node pool, one on a Lease of its own for each
//! other node pool with a shard. Replicas divide the shards ([`balance`]) by the list of replicas ([`replicas`]).
//!
//! A replica that has not listed everything schedules nothing, and may never be able to. So it does not count as a replica yet, and takes from others
//! nothing: it leads what nobody else leads.

mod balance;
mod replicas;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::client::Clients;
use super::lease::{Claim, Elector, Leads, Params, Status, name_for_pool};
use crate::components::heartbeat::Heartbeat;
use crate::components::leadership::Scope;
use balance::assign;
use replicas::Replicas;

/// A replica that leads the cluster, and has not listed everything after this time, releases the Lease now and then: another replica may be able to.
const UNLISTED: Duration = Duration::from_mins(1);

/// What this process can schedule.
#[derive(Clone, Debug, Default)]
pub struct Shards {
    /// The shards with a Lease of their own, by the label values of their node pools.
    pub by_pool: BTreeMap<Arc<str>, String>,
    /// Whether it has listed everything once.
    pub listed: bool,
}

/// See the module.
pub struct Elections {
    clients: Clients,
    params: Params,
    watch_timeout: u32,
    heartbeat: Heartbeat,
    leads: Arc<Leads>,
    /// Before it runs.
    cluster: Option<Elector>,
    /// How it takes part.
    claim: watch::Sender<Claim>,
    status: watch::Receiver<Status>,
    shards: watch::Receiver<Shards>,
    /// Whether other replicas can lead the same shards.
    divides: bool,
    /// The state of each election, for the state page.
    shown: Arc<watch::Sender<BTreeMap<String, watch::Receiver<Status>>>>,
}

/// A running election of a shard.
struct Held {
    shard: String,
    claim: watch::Sender<Claim>,
    release: CancellationToken,
}

impl Elections {
    /// Sends no request before [`Elections::run`]. `params` are those of the cluster's Lease. `divides`: whether the shards are divided with the other replicas;
    /// those that serve one node pool each cannot lead for each other.
    #[must_use]
    pub fn new(
        clients: &Clients,
        params: Params,
        watch_timeout: u32,
        heartbeat: Heartbeat,
        shards: watch::Receiver<Shards>,
        divides: bool,
    ) -> Self {
        let leads = Arc::new(Leads::default());
        let (claim, claimed) = watch::channel(Claim::Preferred);
        let cluster = Elector::new(
            clients,
            params.clone(),
            Scope::Cluster,
            watch_timeout,
            heartbeat.clone(),
            Arc::clone(&leads),
            claimed,
        );
        Self {
            clients: clients.clone(),
            params,
            watch_timeout,
            heartbeat,
            leads,
            status: cluster.status(),
            cluster: Some(cluster),
            claim,
            shards,
            divides,
            shown: Arc::default(),
        }
    }

    /// The terms of this process.
    #[must_use]
    pub fn leads(&self) -> Arc<Leads> {
        Arc::clone(&self.leads)
    }

    /// The state of the election on the cluster's Lease.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// The states of the elections of shards, by the shard's name.
    #[must_use]
    pub fn of_shards(&self) -> watch::Receiver<BTreeMap<String, watch::Receiver<Status>>> {
        self.shown.subscribe()
    }

    /// Runs all elections until `release`, then releases all held Leases. Failures of the API server are retried.
    ///
    /// # Errors
    /// If a scheduler's thread is stuck while this process leads. The Leases have been released then.
    pub async fn run(mut self, release: CancellationToken) -> anyhow::Result<()> {
        let mut replicas = Replicas::new(&self.clients, &self.params, self.watch_timeout);
        let mut elections: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let released = release.child_token();
        if let Some(cluster) = self.cluster.take() {
            elections.spawn(cluster.run(released.clone()));
        }
        let mut held: BTreeMap<Arc<str>, Held> = BTreeMap::new();
        let listed_by = Instant::now() + UNLISTED;
        let mut another_led = false;
        let mut ended = loop {
            let shards = self.shards.borrow_and_update().clone();
            held.retain(|pool, election| {
                let stays = shards.by_pool.get(pool) == Some(&election.shard);
                if !stays {
                    election.release.cancel();
                }
                stays
            });
            for (pool, shard) in &shards.by_pool {
                held.entry(Arc::clone(pool))
                    .or_insert_with(|| self.begin(pool, shard, &released, &mut elections));
            }
            self.shown
                .send_modify(|shown| shown.retain(|name, _| shards.by_pool.values().any(|shard| shard == name)));
            if shards.listed {
                replicas.join();
            }
            let members = replicas.known();
            let leader = self.status.borrow_and_update().holder.clone();
            another_led |= leader.as_ref().is_some_and(|leader| *leader != self.params.identity);
            let waits = !shards.listed && (another_led || Instant::now() >= listed_by);
            set(&self.claim, !waits);
            self.divide(&held, &members, leader.as_deref());
            tokio::select! {
                biased;
                () = release.cancelled() => break Ok(()),
                Some(ended) = elections.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => break Err(error),
                    Err(panic) => break Err(panic.into()),
                },
                // The channel of the configuration is closed: the process is shutting down.
                changed = self.shards.changed() => if changed.is_err() { release.cancelled().await },
                Ok(()) = self.status.changed() => {}
                () = sleep_until(listed_by), if !shards.listed && !waits => {}
                () = replicas.changed(&members, self.divides && !shards.by_pool.is_empty()) => {}
            }
        };
        released.cancel();
        // A stuck scheduler ends all elections, each of which releases its Lease first.
        let all = async {
            while let Some(released) = elections.join_next().await {
                ended = ended.and(released.map_err(Into::into).flatten());
            }
            ended
        };
        tokio::join!(all, replicas.leave()).0
    }

    /// Begins the election of a shard.
    fn begin(
        &self,
        pool: &Arc<str>,
        shard: &str,
        released: &CancellationToken,
        elections: &mut JoinSet<anyhow::Result<()>>,
    ) -> Held {
        let first = if self.divides { Claim::Reserve } else { Claim::Preferred };
        let (claim, claimed) = watch::channel(first);
        let release = released.child_token();
        let params = Params {
            name: name_for_pool(&self.params.name, pool, shard),
            ..self.params.clone()
        };
        let scope = Scope::Pool(Arc::clone(pool));
        self.leads.show(&scope);
        let elector = Elector::new(
            &self.clients,
            params,
            scope.clone(),
            self.watch_timeout,
            self.heartbeat.clone(),
            Arc::clone(&self.leads),
            claimed,
        );
        let status = elector.status();
        self.shown.send_modify(|shown| {
            shown.insert(shard.to_owned(), status);
        });
        let (leads, ends) = (Arc::clone(&self.leads), release.clone());
        let (served, pool) = (self.shards.clone(), Arc::clone(pool));
        elections.spawn(async move {
            let ended = elector.run(ends).await;
            // The pool may have another shard now.
            if !served.borrow().by_pool.contains_key(&pool) {
                leads.removed(&scope);
            }
            ended
        });
        Held {
            shard: shard.to_owned(),
            claim,
            release,
        }
    }

    /// Claims the shards that are assigned to this replica. While the cluster has no leader, the division stays as it was.
    fn divide(&self, held: &BTreeMap<Arc<str>, Held>, members: &[String], leader: Option<&str>) {
        if !self.divides || leader.is_none() {
            return;
        }
        let names: Vec<&str> = held.values().map(|election| election.shard.as_str()).collect();
        let assigned = assign(&names, members, leader);
        for election in held.values() {
            let preferred = assigned.get(election.shard.as_str()) == Some(&self.params.identity.as_str());
            if set(&election.claim, preferred) {
                info!(
                    shard = election.shard,
                    preferred,
                    replicas = members.len(),
                    "shards are divided between replicas"
                );
            }
        }
    }
}

/// Sets how this replica takes part in an election; returns whether that is a change.
fn set(claim: &watch::Sender<Claim>, preferred: bool) -> bool {
    let now = if preferred { Claim::Preferred } else { Claim::Reserve };
    claim.send_if_modified(|known| std::mem::replace(known, now) != now)
}

#[cfg(test)]
mod tests;
