//! Deployments: one ReplicaSet per template, and rolling updates between them.
//!
//! Absent: proportional scaling of several ReplicaSets in the middle of a rollout, and the progress deadline.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::Shared;
use super::informer::{Informer, Key};
use super::queue::Again;
use super::workload::{controller_reference, delete, nonzero, short_hash, uid, wanted, write_status};

const REVISION: &str = "deployment.kubernetes.io/revision";
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Brings the ReplicaSets of one Deployment one step closer to what it asks for, and its status up to date.
pub(super) async fn reconcile(
    shared: &Shared,
    deployments: &Informer<Deployment>,
    replica_sets: &Informer<ReplicaSet>,
    key: Key,
) -> kube::Result<Again> {
    let Some(deployment) = deployments.get(&key) else {
        return Ok(Again::OnChange);
    };
    let Some(spec) = &deployment.spec else {
        return Ok(Again::OnChange);
    };
    let rollout = Rollout {
        shared,
        deployments,
        replica_sets,
        deployment: &deployment,
        spec,
    };
    if deployment.metadata.deletion_timestamp.is_none() {
        rollout.advance().await?;
    }
    rollout.update_status().await?;
    Ok(Again::OnChange)
}

struct Rollout<'a> {
    shared: &'a Shared,
    deployments: &'a Informer<Deployment>,
    replica_sets: &'a Informer<ReplicaSet>,
    deployment: &'a Deployment,
    spec: &'a DeploymentSpec,
}

