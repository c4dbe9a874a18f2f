//! Usage of the queues of a shard: summed up while this process leads, and sent to the scheduler at each interval.
//!
//! There are two sources. Built in ([`kept`]): the scheduler records what queues hold at each change, and the sums are stored in a ConfigMap, from
//! which the next term continues. Or a Prometheus server is queried ([`server`]). At the beginning of a term the scheduler waits for the first
//! figures, for a limited time. How usage is summed up is in `usage`, and what it means for fair shares in the engine.

mod kept;
mod server;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::clock;
use crate::components::accounts::{Accounts, Shares, UsageUpdate};
use crate::components::{Context, Error};
use crate::engine::input::Time;
use crate::usage::{Ledger, Settings, Source};
use kept::Kept;
pub use server::Endpoint;
use server::Server;

/// Wait after a failure, unless the next interval is sooner.
const RETRY: Duration = Duration::from_secs(1);
/// Minimum interval between writes of the sums.
const KEPT_EVERY: Duration = Duration::from_secs(1);

/// Sums up the usage of a shard's queues until shutdown.
///
/// # Errors
/// If the scheduler is gone.
pub async fn run(context: Context, accounts: Accounts, shard: String) -> Result<(), Error> {
    // Created at the start, so that the first failure is an increase.
    metrics::counter!("unikai_usage_fetch_failures_total", "shard" => shard.clone()).increment(0);
    let mut leading = context.leading.clone();
    let mut settings = accounts.settings.clone();
    loop {
        leading.borrow_and_update();
        let now = (context.term(), settings.borrow_and_update().clone());
        let changed = async {
            loop {
                tokio::select! {
                    changed = leading.changed() => changed.map_err(|_| Error::Closed)?,
                    changed = settings.changed() => changed.map_err(|_| Error::Closed)?,
                }
                if (context.term(), &*settings.borrow()) != (now.0, &now.1) {
                    return Ok::<(), Error>(());
                }
            }
        };
        let (Some(term), Some(how)) = now.clone() else {
            accounts.updates.send_replace(UsageUpdate::default());
            show(&shard, false);
            tokio::select! {
                () = context.shutdown.cancelled() => return Ok(()),
                changed = changed => changed?,
            }
            continue;
        };
        let mut kept = Kept::new(&context.of_term(term), &shard);
        let work = Work {
            accounts: &accounts,
            shard: &shard,
            term,
            how,
        };
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => {
                work.save(&mut kept).await;
                // The shard may be gone.
                show(&shard, false);
                return Ok(());
            }
            changed = changed => changed?,
            () = work.go_on(&mut kept) => {}
        }
        if context.term() == Some(term) {
            work.save(&mut kept).await;
        }
        accounts.ledger.close();
    }
}

/// A term with one source of usage.
struct Work<'a> {
    accounts: &'a Accounts,
    shard: &'a str,
    term: u64,
    how: Settings,
}

fn now() -> Time {
    Time(clock::now().as_millisecond())
}

