//! Output of `unikai migrate check`.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};

use super::found::{Found, FoundDeployment};
use super::{if_there, webhooks};
use crate::api::{BindRequest, PodGroup, Queue, crds};
use crate::cli::output::say;
use crate::config::fields;
use crate::mirror::policy::Finding;
use crate::operator::lease;

/// Prints it.
///
/// # Errors
/// When a request fails.
pub async fn print(client: &Client, found: &Found) -> anyhow::Result<()> {
    say!("Deployments in {}:", found.namespace);
    let all = found.kai.iter().map(|(_, workload)| workload).chain(&found.own);
    for FoundDeployment {
        name,
        replicas,
        before,
        image,
        ..
    } in all
    {
        let before = before.map_or_else(String::new, |before| format!(", {before} before it was scaled to 0"));
        say!("  {name}: {replicas} replicas{before}; image {image}");
    }
    say!("Leases:");
    for held in found.leases(client).await? {
        say!(
            "  {}: held by {}",
            held.name_any(),
            lease::holder(&held).unwrap_or_default()
        );
    }
    say!("Webhook configurations:");
    for (name, whose) in webhooks::whose(client).await? {
        say!("  {name}: {whose}");
    }
    say!("CustomResourceDefinitions:");
    definitions(client).await?;
    say!("Objects, which are not changed:");
    objects(client, found).await?;
    say!("Settings without effect in unikai:");
    let config = found.config.as_ref().map(|config| &config.spec);
    settings("Config kai-config", fields::ignored("Config", config));
    for shard in &found.shards {
        let name = format!("SchedulingShard {}", shard.name_any());
        settings(&name, fields::ignored("SchedulingShard", Some(&shard.spec)));
    }
    Ok(())
}

fn settings(object: &str, findings: Vec<Finding>) {
    for Finding { path, says } in findings {
        say!("  {object}: {path}: {says}");
    }
}

async fn definitions(client: &Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for wanted in crds::all() {
        let name = wanted.name_any();
        let there = if_there("reading a CustomResourceDefinition", api.get(&name)).await?;
        let served = |crd: &CustomResourceDefinition| -> Vec<String> {
            let versions = crd.spec.versions.iter().filter(|version| version.served);
            versions.map(|version| version.name.clone()).collect()
        };
        let needed = served(&wanted);
        match there.as_ref().map(served) {
            None => say!("  {name}: missing; `kubectl apply -f crds/` creates it"),
            Some(has) if needed.iter().all(|version| has.contains(version)) => say!("  {name}: {}", has.join(", ")),
            Some(has) => say!(
                "  {name}: {}; {} is needed, which `kubectl apply -f crds/` adds",
                has.join(", "),
                needed.join(", ")
            ),
        }
    }
    Ok(())
}

async fn objects(client: &Client, found: &Found) -> anyhow::Result<()> {
    say!("  queues: {}", count(&Api::<Queue>::all(client.clone())).await?);
    say!("  pod groups: {}", count(&Api::<PodGroup>::all(client.clone())).await?);
    say!(
        "  bind requests: {}",
        count(&Api::<BindRequest>::all(client.clone())).await?
    );
    let reservations = Api::<Pod>::namespaced(client.clone(), &found.reservation_namespace());
    say!("  reservation pods: {}", count(&reservations).await?);
    Ok(())
}

/// How many there are, by their metadata.
async fn count<K>(api: &Api<K>) -> anyhow::Result<usize>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut params = ListParams::default().limit(5_000);
    let mut count = 0;
    loop {
        let page = if_there("counting objects", api.list_metadata(&params)).await?;
        let Some(page): Option<kube::core::ObjectList<PartialObjectMeta<K>>> = page else {
            return Ok(count);
        };
        count += page.items.len();
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(count);
        }
    }
}