impl Rollout<'_> {
    async fn advance(&self) -> kube::Result<()> {
        if self.spec.paused == Some(true) {
            let newest = self.sets().into_iter().max_by_key(|set| revision(&set.metadata));
            return match newest {
                Some(set) => self.scale(&set, self.wanted()).await,
                None => Ok(()),
            };
        }
        let (Some(new), old) = self.split() else {
            let created = self.create_set().await?;
            self.replica_sets.observe(created);
            return Box::pin(self.advance()).await;
        };
        self.record_revision(&new, &old).await?;
        if self.is_recreate() {
            self.recreate(&new, &old).await?;
        } else {
            self.roll(&new, &old).await?;
        }
        self.clean_up(&old).await
    }

    /// All ReplicaSets of the Deployment, oldest first.
    fn sets(&self) -> Vec<Arc<ReplicaSet>> {
        let mut sets = self.replica_sets.controlled_by(uid(&self.deployment.metadata));
        sets.retain(|set| set.metadata.deletion_timestamp.is_none());
        sets.sort_by_key(|set| (set.metadata.creation_timestamp.clone(), set.metadata.name.clone()));
        sets
    }

    /// The ReplicaSet of the present template, and all others.
    fn split(&self) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
        let hash = self.hash();
        let is_new = |set: &Arc<ReplicaSet>| {
            set.metadata
                .labels
                .iter()
                .flatten()
                .any(|(k, v)| k == TEMPLATE_HASH && *v == hash)
        };
        let (new, old): (Vec<_>, Vec<_>) = self.sets().into_iter().partition(is_new);
        (new.into_iter().next(), old)
    }

    fn hash(&self) -> String {
        short_hash(&self.spec.template)
    }

    fn wanted(&self) -> usize {
        wanted(self.spec.replicas, 1)
    }

    fn is_recreate(&self) -> bool {
        self.spec
            .strategy
            .as_ref()
            .and_then(|strategy| strategy.type_.as_deref())
            == Some("Recreate")
    }

    async fn create_set(&self) -> kube::Result<ReplicaSet> {
        let hash = self.hash();
        let name = format!(
            "{}-{hash}",
            self.deployment.metadata.name.as_deref().unwrap_or_default()
        );
        let labelled = |mut meta: ObjectMeta| {
            meta.labels
                .get_or_insert_default()
                .insert(TEMPLATE_HASH.to_owned(), hash.clone());
            meta
        };
        let mut template = self.spec.template.clone();
        template.metadata = Some(labelled(template.metadata.unwrap_or_default()));
        let mut selector = self.spec.selector.clone();
        selector
            .match_labels
            .get_or_insert_default()
            .insert(TEMPLATE_HASH.to_owned(), hash.clone());
        let mut annotations = self.deployment.metadata.annotations.clone().unwrap_or_default();
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.insert(REVISION.to_owned(), (self.last_revision() + 1).to_string());
        let set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: self.deployment.metadata.namespace.clone(),
                labels: template.metadata.as_ref().and_then(|meta| meta.labels.clone()),
                annotations: Some(annotations),
                owner_references: Some(vec![controller_reference(self.deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(0),
                min_ready_seconds: self.spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        self.set_api().create(&PostParams::default(), &set).await
    }

    fn last_revision(&self) -> u64 {
        self.sets().iter().map(|set| revision(&set.metadata)).max().unwrap_or(0)
    }

    /// The new ReplicaSet carries the highest revision, and the Deployment the same.
    async fn record_revision(&self, new: &ReplicaSet, old: &[Arc<ReplicaSet>]) -> kube::Result<()> {
        let highest = old.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0);
        let own = revision(&new.metadata);
        let own = if own > highest {
            own
        } else {
            let marked = annotate(&self.set_api(), &new.metadata, highest + 1).await?;
            self.replica_sets.observe(marked);
            highest + 1
        };
        if revision(&self.deployment.metadata) != own {
            let api: Api<Deployment> = Api::namespaced(self.shared.client.clone(), self.ns());
            let marked = annotate(&api, &self.deployment.metadata, own).await?;
            self.deployments.observe(marked);
        }
        Ok(())
    }

    async fn recreate(&self, new: &ReplicaSet, old: &[Arc<ReplicaSet>]) -> kube::Result<()> {
        for set in old {
            self.scale(set, 0).await?;
        }
        // The ReplicaSet's pods stay in the watch until the last container has ended.
        let remaining = old.iter().any(|set| {
            let pods = self.shared.pods.controlled_by(uid(&set.metadata));
            pods.iter().any(|pod| !super::pods::is_finished(pod))
        });
        if remaining {
            Ok(())
        } else {
            self.scale(new, self.wanted()).await
        }
    }

    /// One step of a rolling update: as many new pods as the surge allows, as few old ones as availability allows.
    async fn roll(&self, new: &ReplicaSet, old: &[Arc<ReplicaSet>]) -> kube::Result<()> {
        let wanted = self.wanted();
        let (surge, unavailable) = self.bounds();
        let old_total: usize = old.iter().map(|set| replicas(set)).sum();
        let has = replicas(new);
        let grown = if has > wanted {
            wanted
        } else {
            wanted.min(has + (wanted + surge).saturating_sub(old_total + has))
        };
        if grown != has {
            self.scale(new, grown).await?;
        }
        let least = wanted.saturating_sub(unavailable);
        let new_unavailable = grown.saturating_sub(available(new));
        let mut spare = (old_total + grown).saturating_sub(least + new_unavailable);
        let mut left: Vec<usize> = old.iter().map(|set| replicas(set)).collect();
        // Pods that are of no use go first.
        for (set, left) in old.iter().zip(&mut left) {
            let useless = left.saturating_sub(available(set)).min(spare);
            *left -= useless;
            spare -= useless;
        }
        let serving = available(new)
            + old
                .iter()
                .zip(&left)
                .map(|(set, left)| available(set).min(*left))
                .sum::<usize>();
        let mut spare = spare.min(serving.saturating_sub(least));
        for left in &mut left {
            let gone = spare.min(*left);
            *left -= gone;
            spare -= gone;
        }
        for (set, left) in old.iter().zip(left) {
            self.scale(set, left).await?;
        }
        Ok(())
    }

    /// How many pods there may be too many, and how many too few.
    fn bounds(&self) -> (usize, usize) {
        let rolling = self
            .spec
            .strategy
            .as_ref()
            .and_then(|strategy| strategy.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".to_owned());
        let surge = rolling
            .and_then(|rolling| rolling.max_surge.as_ref())
            .unwrap_or(&quarter);
        let unavailable = rolling
            .and_then(|rolling| rolling.max_unavailable.as_ref())
            .unwrap_or(&quarter);
        let (surge, unavailable) = (
            share(surge, self.wanted(), true),
            share(unavailable, self.wanted(), false),
        );
        // Neither more nor fewer would be no update at all.
        (surge, if surge == 0 { unavailable.max(1) } else { unavailable })
    }

    async fn scale(&self, set: &ReplicaSet, to: usize) -> kube::Result<()> {
        if replicas(set) == to {
            return Ok(());
        }
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {"uid": set.metadata.uid}, "spec": {"replicas": to}});
        let scaled = self
            .set_api()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.replica_sets.observe(scaled);
        Ok(())
    }

    /// Deletes the oldest ReplicaSets without pods, beyond the history that is to be kept.
    async fn clean_up(&self, old: &[Arc<ReplicaSet>]) -> kube::Result<()> {
        let keep = wanted(self.spec.revision_history_limit, 10);
        let mut idle: Vec<_> = old
            .iter()
            .filter(|set| replicas(set) == 0 && current(set) == 0)
            .collect();
        idle.sort_by_key(|set| revision(&set.metadata));
        let surplus = idle.len().saturating_sub(keep);
        for set in &idle[..surplus] {
            delete(&self.shared.client, self.replica_sets, set.as_ref()).await?;
        }
        Ok(())
    }

    async fn update_status(&self) -> kube::Result<()> {
        // What this reconciliation has written itself is newer than what it began with.
        let key = Key::of(&self.deployment.metadata);
        let Some(newest) = self.deployments.get(&key) else {
            return Ok(());
        };
        let known = newest.status.clone().unwrap_or_default();
        let (new, old) = self.split();
        let all = || old.iter().chain(&new);
        let total: usize = all().map(|set| current(set)).sum();
        let serving: usize = all().map(|set| available(set)).sum();
        let wanted = self.wanted();
        let updated = new.as_ref().map_or(0, |set| current(set));
        let status = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: nonzero(total),
            updated_replicas: nonzero(updated),
            ready_replicas: nonzero(all().map(|set| ready(set)).sum()),
            available_replicas: nonzero(serving),
            unavailable_replicas: nonzero(wanted.max(total).saturating_sub(serving)),
            conditions: Some(self.conditions(
                &known,
                serving,
                updated == wanted && total == wanted && serving >= wanted,
                &new,
            )),
            collision_count: known.collision_count,
            terminating_replicas: known.terminating_replicas,
        };
        if status != known {
            let updated = Deployment {
                status: Some(status),
                ..newest.as_ref().clone()
            };
            write_status(self.shared, self.deployments, &updated).await?;
        }
        Ok(())
    }

    fn conditions(
        &self,
        known: &DeploymentStatus,
        serving: usize,
        complete: bool,
        new: &Option<Arc<ReplicaSet>>,
    ) -> Vec<DeploymentCondition> {
        let (_, unavailable) = self.bounds();
        let least = if self.is_recreate() {
            self.wanted()
        } else {
            self.wanted().saturating_sub(unavailable)
        };
        let name = new
            .as_ref()
            .and_then(|set| set.metadata.name.as_deref())
            .unwrap_or_default();
        let available = if serving >= least {
            (
                "Available",
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.".to_owned(),
            )
        } else {
            (
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.".to_owned(),
            )
        };
        let progressing = if self.spec.paused == Some(true) {
            (
                "Progressing",
                "Unknown",
                "DeploymentPaused",
                "Deployment is paused".to_owned(),
            )
        } else if complete {
            (
                "Progressing",
                "True",
                "NewReplicaSetAvailable",
                format!("ReplicaSet {name:?} has successfully progressed."),
            )
        } else {
            (
                "Progressing",
                "True",
                "ReplicaSetUpdated",
                format!("ReplicaSet {name:?} is progressing."),
            )
        };
        let mut conditions = vec![self.condition(known, available), self.condition(known, progressing)];
        let failure = new
            .iter()
            .flat_map(|set| set.status.iter().flat_map(|status| status.conditions.iter().flatten()));
        if let Some(failure) = failure
            .into_iter()
            .find(|condition| condition.type_ == "ReplicaFailure")
        {
            let message = failure.message.clone().unwrap_or_default();
            conditions.push(self.condition(known, ("ReplicaFailure", "True", "FailedCreate", message)));
        }
        conditions
    }

    /// A condition that keeps its times where it says nothing new.
    fn condition(
        &self,
        known: &DeploymentStatus,
        (kind, status, reason, message): (&str, &str, &str, String),
    ) -> DeploymentCondition {
        let now = Time(self.shared.clock.now());
        let before = known
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == kind);
        let unchanged = before.filter(|before| {
            before.status == status
                && before.reason.as_deref() == Some(reason)
                && before.message.as_ref() == Some(&message)
        });
        if let Some(unchanged) = unchanged {
            return unchanged.clone();
        }
        let same_status = before.filter(|before| before.status == status);
        DeploymentCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: same_status.map_or(Some(now.clone()), |before| before.last_transition_time.clone()),
            last_update_time: Some(now),
        }
    }

    fn set_api(&self) -> Api<ReplicaSet> {
        Api::namespaced(self.shared.client.clone(), self.ns())
    }

    fn ns(&self) -> &str {
        self.deployment.metadata.namespace.as_deref().unwrap_or_default()
    }
}

