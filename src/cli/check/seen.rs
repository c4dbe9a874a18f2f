//! The objects of an installation. What the caller may not read is recorded as unknown.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::names::{label, object};
use crate::api::{Queue, crds};
use crate::cli::manifests;
use crate::cli::migrate::found::Found;
use crate::cli::migrate::{if_there, webhooks, within};
use crate::components::admission::certificates::{Pair, Pairs};

/// Concurrent requests.
const AT_ONCE: usize = 8;

/// What was read. `lacking`, `policies` and `certificates` may be unreadable for the caller; another `None` is an absent object.
pub struct Installation {
    /// Deployments of KAI and unikai, Config and shards.
    pub found: Found,
    /// The installed CustomResourceDefinitions.
    pub definitions: Vec<CustomResourceDefinition>,
    /// Rights that the operator lacks; `Err`: why they are unknown.
    pub lacking: Result<Vec<String>, String>,
    /// The operator's pods.
    pub pods: Vec<Pod>,
    /// The operator's Service.
    pub service: Option<Service>,
    /// The Leases of the schedulers.
    pub leases: BTreeMap<String, Option<Lease>>,
    /// Registered webhooks.
    pub webhooks: Vec<Webhook>,
    /// KAI's webhook configurations.
    pub kai_webhooks: Vec<String>,
    /// The admission policies; `Err`: why they are unknown.
    pub policies: Result<Policies, String>,
    /// The certificates, if they may be read: the authorities as PEM, and when the served certificate expires.
    pub certificates: Option<Certificates>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The names of runtime classes.
    pub runtime_classes: Vec<String>,
    /// Whether the namespace of reservation pods exists.
    pub reservation_namespace_exists: bool,
    /// All queues.
    pub queues: Vec<Queue>,
}

/// A registered webhook.
pub struct Webhook {
    /// Its configuration.
    pub configuration: String,
    /// Its name.
    pub name: String,
    /// Its target.
    pub client: WebhookClientConfig,
}

/// All admission policies of the cluster.
#[derive(Default)]
pub struct Policies {
    /// The policies.
    pub policies: Vec<ValidatingAdmissionPolicy>,
    /// Their bindings.
    pub bindings: Vec<ValidatingAdmissionPolicyBinding>,
}

/// The certificate that the operator serves.
pub struct Certificates {
    /// The certificate authorities, as PEM.
    pub authorities: String,
    /// When the served certificate expires; `None`: there is none.
    pub expires: Option<Timestamp>,
}

impl Installation {
    /// Reads the objects.
    ///
    /// # Errors
    /// When a request for required objects fails, or an optional one for another reason than missing rights.
    pub async fn look(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let found = Found::look(client, namespace).await?;
        let mut leases = BTreeMap::new();
        for name in found.lease_names() {
            let api = Api::<Lease>::namespaced(client.clone(), namespace);
            let lease = if_there("reading a Lease", api.get(&name)).await?;
            leases.insert(name, lease);
        }
        let services = Api::<Service>::namespaced(client.clone(), namespace);
        let namespaces = Api::<Namespace>::all(client.clone());
        let reservation_namespace = found.reservation_namespace();
        let whose = webhooks::whose(client).await?;
        let classes: Vec<RuntimeClass> = all(client).await?;
        Ok(Self {
            definitions: definitions(client).await?,
            lacking: lacking(client, namespace).await,
            pods: pods(client, namespace).await?,
            service: if_there("reading the Service", services.get(object::OPERATOR)).await?,
            leases,
            webhooks: registered(client).await?,
            kai_webhooks: whose
                .into_iter()
                .filter(|(_, whose)| *whose == webhooks::KAIS)
                .map(|(name, _)| name)
                .collect(),
            policies: policies(client).await.map_err(|error| format!("{error:#}")),
            certificates: certificates(client, namespace).await,
            nodes: all(client).await?,
            runtime_classes: classes.iter().map(ResourceExt::name_any).collect(),
            reservation_namespace_exists: if_there("reading a namespace", namespaces.get(&reservation_namespace))
                .await?
                .is_some(),
            // Without their definition there are none.
            queues: if_there(
                "listing queues",
                Api::<Queue>::all(client.clone()).list(&ListParams::default()),
            )
            .await?
            .map(|queues| queues.items)
            .unwrap_or_default(),
            found,
        })
    }
}

async fn all<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api = Api::<K>::all(client.clone());
    let what = format!("listing {}", K::plural(&()));
    Ok(within(&what, api.list(&ListParams::default())).await?.items)
}

async fn pods(client: &Client, namespace: &str) -> anyhow::Result<Vec<Pod>> {
    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(client: &Client, namespace: &str) -> Api<K> {
        Api::namespaced(client.clone(), namespace)
    }
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={}", object::OPERATOR));
    Ok(within("listing pods", api::<Pod>(client, namespace).list(&ours))
        .await?
        .items)
}

async fn definitions(client: &Client) -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let mut there = Vec::new();
    for wanted in crds::all() {
        there.extend(if_there("reading a CustomResourceDefinition", api.get(&wanted.name_any())).await?);
    }
    Ok(there)
}

