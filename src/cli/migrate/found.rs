//! The objects of KAI and unikai in the cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::{if_there, within};
use crate::api::names::{annotation, label, object};
use crate::api::{Config, SchedulingShard};
use crate::operator::lease;

/// KAI's operator, which creates the other Deployments and reverts changes of them.
pub const OPERATOR: &str = "kai-operator";
/// The value of the label `app.kubernetes.io/managed-by` on objects of KAI's operator.
const MADE_BY_OPERATOR: &str = "kai-operator";
/// KAI's webhook server.
const ADMISSION: &str = "admission";

/// The role of a Deployment of KAI, in the order of scaling down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The operator.
    Operator,
    /// A scheduler.
    Scheduler,
    /// Binder, grouper, controllers.
    Other,
    /// The webhook server: pods cannot be created while it is registered and does not run.
    Admission,
}

/// A Deployment of KAI or unikai.
#[derive(Clone, Debug)]
pub struct FoundDeployment {
    /// Its name.
    pub name: String,
    /// Its replicas.
    pub replicas: i32,
    /// Its replicas before this command scaled it down.
    pub before: Option<i32>,
    /// The image of its first container.
    pub image: String,
    /// The object.
    pub deployment: Deployment,
}

impl FoundDeployment {
    /// Reads a Deployment.
    pub fn of(deployment: Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let container = spec
            .and_then(|spec| spec.template.spec.as_ref())
            .and_then(|pod| pod.containers.first());
        let before = deployment.annotations().get(annotation::REPLICAS_BEFORE);
        Self {
            name: deployment.name_any(),
            replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            before: before
                .and_then(|text| text.parse().ok())
                .filter(|before| (1..1_000).contains(before)),
            image: container
                .and_then(|container| container.image.clone())
                .unwrap_or_default(),
            deployment,
        }
    }

    /// The value of a flag of its first container: argument or variable.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<String> {
        let pod = self.deployment.spec.as_ref()?.template.spec.as_ref()?;
        let container = pod.containers.first()?;
        let words: Vec<_> = container.command.iter().chain(&container.args).flatten().collect();
        let (alone, with) = (format!("--{name}"), format!("--{name}="));
        let argument = words.iter().enumerate().find_map(|(at, word)| {
            let value = word.strip_prefix(&with).map(ToOwned::to_owned);
            value.or_else(|| {
                (**word == alone).then(|| words.get(at + 1).map_or_else(String::new, |next| (*next).clone()))
            })
        });
        let variable = format!("UNIKAI_{}", name.to_uppercase().replace('-', "_"));
        argument.or_else(|| {
            let mut env = container.env.iter().flatten();
            env.find(|env| env.name == variable)?.value.clone()
        })
    }
}

/// The Deployments of KAI and unikai, and their configuration.
pub struct Found {
    /// The namespace of KAI and unikai.
    pub namespace: String,
    /// KAI's Deployments, in the order of scaling down.
    pub kai: Vec<(Part, FoundDeployment)>,
    /// unikai's Deployment.
    pub own: Option<FoundDeployment>,
    /// The configuration.
    pub config: Option<Config>,
    /// The shards.
    pub shards: Vec<SchedulingShard>,
}