async fn annotate<K>(api: &Api<K>, meta: &ObjectMeta, revision: u64) -> kube::Result<K>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = json!({"metadata": {"uid": meta.uid, "annotations": {(REVISION): revision.to_string()}}});
    api.patch(
        meta.name.as_deref().unwrap_or_default(),
        &PatchParams::default(),
        &Patch::Merge(patch),
    )
    .await
}

fn revision(meta: &ObjectMeta) -> u64 {
    meta.annotations
        .iter()
        .flatten()
        .find(|(key, _)| *key == REVISION)
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

fn replicas(set: &ReplicaSet) -> usize {
    wanted(set.spec.as_ref().and_then(|spec| spec.replicas), 1)
}

fn current(set: &ReplicaSet) -> usize {
    wanted(set.status.as_ref().map(|status| status.replicas), 0)
}

fn ready(set: &ReplicaSet) -> usize {
    wanted(set.status.as_ref().and_then(|status| status.ready_replicas), 0)
}

fn available(set: &ReplicaSet) -> usize {
    wanted(set.status.as_ref().and_then(|status| status.available_replicas), 0)
}

/// A number of pods, or a percentage of `total`.
pub(super) fn share(value: &IntOrString, total: usize, round_up: bool) -> usize {
    match value {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            let hundredths = percent.saturating_mul(total);
            if round_up {
                hundredths.div_ceil(100)
            } else {
                hundredths / 100
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_towards_availability() {
        let quarter = IntOrString::String("25%".to_owned());
        assert_eq!((share(&quarter, 3, true), share(&quarter, 3, false)), (1, 0));
        assert_eq!(share(&IntOrString::Int(2), 10, true), 2);
        assert_eq!(share(&IntOrString::Int(-1), 10, true), 0);
    }
}