async fn registered(client: &Client) -> anyhow::Result<Vec<Webhook>> {
    let mut webhooks = Vec::new();
    for configuration in all::<MutatingWebhookConfiguration>(client).await? {
        let parts = |webhook: &MutatingWebhook| (webhook.name.clone(), webhook.client_config.clone());
        webhooks.extend(ours(&configuration, configuration.webhooks.as_deref(), parts));
    }
    for configuration in all::<ValidatingWebhookConfiguration>(client).await? {
        let parts = |webhook: &ValidatingWebhook| (webhook.name.clone(), webhook.client_config.clone());
        webhooks.extend(ours(&configuration, configuration.webhooks.as_deref(), parts));
    }
    Ok(webhooks)
}

/// The webhooks of a configuration that the operator created.
fn ours<W>(
    configuration: &impl ResourceExt,
    webhooks: Option<&[W]>,
    parts: impl Fn(&W) -> (String, WebhookClientConfig),
) -> Vec<Webhook> {
    let ours = configuration.labels().get(label::MANAGED_BY).map(String::as_str) == Some(object::OPERATOR);
    let webhooks = webhooks.unwrap_or_default().iter().filter(|_| ours);
    webhooks
        .map(|webhook| {
            let (name, client) = parts(webhook);
            Webhook {
                configuration: configuration.name_any(),
                name,
                client,
            }
        })
        .collect()
}

async fn policies(client: &Client) -> anyhow::Result<Policies> {
    Ok(Policies {
        policies: all(client).await?,
        bindings: all(client).await?,
    })
}

/// The Secret with the keys may be unreadable for the caller.
async fn certificates(client: &Client, namespace: &str) -> Option<Certificates> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = within("reading the certificates", api.get_opt(object::WEBHOOK_SECRET))
        .await
        .ok()?;
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    let pairs = Pairs::from_data(&data.into_iter().map(|(key, value)| (key, value.0)).collect());
    Some(Certificates {
        authorities: pairs.bundle(),
        expires: pairs.served(Timestamp::now()).map(Pair::expires_at),
    })
}

/// The rights of the manifests that the operator's service account does not have.
async fn lacking(client: &Client, namespace: &str) -> Result<Vec<String>, String> {
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let asked = futures::stream::iter(rights(namespace)).map(|right| {
        let api = api.clone();
        async move {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{namespace}:{}", object::OPERATOR)),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{namespace}"),
                        "system:authenticated".to_owned(),
                    ]),
                    resource_attributes: Some(right.clone()),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let answer = within("asking about a right", api.create(&PostParams::default(), &review)).await;
            answer.map(|answer| (right, answer.status.is_some_and(|status| status.allowed)))
        }
    });
    let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    let mut lacking = Vec::new();
    for answer in answers {
        let (right, allowed) = answer.map_err(|error| format!("{error:#}"))?;
        if !allowed {
            lacking.push(words(&right));
        }
    }
    lacking.sort();
    Ok(lacking)
}

fn words(right: &ResourceAttributes) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let subresource = right
        .subresource
        .as_ref()
        .map_or_else(String::new, |sub| format!("/{sub}"));
    let group = right.group.as_ref().filter(|group| !group.is_empty());
    let group = group.map_or_else(String::new, |group| format!(".{group}"));
    let name = right.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
    let within = right
        .namespace
        .as_ref()
        .map_or_else(String::new, |namespace| format!(" in {namespace}"));
    format!(
        "{} {}{group}{subresource}{name}{within}",
        text(&right.verb),
        text(&right.resource)
    )
}

/// The rules of the manifests' ClusterRole, and of the Role of the same name in the operator's namespace.
pub(super) fn rights(namespace: &str) -> Vec<ResourceAttributes> {
    let mut rights = Vec::new();
    for (_, yaml) in manifests::files("unikai:check") {
        for document in serde_yaml_ng::Deserializer::from_str(&yaml) {
            let Ok(role) = Value::deserialize(document) else {
                continue;
            };
            let within = match role["kind"].as_str() {
                Some("ClusterRole") => None,
                Some("Role") if role["metadata"]["namespace"] == object::NAMESPACE => Some(namespace.to_owned()),
                _ => continue,
            };
            if role["metadata"]["name"] != object::OPERATOR {
                continue;
            }
            rights.extend(
                role["rules"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .flat_map(|rule| of_rule(rule, within.as_ref())),
            );
        }
    }
    rights
}

fn of_rule(rule: &Value, namespace: Option<&String>) -> Vec<ResourceAttributes> {
    let list = |field: &str| -> Vec<String> {
        let words = rule[field].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(ToOwned::to_owned)).collect()
    };
    // Without names it is about all objects.
    let mut names: Vec<Option<String>> = list("resourceNames").into_iter().map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut rights = Vec::new();
    for group in list("apiGroups") {
        for resource in list("resources") {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
                None => (resource, None),
            };
            for verb in list("verbs") {
                rights.extend(names.iter().map(|name| ResourceAttributes {
                    group: Some(group.clone()),
                    resource: Some(resource.clone()),
                    subresource: subresource.clone(),
                    verb: Some(verb.clone()),
                    name: name.clone(),
                    namespace: namespace.cloned(),
                    ..ResourceAttributes::default()
                }));
            }
        }
    }
    rights
}
