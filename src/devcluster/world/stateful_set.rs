//! StatefulSets: pods with stable names, made and replaced in order, or all at once where they ask for it, each with its own volume claims, which stay.
//!
//! Absent: the deletion of claims (`persistentVolumeClaimRetentionPolicy`), and stored revisions: pods that are replaced while a partition holds a rollout back
//! get the present template.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;

use super::Shared;
use super::informer::{Informer, Key};
use super::pods::{is_active, is_finished, ready_since};
use super::queue::Again;
use super::workload::{
    available, count, create_pods, delete_pods, nonzero, pod_from_template, report_failure, said, short_hash, uid,
    wanted, write_status,
};

const REVISION: &str = "controller-revision-hash";

/// Brings the pods of one StatefulSet one step closer to what it asks for, and its status up to date.
pub(super) async fn reconcile(shared: &Shared, sets: &Informer<StatefulSet>, key: Key) -> kube::Result<Again> {
    let Some(set) = sets.get(&key) else {
        return Ok(Again::OnChange);
    };
    let Some(spec) = &set.spec else {
        return Ok(Again::OnChange);
    };
    let ordered = Ordered {
        shared,
        set: &set,
        spec,
        revision: revision(&set, spec),
    };
    // The pods of one that is being deleted go with it, by garbage collection.
    let outcome = if set.metadata.deletion_timestamp.is_none() {
        ordered.advance().await
    } else {
        Ok(())
    };
    let again = ordered.update_status(sets).await?;
    if let Err(error) = outcome {
        report_failure(
            shared,
            set.as_ref(),
            "FailedCreate",
            &format!("create Pod failed: {}", said(&error)),
        )
        .await?;
        return Err(error);
    }
    Ok(again)
}

struct Ordered<'a> {
    shared: &'a Shared,
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    revision: String,
}

