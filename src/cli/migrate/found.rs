//! What there is of KAI and of unikai.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::{if_there, within};
use crate::api::names::{annotation, label, object};
use crate::api::{Config, SchedulingShard};
use crate::operator::lease;

/// KAI's operator, which makes the other Deployments and sees to it that they stay as they are.
pub const OPERATOR: &str = "kai-operator";
/// What KAI's operator writes on what it makes.
const MADE_BY_OPERATOR: &str = "kai-operator";
/// KAI's webhook server.
const ADMISSION: &str = "admission";

/// What a Deployment of KAI is for, in the order in which they are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Makes the others.
    Operator,
    /// Decides.
    Scheduler,
    /// Binder, grouper, controllers.
    Other,
    /// Answers webhooks: pods cannot be created while it is registered and does not run.
    Admission,
}

/// A Deployment, as far as it matters.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// How many pods it is to have.
    pub replicas: i32,
    /// How many it had before it was ended by this command.
    pub before: Option<i32>,
    /// The image of its first container.
    pub image: String,
    /// The whole.
    pub deployment: Deployment,
}

impl Workload {
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
}

/// What was found.
pub struct Found {
    /// Where.
    pub namespace: String,
    /// KAI's Deployments, in the order in which they are ended.
    pub kai: Vec<(Part, Workload)>,
    /// unikai's Deployment.
    pub own: Option<Workload>,
    /// The configuration.
    pub config: Option<Config>,
    /// The shards.
    pub shards: Vec<SchedulingShard>,
}

impl Found {
    /// Looks.
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
                own = Some(Workload::of(deployment));
            } else if name == OPERATOR || made {
                let part = match name.as_str() {
                    OPERATOR => Part::Operator,
                    ADMISSION => Part::Admission,
                    _ if name.starts_with(&scheduler) => Part::Scheduler,
                    _ => Part::Other,
                };
                kai.push((part, Workload::of(deployment)));
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

    /// Whether one of KAI's schedulers is to run.
    pub fn kai_decides(&self) -> bool {
        let mut schedulers = self.kai.iter().filter(|(part, _)| *part == Part::Scheduler);
        schedulers.any(|(_, scheduler)| scheduler.replicas > 0)
    }

    /// The Leases of those who decide; the names are the same for both.
    pub fn lease_names(&self) -> Vec<String> {
        let scheduler = scheduler_name(self.config.as_ref());
        let values = self
            .shards
            .iter()
            .filter_map(|shard| shard.spec.partition_label_value.clone());
        let mut names: Vec<_> = values
            .filter(|value| !value.is_empty())
            .map(|value| format!("{scheduler}-{value}"))
            .collect();
        names.push(scheduler);
        names.sort();
        names
    }

    /// The Leases that are there, with their holders.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn leases(&self, client: &Client) -> anyhow::Result<Vec<Lease>> {
        let api = Api::<Lease>::namespaced(client.clone(), &self.namespace);
        let mut leases = Vec::new();
        for name in self.lease_names() {
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
