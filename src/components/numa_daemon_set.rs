//! Maintains the DaemonSet of the NUMA exporter: creates it if it is configured, reverts changes by others, and deletes it if it is no longer configured.
//! Only the leader does, and only with the right from the optional manifests; without it the Config has a condition.

mod desired;

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

pub use desired::{Settings, daemon_set};

use super::leadership::Scope;
use super::owner::Owner;
use super::{Context, Error, watches};
use crate::api::names::object::{NUMA_EXPORTER, NUMA_EXPORTER_NAMESPACE};

/// Delay before a retry.
const RETRY: Duration = Duration::from_secs(2);
/// Delay before the right is checked again, which an administrator may have granted meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What is missing to create the DaemonSet, in the words of the Config's condition; `None`: nothing.
pub type Missing = Option<&'static str>;

const MISSING: &str = "NumaPlacementExporter is missing the right to make its DaemonSet: apply manifests/numa-exporter";

/// Maintains the DaemonSet until shutdown.
///
/// # Errors
/// None; the signature is that of a component.
pub async fn run(context: Context, missing: watch::Sender<Missing>) -> Result<(), Error> {
    let shutdown = context.shutdown.clone();
    let mut keeper = Keeper {
        api: Api::namespaced(context.writes.clone(), NUMA_EXPORTER_NAMESPACE),
        wanted: context.settings.numa_exporter.on,
        owner: Owner::Unknown,
        missing,
        context,
    };
    shutdown.run_until_cancelled(Box::pin(keeper.run())).await;
    keeper.report(None);
    shutdown.cancelled().await;
    Ok(())
}

struct Keeper {
    context: Context,
    api: Api<DaemonSet>,
    wanted: bool,
    owner: Owner,
    missing: watch::Sender<Missing>,
}

/// Why watching the DaemonSet ended.
enum Ended {
    /// This process no longer leads.
    Term,
    /// The API server refuses.
    Refused,
}

impl Keeper {
    async fn run(&mut self) {
        let mut leading = self.context.leading.clone();
        loop {
            let begins = leading.wait_for(|terms| terms.of(&Scope::Cluster).is_some());
            if begins.await.is_err() {
                return;
            }
            if self.has_right().await {
                self.report(None);
                match self.keep().await {
                    Ended::Term => {}
                    Ended::Refused => tokio::time::sleep(RETRY).await,
                }
                continue;
            }
            self.report(self.wanted.then_some(MISSING));
            // Without a DaemonSet to create, the right need not be checked again before the next term.
            let until = self.wanted.then(|| Instant::now() + ASK_AGAIN);
            let over = leading.wait_for(|terms| terms.of(&Scope::Cluster).is_none());
            tokio::select! {
                ended = over => if ended.is_err() { return },
                () = at(until) => continue,
            }
            self.report(None);
        }
    }

    /// Reports what is missing, in the Config's condition and once in the log.
    fn report(&self, what: Missing) {
        let changed = self.missing.send_if_modified(|said| {
            let changed = *said != what;
            *said = what;
            changed
        });
        if let (true, Some(what)) = (changed, what) {
            warn!("{what}");
        }
    }

    /// Whether we have the right to create it. Repeats the review until the API server answers.
    async fn has_right(&self) -> bool {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("create".to_owned()),
                    group: Some("apps".to_owned()),
                    resource: Some("daemonsets".to_owned()),
                    namespace: Some(NUMA_EXPORTER_NAMESPACE.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.context.reads.clone());
        let mut told = false;
        loop {
            match api.create(&PostParams::default(), &review).await {
                Ok(answer) => return answer.status.is_some_and(|status| status.allowed),
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => return false,
                Err(error) if !told => {
                    told = true;
                    warn!(%error, "the right to create the DaemonSet of the NUMA exporter cannot be checked; trying again");
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Watches the DaemonSet and reconciles it, for as long as this process leads.
    async fn keep(&mut self) -> Ended {
        let mut leading = self.context.leading.clone();
        let mut events = self.watch();
        let (mut live, mut synced, mut retry) = (None, false, None);
        loop {
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(watcher::Event::Init) => live = None,
                    Ok(watcher::Event::InitApply(found) | watcher::Event::Apply(found)) => live = Some(found),
                    Ok(watcher::Event::InitDone) => synced = true,
                    Ok(watcher::Event::Delete(_)) => live = None,
                    Err(error) => {
                        warn!(%error, "the DaemonSet of the NUMA exporter cannot be watched; trying again");
                        if refuses(&error) {
                            return Ended::Refused;
                        }
                    }
                },
                Ok(()) = leading.changed() => {}
                () = at(retry) => {}
            }
            if !self.context.is_leading() {
                return Ended::Term;
            }
            if synced {
                retry = match self.reconcile(&mut live).await {
                    Ok(true) => None,
                    Ok(false) => Some(Instant::now() + RETRY),
                    Err(error) => {
                        warn!(%error, "the DaemonSet of the NUMA exporter cannot be written; trying again");
                        Some(Instant::now() + RETRY)
                    }
                };
            }
        }
    }

    fn watch(&self) -> BoxStream<'static, watcher::Result<watcher::Event<DaemonSet>>> {
        let api = Api::namespaced(self.context.watches.clone(), NUMA_EXPORTER_NAMESPACE);
        let only = watches::config(&self.context.settings).fields(&format!("metadata.name={NUMA_EXPORTER}"));
        watcher(api, only).default_backoff().boxed()
    }

    /// Reconciles the DaemonSet; returns whether it is as desired. `live` gets the written object.
    async fn reconcile(&mut self, live: &mut Option<DaemonSet>) -> kube::Result<bool> {
        let settings = &self.context.settings;
        if !self.wanted {
            if let Some(ours) = live.as_ref().filter(|live| desired::is_ours(live)) {
                self.delete(ours).await?;
                info!("DaemonSet of the NUMA exporter deleted: it is not enabled");
            }
            return Ok(true);
        }
        let is_right =
            |owner: &Owner, live: &DaemonSet| desired::is_right(live, &daemon_set(settings, owner.reference()));
        if self.owner.is_known() && live.as_ref().is_some_and(|live| is_right(&self.owner, live)) {
            return Ok(true);
        }
        let owned = live.as_ref().is_some_and(Owner::has);
        let owner = std::mem::replace(&mut self.owner, Owner::Unknown);
        self.owner = owner.look_up(&self.context, owned, "NUMA exporter is kept").await;
        if !self.owner.is_known() {
            return Ok(matches!(self.owner, Owner::Gone));
        }
        let wanted = daemon_set(settings, self.owner.reference());
        let how = PostParams::default();
        let written = match live.as_ref() {
            Some(live) if desired::is_right(live, &wanted) => return Ok(true),
            Some(live) if !desired::may_become(live, &wanted) => {
                self.delete(live).await?;
                info!("DaemonSet of the NUMA exporter is recreated: it has another selector");
                return Ok(true);
            }
            Some(live) => {
                self.api
                    .replace(NUMA_EXPORTER, &how, &desired::onto(wanted, live))
                    .await
            }
            None => self.api.create(&how, &wanted).await,
        };
        match written {
            Ok(written) => {
                info!("DaemonSet of the NUMA exporter written");
                *live = Some(written);
                Ok(true)
            }
            // Another write came first; the watch shows it.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes it, unless it was re-created meanwhile.
    async fn delete(&self, live: &DaemonSet) -> kube::Result<()> {
        let how = DeleteParams {
            preconditions: Some(Preconditions {
                uid: live.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api.delete(NUMA_EXPORTER, &how).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether the right was revoked, or the namespace deleted.
fn refuses(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