impl Ordered<'_> {
    async fn advance(&self) -> kube::Result<()> {
        let pods = self.pods();
        let parallel = self.spec.pod_management_policy.as_deref() == Some("Parallel");
        let (mut missing, mut failed) = (Vec::new(), Vec::new());
        for ordinal in self.ordinals() {
            match pods.get(&ordinal) {
                None => {
                    self.create_claims(ordinal).await?;
                    missing.push(self.new_pod(ordinal));
                }
                Some(pod) if is_finished(pod) && pod.metadata.deletion_timestamp.is_none() => {
                    failed.push(Arc::clone(pod));
                }
                Some(pod) if is_active(pod) && ready_since(pod).is_some() => continue,
                Some(_) => {}
            }
            if !parallel {
                break;
            }
        }
        let settled = missing.is_empty() && failed.is_empty();
        create_pods(self.shared, self.ns(), missing).await?;
        delete_pods(self.shared, &failed).await?;
        let all_ready = self.ordinals().all(|ordinal| {
            pods.get(&ordinal)
                .is_some_and(|pod| is_active(pod) && ready_since(pod).is_some())
        });
        let rolling = settled && all_ready;
        if !(parallel || rolling) {
            return Ok(());
        }
        if self.shrink(&pods, parallel).await? && rolling {
            self.update(&pods).await
        } else {
            Ok(())
        }
    }

    /// Deletes the pods that are too many, the last first; whether none is left.
    async fn shrink(&self, pods: &BTreeMap<usize, Arc<Pod>>, parallel: bool) -> kube::Result<bool> {
        let surplus: Vec<&Arc<Pod>> = pods
            .iter()
            .rev()
            .filter(|(ordinal, _)| !self.ordinals().contains(ordinal))
            .map(|(_, pod)| pod)
            .collect();
        let at_once = if parallel { surplus.len() } else { surplus.len().min(1) };
        let doomed: Vec<Arc<Pod>> = surplus[..at_once]
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .map(|pod| Arc::clone(pod))
            .collect();
        delete_pods(self.shared, &doomed).await?;
        Ok(surplus.is_empty())
    }

    /// Replaces one pod of an older template, the last first; all pods are ready when this is asked.
    async fn update(&self, pods: &BTreeMap<usize, Arc<Pod>>) -> kube::Result<()> {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return Ok(());
        }
        let partition = wanted(
            strategy
                .and_then(|s| s.rolling_update.as_ref())
                .and_then(|rolling| rolling.partition),
            0,
        );
        let outdated = pods
            .iter()
            .rev()
            .take_while(|(ordinal, _)| **ordinal >= partition)
            .find(|(_, pod)| !self.is_current(pod));
        match outdated {
            Some((_, pod)) => delete_pods(self.shared, &[Arc::clone(pod)]).await,
            None => Ok(()),
        }
    }

    /// Creates the claims of a pod that do not exist; those of the pod before it are kept.
    async fn create_claims(&self, ordinal: usize) -> kube::Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.shared.client.clone(), self.ns());
        for (_, claim) in self.claims(ordinal) {
            match claims.create(&PostParams::default(), &claim).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    /// The claims of a pod, each with the name of its template, which is that of the volume.
    fn claims(&self, ordinal: usize) -> Vec<(String, PersistentVolumeClaim)> {
        let selected = self.spec.selector.match_labels.clone().unwrap_or_default();
        let of_template = |template: &PersistentVolumeClaim| {
            let meta = template.metadata.clone();
            let volume = meta.name.unwrap_or_default();
            let mut labels = meta.labels.unwrap_or_default();
            labels.extend(selected.clone());
            let claim = PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(format!("{volume}-{}", self.pod_name(ordinal))),
                    namespace: self.set.metadata.namespace.clone(),
                    labels: Some(labels),
                    annotations: meta.annotations,
                    ..ObjectMeta::default()
                },
                spec: template.spec.clone(),
                status: None,
            };
            (volume, claim)
        };
        let templates = self.spec.volume_claim_templates.iter().flatten();
        templates.map(of_template).collect()
    }

    fn pod_name(&self, ordinal: usize) -> String {
        format!("{}-{ordinal}", self.set.metadata.name.as_deref().unwrap_or_default())
    }

    fn new_pod(&self, ordinal: usize) -> Pod {
        let set_name = self.set.metadata.name.as_deref().unwrap_or_default();
        let name = self.pod_name(ordinal);
        let mut pod = pod_from_template(self.set, &self.spec.template, set_name);
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), name.clone());
        labels.insert("apps.kubernetes.io/pod-index".to_owned(), ordinal.to_string());
        labels.insert(REVISION.to_owned(), self.revision.clone());
        if let Some(spec) = &mut pod.spec {
            spec.hostname = Some(name.clone());
            spec.subdomain = self.spec.service_name.clone();
            for (volume, claim) in self.claims(ordinal) {
                let volumes = spec.volumes.get_or_insert_default();
                volumes.retain(|own| own.name != volume);
                volumes.push(Volume {
                    name: volume,
                    persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                        claim_name: claim.metadata.name.unwrap_or_default(),
                        read_only: None,
                    }),
                    ..Volume::default()
                });
            }
        }
        pod.metadata.generate_name = None;
        pod.metadata.name = Some(name);
        pod
    }

    /// The set's pods by ordinal.
    fn pods(&self) -> BTreeMap<usize, Arc<Pod>> {
        let pods = self.shared.pods.controlled_by(uid(&self.set.metadata));
        pods.into_iter()
            .filter_map(|pod| {
                let (_, ordinal) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
                Some((ordinal.parse().ok()?, pod))
            })
            .collect()
    }

    fn ordinals(&self) -> std::ops::Range<usize> {
        let start = wanted(self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start), 0);
        start..start + wanted(self.spec.replicas, 1)
    }

    fn is_current(&self, pod: &Pod) -> bool {
        pod.metadata
            .labels
            .iter()
            .flatten()
            .any(|(key, value)| key == REVISION && *value == self.revision)
    }

    async fn update_status(&self, sets: &Informer<StatefulSet>) -> kube::Result<Again> {
        let pods: Vec<Arc<Pod>> = self.pods().into_values().filter(|pod| !is_finished(pod)).collect();
        let active = || pods.iter().filter(|pod| is_active(pod));
        let ready: Vec<_> = active().filter_map(|pod| ready_since(pod)).collect();
        let (available, next) = available(
            ready.iter().copied(),
            self.spec.min_ready_seconds,
            self.shared.clock.now(),
        );
        let updated = active().filter(|pod| self.is_current(pod)).count();
        let known = self.set.status.clone().unwrap_or_default();
        let rolled_out = updated == self.ordinals().len() && updated == pods.len();
        let before = known
            .current_revision
            .clone()
            .filter(|revision| !rolled_out && !revision.is_empty());
        let current = before.unwrap_or_else(|| self.revision.clone());
        let at_current = if current == self.revision {
            updated
        } else {
            active().count() - updated
        };
        let status = StatefulSetStatus {
            replicas: count(pods.len()),
            ready_replicas: nonzero(ready.len()),
            available_replicas: Some(count(available)),
            updated_replicas: nonzero(updated),
            current_replicas: nonzero(at_current),
            current_revision: Some(current),
            update_revision: Some(self.revision.clone()),
            observed_generation: self.set.metadata.generation,
            ..known.clone()
        };
        let known_available = known.available_replicas.or(Some(0));
        if status
            != (StatefulSetStatus {
                available_replicas: known_available,
                ..known
            })
        {
            write_status(
                self.shared,
                sets,
                &StatefulSet {
                    status: Some(status),
                    ..self.set.clone()
                },
            )
            .await?;
        }
        Ok(next.map_or(Again::OnChange, Again::At))
    }

    fn ns(&self) -> &str {
        self.set.metadata.namespace.as_deref().unwrap_or_default()
    }
}

fn revision(set: &StatefulSet, spec: &StatefulSetSpec) -> String {
    format!(
        "{}-{}",
        set.metadata.name.as_deref().unwrap_or_default(),
        short_hash(&spec.template)
    )
}