impl Work<'_> {
    /// Runs until it is stopped.
    async fn go_on(&self, kept: &mut Kept) {
        match self.how.source.clone() {
            Source::BuiltIn => self.count(kept).await,
            Source::Prometheus(server) => match Server::new(server) {
                Ok(server) => self.query(&server).await,
                Err(error) => {
                    warn!(%error, "the Prometheus server cannot be queried; usage over time counts as 0");
                    show(self.shard, true);
                    self.tell(Vec::new());
                    std::future::pending::<()>().await;
                }
            },
        }
    }

    fn tell(&self, shares: Shares) {
        self.accounts.updates.send_replace(UsageUpdate {
            term: Some(self.term),
            shares: Arc::new(shares),
        });
    }

    /// Lets the scheduler decide with the usage that it has.
    fn publish(&self) {
        self.accounts.updates.send_if_modified(|update| {
            let waits = update.term != Some(self.term);
            update.term = Some(self.term);
            waits
        });
    }

    /// The built-in source.
    async fn count(&self, kept: &mut Kept) {
        let max_wait = Instant::now() + self.how.wait;
        let ledger = loop {
            match kept.load(&self.how, now()).await {
                Ok(ledger) => break ledger,
                Err(error) => warn!(shard = self.shard, %error, "the usage of queues cannot be read; trying again"),
            }
            if Instant::now() >= max_wait {
                self.publish();
            }
            sleep(RETRY).await;
        };
        self.accounts.ledger.open(ledger);
        show(self.shard, false);
        // Side by side: a write that hangs does not delay the figures.
        tokio::join!(self.tell_at_intervals(), self.save_at_intervals(kept));
    }

    /// Sends the scheduler what the ledger sums up, at each interval.
    async fn tell_at_intervals(&self) {
        loop {
            self.tell(self.accounts.ledger.usage(now()));
            sleep(self.how.interval).await;
        }
    }

    async fn save_at_intervals(&self, kept: &mut Kept) {
        loop {
            sleep(self.how.interval.max(KEPT_EVERY)).await;
            self.save(kept).await;
        }
    }

    /// Stores the sums in the ConfigMap; begins anew if it was deleted.
    async fn save(&self, kept: &mut Kept) {
        let Some(ledger) = self.accounts.ledger.ledger() else {
            return;
        };
        match kept.save(ledger, now()).await {
            Ok(true) => {}
            Ok(false) => {
                info!(
                    shard = self.shard,
                    "the stored usage of queues was deleted; usage is counted from now on"
                );
                self.accounts.ledger.open(self.empty_ledger());
            }
            Err(error) => {
                warn!(shard = self.shard, %error, "the usage of queues cannot be stored; trying again at the next interval");
            }
        }
    }

    fn empty_ledger(&self) -> Ledger {
        Ledger::new(self.how.window.clone(), self.how.half_life)
    }

    /// Queries the server at each interval.
    async fn query(&self, server: &Server) {
        let max_wait = Instant::now() + self.how.wait;
        let mut last: Option<Instant> = None;
        let mut given_up = false;
        let mut due = Instant::now();
        loop {
            let began = Instant::now();
            let end = last.map_or(max_wait, |last| last + 2 * self.how.staleness);
            let answer = pin!(server.usage(&self.how, now()));
            match self.wait_for(answer, end, &mut given_up).await {
                Ok(shares) => {
                    if last.is_none() {
                        info!(
                            queues = shares.len(),
                            "the Prometheus server returned the usage of queues"
                        );
                    }
                    metrics::histogram!("kai_usage_query_latency_milliseconds")
                        .record(began.elapsed().as_secs_f64() * 1e3);
                    (last, given_up) = (Some(began), false);
                    show(self.shard, false);
                    self.tell(shares);
                }
                Err(error) => {
                    warn!(error = %format!("{error:#}"), "failed to fetch usage data");
                    metrics::counter!("unikai_usage_fetch_failures_total", "shard" => self.shard.to_owned())
                        .increment(1);
                }
            }
            due = (due + self.how.interval).max(Instant::now() + RETRY.min(self.how.interval));
            // More often before the first answer, for as long as the scheduler waits; and no later than the last figures expire.
            let next = if last.is_none() && !given_up {
                due.min(Instant::now() + RETRY)
            } else {
                due
            };
            let end = last.map_or(max_wait, |last| last + 2 * self.how.staleness);
            self.wait_for(pin!(sleep_until(next)), end, &mut given_up).await;
        }
    }

    /// Waits for `task`; usage counts as 0 from `end` on.
    async fn wait_for<T>(&self, mut task: Pin<&mut impl Future<Output = T>>, end: Instant, given_up: &mut bool) -> T {
        tokio::select! {
            biased;
            () = sleep_until(end), if !*given_up => {}
            done = &mut task => return done,
        }
        *given_up = true;
        warn!("the usage of queues is not known; it counts as 0 until the Prometheus server answers");
        show(self.shard, true);
        self.tell(Vec::new());
        task.await
    }
}

/// Sets the metric that shows whether usage counts as zero because it is unknown.
fn show(shard: &str, stale: bool) {
    metrics::gauge!("unikai_usage_stale", "shard" => shard.to_owned()).set(f64::from(u8::from(stale)));
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests;