impl Found {
    /// Reads the objects.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn look(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let configs = Api::<Config>::all(client.clone());
        let config = if_there("reading Config kai-config", configs.get(object::CONFIG)).await?;
        let shards = Api::<SchedulingShard>::all(client.clone());
        let shards = if_there("listing SchedulingShards", shards.list(&ListParams::default())).await?;
        let api = Api::<Deployment>::namespaced(client.clone(), namespace);
        let deployments = within("listing Deployments", api.list(&ListParams::default())).await?;
        let scheduler = scheduler_name(config.as_ref());
        let mut own = None;
        let mut kai = Vec::new();
        for deployment in deployments {
            let name = deployment.name_any();
            let made = deployment.labels().get(label::MANAGED_BY).map(String::as_str) == Some(MADE_BY_OPERATOR);
            if name == object::OPERATOR {
                own = Some(FoundDeployment::of(deployment));
            } else if name == OPERATOR || made {
                let part = match name.as_str() {
                    OPERATOR => Part::Operator,
                    ADMISSION => Part::Admission,
                    _ if name.starts_with(&scheduler) => Part::Scheduler,
                    _ => Part::Other,
                };
                kai.push((part, FoundDeployment::of(deployment)));
            }
        }
        kai.sort_by(|(part, workload), (other, another)| (part, &workload.name).cmp(&(other, &another.name)));
        Ok(Self {
            namespace: namespace.to_owned(),
            kai,
            own,
            config,
            shards: shards.map(|shards| shards.items).unwrap_or_default(),
        })
    }

    /// Whether one of KAI's schedulers has replicas.
    pub fn kai_decides(&self) -> bool {
        let mut schedulers = self.kai.iter().filter(|(part, _)| *part == Part::Scheduler);
        schedulers.any(|(_, scheduler)| scheduler.replicas > 0)
    }

    /// Whether one of KAI's schedulers and unikai have replicas, so that both schedule.
    pub fn both_decide(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.replicas > 0) && self.kai_decides()
    }

    /// The namespace of reservation pods: that of the Config, else that of unikai's flag.
    #[must_use]
    pub fn reservation_namespace(&self) -> String {
        let binder = self.config.as_ref().and_then(|config| config.spec.binder.as_ref());
        let set = binder.and_then(|binder| binder.resource_reservation.as_ref()?.namespace.clone());
        set.filter(|namespace| !namespace.is_empty())
            .or_else(|| self.own.as_ref()?.flag("reservation-namespace"))
            .unwrap_or_else(|| object::RESERVATION_NAMESPACE.to_owned())
    }

    /// The names of unikai's Leases.
    pub fn lease_names(&self) -> BTreeSet<String> {
        let named = self.own.as_ref().and_then(|own| own.flag("lease-name"));
        self.names_from(named.unwrap_or_else(|| object::LEASE.to_owned()))
    }

    /// The names of the Leases of KAI's schedulers: those of unikai, unless either is configured to use other names.
    fn kais_lease_names(&self) -> BTreeSet<String> {
        self.names_from(scheduler_name(self.config.as_ref()))
    }

    /// The name of the first Lease, and those of the node pools.
    fn names_from(&self, first: String) -> BTreeSet<String> {
        let of_pool = |shard: &SchedulingShard| {
            let pool = shard.spec.partition_label_value.as_deref();
            let pool = pool.filter(|pool| !pool.is_empty())?;
            Some(lease::name_for_pool(&first, pool, &shard.name_any()))
        };
        let mut names: BTreeSet<String> = self.shards.iter().filter_map(of_pool).collect();
        names.insert(first);
        names
    }

    /// The existing Leases of unikai and of KAI's schedulers that have a holder.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn leases(&self, client: &Client) -> anyhow::Result<Vec<Lease>> {
        let api = Api::<Lease>::namespaced(client.clone(), &self.namespace);
        let mut leases = Vec::new();
        for name in &self.lease_names() | &self.kais_lease_names() {
            leases.extend(if_there("reading a Lease", api.get(&name)).await?);
        }
        leases.retain(|found| lease::holder(found).is_some());
        Ok(leases)
    }
}

fn scheduler_name(config: Option<&Config>) -> String {
    let global = config.and_then(|config| config.spec.global.as_ref());
    global
        .and_then(|global| global.scheduler_name.clone())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| object::SCHEDULER_NAME.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_leases_of_kai_are_named_like_its_scheduler_and_those_of_unikai_by_its_flag() {
        let shard =
            |name: &str, pool: &str| read(json!({"metadata": {"name": name}, "spec": {"partitionLabelValue": pool}}));
        let mut found = Found {
            namespace: "kai-scheduler".to_owned(),
            kai: Vec::new(),
            own: None,
            config: None,
            // No object can have `C_d` in its name.
            shards: vec![shard("default", ""), shard("one", "blue"), shard("two", "C_d")],
        };
        let both = ["kai-scheduler", "kai-scheduler-blue", "kai-scheduler.two"].map(str::to_owned);
        assert_eq!(found.lease_names(), both.clone().into());
        assert_eq!(found.kais_lease_names(), both.clone().into());

        found.config = Some(read(
            json!({"metadata": {}, "spec": {"global": {"schedulerName": "other"}}}),
        ));
        let kais = ["other", "other-blue", "other.two"].map(str::to_owned);
        assert_eq!(found.lease_names(), both.into());
        assert_eq!(found.kais_lease_names(), kais.clone().into());

        let args = ["run", "--lease-name=other"];
        let container = json!({"name": "unikai", "args": args});
        let template = json!({"spec": {"containers": [container]}});
        let spec = json!({"selector": {}, "template": template});
        found.own = Some(FoundDeployment::of(read(json!({"metadata": {}, "spec": spec}))));
        assert_eq!(found.lease_names(), kais.into());
    }
}
