//! The steps of `adopt` and `back`, in order. Each is printed, and skipped if it is done already.

use std::time::Duration;

use anyhow::{bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::found::{Found, FoundDeployment, Part};
use super::webhooks::Memory;
use super::{if_there, pod_security, policies, webhooks, within};
use crate::api::names::{annotation, object};
use crate::cli::output::say;
use crate::operator::lease;

/// Interval of polling.
const EVERY: Duration = Duration::from_millis(500);
/// Duration of a Lease that does not name it: KAI's.
const LEASE: i32 = 15;
/// The last line of `adopt`.
const REMOVING: &str = "KAI's objects stay for migrate back; do not remove them by helm uninstall, which deletes objects that unikai uses, but as in docs/migration.md, \"Removing KAI\"";

/// See the module.
pub struct Steps {
    client: Client,
    found: Found,
    memory: Memory,
    dry_run: bool,
    max_wait: Duration,
}

impl Steps {
    /// For the objects found.
    pub fn new(client: Client, found: Found, dry_run: bool, max_wait: Duration) -> Self {
        let memory = Memory::new(&client, &found.namespace);
        Self {
            client,
            found,
            memory,
            dry_run,
            max_wait,
        }
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.found.namespace)
    }

    /// From KAI to unikai.
    ///
    /// # Errors
    /// When something is not as expected, a request fails, or what is waited for does not come.
    pub async fn adopt(&self) -> anyhow::Result<()> {
        let (namespace, own) = (&self.found.namespace, self.found.own.as_ref());
        let kept = self.memory.read().await?;
        ensure!(
            kept.is_some() || !self.found.kai.is_empty(),
            "there is no KAI in namespace {namespace}: no Deployment kai-operator, and none that it created; name its namespace with --namespace"
        );
        ensure!(
            !self.found.both_decide(),
            "KAI's scheduler and unikai would both run and schedule; stop unikai first: kubectl scale -n {namespace} deployment/{} --replicas=0",
            object::OPERATOR
        );
        for name in self.memory.keep(&self.client, self.dry_run).await? {
            self.say(&format!("save webhook configuration {name} for migrate back"));
        }
        let recorded = kept.is_some_and(|kept| kept.contains_key(pod_security::RECORD));
        if !recorded {
            self.keep_pod_security().await?;
        }
        // The operator first: it would scale up the others again. The webhook server last.
        for part in [Part::Operator, Part::Scheduler, Part::Other, Part::Admission] {
            let of_part = || {
                self.found
                    .kai
                    .iter()
                    .filter(|(of, _)| *of == part)
                    .map(|(_, workload)| workload)
            };
            for workload in of_part() {
                self.end(workload).await?;
            }
            for workload in of_part() {
                self.gone(workload).await?;
            }
        }
        for name in webhooks::delete_others(&self.client, self.dry_run).await? {
            self.say(&format!(
                "delete webhook configuration {name} of KAI, which unikai does not overwrite"
            ));
        }
        if own.is_none_or(|own| own.replicas == 0) {
            self.leases_are_free().await?;
        }
        let at_rest = policies::at_rest(&self.client).await?;
        for name in &at_rest {
            self.say(&format!("bind admission policy {name}"));
        }
        if !self.dry_run {
            policies::begin(&self.client, &at_rest).await?;
        }
        match own {
            Some(own) => {
                self.begin(own).await?;
                self.available(&own.name).await?;
                self.conclude("unikai schedules now");
            }
            None => self.conclude(
                "KAI has stopped; now start unikai: unikai manifests --image IMAGE | kubectl apply -f - (until then, pods of the scheduler are not admitted)",
            ),
        }
        self.conclude(REMOVING);
        Ok(())
    }

    /// From unikai to KAI.
    ///
    /// # Errors
    /// When something is not as expected, a request fails, or what is waited for does not come.
    pub async fn back(&self) -> anyhow::Result<()> {
        let kept = self.memory.read().await?;
        let ended = || self.found.kai.iter().filter(|(_, workload)| workload.before.is_some());
        ensure!(
            kept.is_some() || ended().next().is_some(),
            "nothing was adopted in namespace {}: there is nothing to restore",
            self.found.namespace
        );
        ensure!(
            !self.found.both_decide(),
            "KAI's scheduler and unikai both run and schedule; stop one first: kubectl scale -n {} deployment/{} --replicas=0",
            self.found.namespace,
            object::OPERATOR
        );
        if let Some(own) = &self.found.own {
            self.end(own).await?;
            self.gone(own).await?;
        }
        // Those of a scheduler of KAI that was started before are its own.
        if !self.found.kai_decides() {
            self.leases_are_free().await?;
        }
        let active = policies::in_force(&self.client).await?;
        for name in &active {
            self.say(&format!("unbind admission policy {name}"));
        }
        if !self.dry_run {
            policies::end(&self.client, &active).await?;
        }
        let record = kept.as_ref().and_then(|kept| kept.get(pod_security::RECORD));
        self.restore_pod_security(record.map(String::as_str)).await?;
        // Before KAI's pods are created, which these would refuse.
        for name in webhooks::delete_own(&self.client, kept.as_ref(), self.dry_run).await? {
            self.say(&format!("delete webhook configuration {name} of unikai"));
        }
        let configurations = kept.iter().flatten().filter(|(key, _)| *key != pod_security::RECORD);
        for (key, text) in configurations {
            if webhooks::put_back(&self.client, key, text, self.dry_run).await? {
                self.say(&format!("restore webhook configuration {key}"));
            }
        }
        // In the opposite order: the webhook server first, and the operator, which reverts changes, last.
        for (_, workload) in ended().rev() {
            self.begin(workload).await?;
        }
        if !self.dry_run {
            self.memory.forget().await?;
        }
        self.conclude("KAI is started again");
        Ok(())
    }

    /// Records the pod security labels of the namespace, in the ConfigMap that exists by now.
    async fn keep_pod_security(&self) -> anyhow::Result<()> {
        let namespace = &self.found.namespace;
        let Some(text) = pod_security::to_keep(&self.client, namespace).await? else {
            return Ok(());
        };
        self.say(&format!(
            "save the pod security labels of namespace {namespace} for migrate back"
        ));
        if self.dry_run {
            return Ok(());
        }
        self.memory.add(pod_security::RECORD, &text).await
    }

    /// Restores these labels: KAI's pods are refused where unikai's are enforced.
    async fn restore_pod_security(&self, record: Option<&str>) -> anyhow::Result<()> {
        let namespace = &self.found.namespace;
        if pod_security::put_back(&self.client, namespace, record, self.dry_run).await? {
            self.say(&format!("restore the pod security labels of namespace {namespace}"));
        }
        Ok(())
    }

    fn say(&self, step: &str) {
        let would = if self.dry_run { "would " } else { "" };
        say!("{would}{step}");
    }

    fn conclude(&self, sentence: &str) {
        if !self.dry_run {
            say!("{sentence}");
        }
    }

    /// Scales a Deployment to zero, and records its replicas in the same write.
    async fn end(&self, workload: &FoundDeployment) -> anyhow::Result<()> {
        if workload.replicas == 0 {
            return Ok(());
        }
        self.say(&format!(
            "scale Deployment {} from {} to 0",
            workload.name, workload.replicas
        ));
        let before = workload.replicas.to_string();
        self.scale(workload, 0, json!(before)).await
    }

    /// Restores the recorded replicas of a Deployment.
    async fn begin(&self, workload: &FoundDeployment) -> anyhow::Result<()> {
        if workload.replicas > 0 && workload.before.is_none() {
            return Ok(());
        }
        let replicas = workload.before.unwrap_or(1);
        self.say(&format!(
            "scale Deployment {} from {} to {replicas}",
            workload.name, workload.replicas
        ));
        self.scale(workload, replicas, json!(null)).await
    }

    async fn scale(&self, workload: &FoundDeployment, replicas: i32, before: serde_json::Value) -> anyhow::Result<()> {
        if self.dry_run {
            return Ok(());
        }
        // With the resource version: a concurrent change is not overwritten, and this command can be run again. KAI's operator writes status and
        // template only until it is gone.
        let now = within("reading a Deployment", self.deployments().get(&workload.name)).await?;
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": now.resource_version(), "annotations": {annotation::REPLICAS_BEFORE: before}},
            "spec": {"replicas": replicas},
        }));
        let (api, params) = (self.deployments(), PatchParams::default());
        let patched = api.patch(&workload.name, &params, &patch);
        within(&format!("scaling Deployment {}", workload.name), patched)
            .await
            .map(drop)
    }

    /// Waits until a Deployment has no pods, including terminating ones.
    async fn gone(&self, workload: &FoundDeployment) -> anyhow::Result<()> {
        if self.dry_run {
            return Ok(());
        }
        let selector = workload
            .deployment
            .spec
            .as_ref()
            .map(|spec| spec.selector.clone())
            .unwrap_or_default();
        let labels = selector.match_labels.unwrap_or_default();
        ensure!(
            !labels.is_empty(),
            "Deployment {} has no label selector, so its pods cannot be found",
            workload.name
        );
        let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let params = ListParams::default().labels(&labels.join(","));
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.found.namespace);
        let until = Instant::now() + self.max_wait;
        loop {
            let left = within("listing pods", pods.list(&params)).await?.items;
            let now = within("reading a Deployment", self.deployments().get(&workload.name)).await?;
            let replicas = now.spec.as_ref().and_then(|spec| spec.replicas);
            ensure!(
                replicas == Some(0),
                "Deployment {} was scaled up again; find out by which client, and run this again",
                workload.name
            );
            let seen = now.status.as_ref().and_then(|status| status.observed_generation) >= now.metadata.generation;
            if left.is_empty() && seen {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "{} pods of Deployment {} do not terminate; run this again when they have",
                left.len(),
                workload.name
            );
            sleep(EVERY).await;
        }
    }

    /// Waits until a scheduler's Lease is free: it has no holder, or has not changed for its duration. Times in the Lease are not used, as clocks may
    /// differ.
    async fn leases_are_free(&self) -> anyhow::Result<()> {
        if self.dry_run {
            self.say("wait until the Leases of the schedulers are free");
            return Ok(());
        }
        let until = Instant::now() + self.max_wait.max(Duration::from_secs(30));
        let mut seen: Vec<(Lease, Instant)> = Vec::new();
        let mut told = false;
        loop {
            let held = self.found.leases(&self.client).await?;
            let now = Instant::now();
            let since = |lease: &Lease| {
                let mut known = seen.iter();
                let known = known.find(|(before, _)| before == lease);
                known.map_or(now, |(_, since)| *since)
            };
            seen = held.iter().map(|lease| (lease.clone(), since(lease))).collect();
            let Some((one, _)) = seen.iter().find(|(lease, since)| now - *since < duration(lease)) else {
                return Ok(());
            };
            let (name, holder) = (one.name_any(), lease::holder(one).unwrap_or_default().to_owned());
            if !std::mem::replace(&mut told, true) {
                say!("wait until Lease {name} of {holder} is free");
            }
            if now >= until {
                bail!("Lease {name} is renewed by {holder}, which still runs; stop it, and run this again");
            }
            sleep(EVERY).await;
        }
    }

    /// Waits until a Deployment has a ready pod.
    async fn available(&self, name: &str) -> anyhow::Result<()> {
        if self.dry_run {
            return Ok(());
        }
        let until = Instant::now() + self.max_wait;
        loop {
            let now = if_there("reading a Deployment", self.deployments().get(name)).await?;
            let status = now.and_then(|deployment| deployment.status);
            if status.and_then(|status| status.available_replicas).unwrap_or_default() > 0 {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "no pod of Deployment {name} has become ready; see kubectl describe -n {} deployment/{name}",
                self.found.namespace
            );
            sleep(EVERY).await;
        }
    }
}

fn duration(lease: &Lease) -> Duration {
    let seconds = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_duration_seconds)
        .unwrap_or(LEASE);
    Duration::from_secs(u64::try_from(seconds.clamp(1, 300)).unwrap_or_default())
}
