//! The webhook configurations, and how existing ones are corrected.
//!
//! Names and rules are KAI's, so that an installation of it is taken over in place. What others add is kept: labels and annotations of
//! the object, timeouts, and expressions of the namespace selector, which some clouds insert. They go with the ClusterRole of the
//! manifests, so that nothing refuses pods when `kubectl delete -f` has taken the rest away. Absent: the watching and writing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference,
};

use super::{QueueLabels, Settings};
use crate::api::names::{annotation, group, label, object, webhook};

/// Limit on queues in a match condition. The API server evaluates it for every pod of ours.
const NAMED_QUEUES_MAX: usize = 500;

/// How the API server reaches the webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Behind a Service in our namespace.
    Service {
        /// The Service.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// At a URL, without a path.
    Url(String),
}

/// The configurations to register. One that Config switches off has no webhooks: `None`, as the API server does not keep an empty list.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// The one configuration of mutating webhooks.
    pub mutating: MutatingWebhookConfiguration,
    /// The configurations of validating webhooks.
    pub validating: Vec<ValidatingWebhookConfiguration>,
}

/// The configurations for webhooks at `target` with certificates of the authorities in `bundle`. `leaves`: the queues that can run pods.
/// `owner` owns the configurations, so that they are deleted with it.
#[must_use]
pub fn desired(
    settings: &Settings,
    target: &Target,
    bundle: &str,
    leaves: &BTreeSet<String>,
    owner: Option<&OwnerReference>,
) -> Desired {
    let client = |path: &str| client_config(target, path, bundle);
    let pod_webhook = format!("admission.{}.svc", settings.namespace);
    let common = Common::new(settings);
    let scope = &settings.scope;

    let mutate = MutatingWebhook {
        name: pod_webhook.clone(),
        client_config: client(webhook::MUTATE_POD_PATH),
        rules: Some(on_pods(&["CREATE"], settings)),
        reinvocation_policy: Some("IfNeeded".to_owned()),
        failure_policy: Some(common.failure_policy.clone()),
        side_effects: "None".to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        match_conditions: Some(vec![scheduler_matches(settings), something_to_write(settings)]),
        namespace_selector: Some(other_namespaces(settings)),
        object_selector: pods_in_scope(settings),
        ..MutatingWebhook::default()
    };
    let validate_pods = ValidatingWebhook {
        match_conditions: Some(vec![
            scheduler_matches(settings),
            by_others(settings),
            something_to_check(settings, leaves),
        ]),
        namespace_selector: Some(other_namespaces(settings)),
        object_selector: pods_in_scope(settings),
        ..common.validating(
            pod_webhook.clone(),
            client(webhook::VALIDATE_POD_PATH),
            on_pods(&["CREATE", "UPDATE"], settings),
        )
    };
    let unreviewed = ValidatingWebhook {
        match_conditions: Some(vec![scheduler_matches(settings)]),
        namespace_selector: Some(namespaces("In", settings)),
        // These webhooks only warn, so they must never cause a refusal.
        failure_policy: Some("Ignore".to_owned()),
        timeout_seconds: Some(1),
        ..common.validating(
            format!("unreviewed.{pod_webhook}"),
            client(webhook::VALIDATE_POD_PATH),
            vec![rule("", "v1", "pods", "Namespaced", &["CREATE"])],
        )
    };
    let validate =
        |name: &str, path: &str, rule: RuleWithOperations| common.validating(name.to_owned(), client(path), vec![rule]);
    let topologies = validate(
        &format!("topology.admission.{}.svc", settings.namespace),
        webhook::VALIDATE_TOPOLOGY_PATH,
        rule(group::KAI, "v1alpha1", "topologies", "Cluster", &["CREATE", "UPDATE"]),
    );
    let queues = of_queues(settings, validate);
    let pod_groups = ValidatingWebhook {
        match_conditions: Some(vec![by_others(settings)]),
        ..validate(
            webhook::POD_GROUP_NAME,
            webhook::VALIDATE_POD_GROUP_PATH,
            rule(
                group::SCHEDULING,
                "v2alpha2",
                "podgroups",
                "Namespaced",
                &["CREATE", "UPDATE"],
            ),
        )
    };

    Desired {
        mutating: MutatingWebhookConfiguration {
            metadata: metadata(object::MUTATING_WEBHOOK, "admission", owner, settings),
            webhooks: scope.pods.then(|| vec![mutate]),
        },
        validating: vec![
            validating(
                metadata(object::VALIDATING_WEBHOOK, "admission", owner, settings),
                scope.pods.then(|| vec![validate_pods, topologies, unreviewed]),
            ),
            validating(
                metadata(object::QUEUE_WEBHOOK, "queue-controller", owner, settings),
                scope.queues.then_some(queues),
            ),
            validating(
                metadata(object::POD_GROUP_WEBHOOK, "podgroup-controller", owner, settings),
                scope.pod_groups.then(|| vec![pod_groups]),
            ),
        ],
    }
}

/// The webhooks of queues, as `validate` makes them.
fn of_queues(
    settings: &Settings,
    validate: impl Fn(&str, &str, RuleWithOperations) -> ValidatingWebhook,
) -> Vec<ValidatingWebhook> {
    let on_queues = |operations: &[&str]| rule(group::SCHEDULING, "v2", "queues", "Cluster", operations);
    if settings.queue_rules.protect {
        return vec![validate(
            webhook::QUEUE_NAME,
            webhook::VALIDATE_QUEUE_PATH,
            on_queues(&["CREATE", "UPDATE", "DELETE"]),
        )];
    }
    let deletions = ValidatingWebhook {
        // The review only warns, and an uninstallation deletes queues while no webhook answers.
        failure_policy: Some("Ignore".to_owned()),
        timeout_seconds: Some(1),
        ..validate(
            webhook::QUEUE_DELETION_NAME,
            webhook::VALIDATE_QUEUE_PATH,
            on_queues(&["DELETE"]),
        )
    };
    let changes = on_queues(&["CREATE", "UPDATE"]);
    vec![
        validate(webhook::QUEUE_NAME, webhook::VALIDATE_QUEUE_PATH, changes),
        deletions,
    ]
}

/// What the validating webhooks have in common.
struct Common {
    failure_policy: String,
}

impl Common {
    fn new(settings: &Settings) -> Self {
        Self {
            failure_policy: settings.failure_policy.as_api().to_owned(),
        }
    }

    fn validating(
        &self,
        name: String,
        client_config: WebhookClientConfig,
        rules: Vec<RuleWithOperations>,
    ) -> ValidatingWebhook {
        ValidatingWebhook {
            name,
            client_config,
            rules: Some(rules),
            failure_policy: Some(self.failure_policy.clone()),
            side_effects: "None".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            ..ValidatingWebhook::default()
        }
    }
}

fn metadata(name: &str, app: &str, owner: Option<&OwnerReference>, settings: &Settings) -> ObjectMeta {
    let labels = [(label::APP, app), (label::MANAGED_BY, object::OPERATOR)];
    let key = (annotation::QUEUE_LABEL_KEY.to_owned(), settings.queue_label_key.clone());
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        annotations: Some([key].into()),
        owner_references: owner.map(|owner| vec![owner.clone()]),
        ..ObjectMeta::default()
    }
}

fn validating(metadata: ObjectMeta, webhooks: Option<Vec<ValidatingWebhook>>) -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration { metadata, webhooks }
}

fn client_config(target: &Target, path: &str, bundle: &str) -> WebhookClientConfig {
    let ca_bundle = Some(ByteString(bundle.as_bytes().to_vec()));
    match target {
        Target::Url(url) => {
            let url = Some(format!("{}{path}", url.trim_end_matches('/')));
            WebhookClientConfig {
                ca_bundle,
                url,
                service: None,
            }
        }
        Target::Service { name, namespace } => {
            let service = ServiceReference {
                name: name.clone(),
                namespace: namespace.clone(),
                path: Some(path.to_owned()),
                port: Some(443),
            };
            WebhookClientConfig {
                ca_bundle,
                url: None,
                service: Some(service),
            }
        }
    }
}

fn rule(group: &str, version: &str, resource: &str, scope: &str, operations: &[&str]) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec![version.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        scope: Some(scope.to_owned()),
        operations: Some(operations.iter().map(|&operation| operation.to_owned()).collect()),
    }
}

/// Rules for operations on pods. Ephemeral containers are added by a subresource, and are reviewed where containers may not choose GPUs by themselves.
fn on_pods(operations: &[&str], settings: &Settings) -> Vec<RuleWithOperations> {
    let ephemeral = || rule("", "v1", "pods/ephemeralcontainers", "Namespaced", &["UPDATE"]);
    let mut rules = vec![rule("", "v1", "pods", "Namespaced", operations)];
    rules.extend(settings.block_nvidia_visible_devices.then(ephemeral));
    rules
}

/// The webhooks are called for pods of our scheduler only, so that their failure affects no other pods.
fn scheduler_matches(settings: &Settings) -> MatchCondition {
    MatchCondition {
        name: webhook::MATCH_CONDITION.to_owned(),
        expression: format!("object.spec.schedulerName == '{}'", settings.scheduler_name),
    }
}

/// Excludes the operator's own writes: they are valid, a call would cost each write a round trip, and they must not fail while no webhook can be reached.
fn by_others(settings: &Settings) -> MatchCondition {
    MatchCondition {
        name: "not-by-the-operator".to_owned(),
        expression: format!(
            "request.userInfo.username != 'system:serviceaccount:{}:{}'",
            settings.namespace,
            object::OPERATOR
        ),
    }
}

/// Excludes pods that need no mutation: most pods name their queue and request no GPU portion.
fn something_to_write(settings: &Settings) -> MatchCondition {
    let mut reasons = shares(&[annotation::GPU_FRACTION, annotation::GPU_MEMORY]);
    if settings.queue_labels != QueueLabels::Off {
        let key = &settings.queue_label_key;
        reasons.push(format!(
            "!({} && object.metadata.labels['{key}'] != '')",
            has("labels", key)
        ));
    }
    any("something-to-write", reasons, settings)
}

/// Excludes pods that need no validation. A pod without a GPU portion can be wrong in its queue, when it is created, or because it had a GPU portion before.
/// A pod whose label names a known leaf queue is not checked: its owner may name another queue, which precedes the label, but it would cost too much to
/// review the pods of every Job for that. The names may be out of date for a moment: then the webhook is called for a pod of a new queue,
/// and a pod of a deleted queue stays pending with a reason, as if the queue had been deleted after the pod was created.
fn something_to_check(settings: &Settings, leaves: &BTreeSet<String>) -> MatchCondition {
    let mut reasons = shares(&[
        annotation::GPU_FRACTION,
        annotation::GPU_MEMORY,
        annotation::GPU_FRACTION_NUM_DEVICES,
        annotation::MPS,
    ]);
    reasons.push(format!(
        "(has(object.metadata.annotations) && object.metadata.annotations.exists(key, key.startsWith('{}')))",
        annotation::MIG_PREFIX
    ));
    let key = annotation::SHARED_GPU_CONFIG_MAP;
    reasons.push(format!(
        "(request.operation == 'UPDATE' && has(oldObject.metadata.annotations) && '{key}' in oldObject.metadata.annotations)"
    ));
    if settings.queue_labels != QueueLabels::Off {
        reasons.push(if leaves.is_empty() || leaves.len() > NAMED_QUEUES_MAX {
            "request.operation == 'CREATE'".to_owned()
        } else {
            let (key, label) = (&settings.queue_label_key, has("labels", &settings.queue_label_key));
            let names: Vec<_> = leaves.iter().map(|leaf| format!("'{leaf}'")).collect();
            let names = names.join(",");
            format!("(request.operation == 'CREATE' && !({label} && object.metadata.labels['{key}'] in [{names}]))")
        });
    }
    any("something-to-check", reasons, settings)
}

fn shares(annotations: &[&str]) -> Vec<String> {
    annotations.iter().map(|key| has("annotations", key)).collect()
}

fn has(map: &str, key: &str) -> String {
    format!("(has(object.metadata.{map}) && '{key}' in object.metadata.{map})")
}

fn any(name: &str, reasons: Vec<String>, settings: &Settings) -> MatchCondition {
    // Any container may set the variable that is not allowed.
    let always = settings.block_nvidia_visible_devices;
    MatchCondition {
        name: name.to_owned(),
        expression: if always {
            "true".to_owned()
        } else {
            reasons.join(" || ")
        },
    }
}

/// Selects all namespaces that are not exempt.
fn other_namespaces(settings: &Settings) -> LabelSelector {
    let mut selector = namespaces("NotIn", settings);
    let labels = &settings.scope.namespace_labels;
    selector.match_labels = (!labels.is_empty()).then(|| labels.clone());
    if settings.scope.namespaces_with_queue {
        selector
            .match_expressions
            .get_or_insert_default()
            .push(LabelSelectorRequirement {
                key: settings.queue_label_key.clone(),
                operator: "Exists".to_owned(),
                values: None,
            });
    }
    selector
}

/// Selects the pods of the settings, if not all.
fn pods_in_scope(settings: &Settings) -> Option<LabelSelector> {
    let labels = &settings.scope.pod_labels;
    (!labels.is_empty()).then(|| LabelSelector {
        match_expressions: None,
        match_labels: Some(labels.clone()),
    })
}

/// The exempt namespaces: the webhooks must not block the pods that the operator or the control plane needs.
fn namespaces(operator: &str, settings: &Settings) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: label::NAMESPACE_NAME.to_owned(),
            operator: operator.to_owned(),
            values: Some(settings.exempt_namespaces().map(str::to_owned).into()),
        }]),
        match_labels: None,
    }
}

/// A kind of webhook configuration, for the reconciler.
pub trait Configuration: Clone + PartialEq {
    /// `self` merged with the object in the API server: fields that we set are ours, all others stay.
    #[must_use]
    fn onto(&self, live: &Self) -> Self;

    /// The authorities that certificates of each webhook are checked with, as PEM.
    fn authorities(&self) -> Vec<String>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn onto(&self, live: &Self) -> Self {
        let keys = queue_label_keys(&self.metadata, &live.metadata);
        let merge = |ours: &MutatingWebhook, theirs: &MutatingWebhook| MutatingWebhook {
            timeout_seconds: ours.timeout_seconds.or(theirs.timeout_seconds),
            match_policy: ours.match_policy.clone().or_else(|| theirs.match_policy.clone()),
            namespace_selector: of_namespaces(
                ours.namespace_selector.as_ref(),
                theirs.namespace_selector.as_ref(),
                &keys,
            ),
            object_selector: of_objects(ours.object_selector.as_ref(), theirs.object_selector.as_ref()),
            ..ours.clone()
        };
        let webhooks = merged(
            self.webhooks.as_deref(),
            live.webhooks.as_deref(),
            |webhook| &webhook.name,
            merge,
        );
        Self {
            metadata: merged_metadata(&self.metadata, &live.metadata),
            webhooks,
        }
    }

    fn authorities(&self) -> Vec<String> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks.map(|webhook| authorities(&webhook.client_config)).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn onto(&self, live: &Self) -> Self {
        let keys = queue_label_keys(&self.metadata, &live.metadata);
        let merge = |ours: &ValidatingWebhook, theirs: &ValidatingWebhook| ValidatingWebhook {
            timeout_seconds: ours.timeout_seconds.or(theirs.timeout_seconds),
            match_policy: ours.match_policy.clone().or_else(|| theirs.match_policy.clone()),
            namespace_selector: of_namespaces(
                ours.namespace_selector.as_ref(),
                theirs.namespace_selector.as_ref(),
                &keys,
            ),
            object_selector: of_objects(ours.object_selector.as_ref(), theirs.object_selector.as_ref()),
            ..ours.clone()
        };
        let webhooks = merged(
            self.webhooks.as_deref(),
            live.webhooks.as_deref(),
            |webhook| &webhook.name,
            merge,
        );
        Self {
            metadata: merged_metadata(&self.metadata, &live.metadata),
            webhooks,
        }
    }

    fn authorities(&self) -> Vec<String> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks.map(|webhook| authorities(&webhook.client_config)).collect()
    }
}

fn authorities(client: &WebhookClientConfig) -> String {
    let bundle = client.ca_bundle.as_ref();
    bundle.map_or_else(String::new, |pem| String::from_utf8_lossy(&pem.0).into_owned())
}

fn merged<W: Clone>(
    ours: Option<&[W]>,
    theirs: Option<&[W]>,
    name: impl Fn(&W) -> &String,
    merge: impl Fn(&W, &W) -> W,
) -> Option<Vec<W>> {
    let live = |ours: &W| {
        theirs
            .unwrap_or_default()
            .iter()
            .find(|theirs| name(theirs) == name(ours))
    };
    Some(
        ours?
            .iter()
            .map(|ours| live(ours).map_or_else(|| ours.clone(), |theirs| merge(ours, theirs)))
            .collect(),
    )
}

fn merged_metadata(ours: &ObjectMeta, live: &ObjectMeta) -> ObjectMeta {
    let mut merged = live.clone();
    let add = |theirs: &mut Option<BTreeMap<String, String>>, ours: Option<&BTreeMap<String, String>>| {
        if let Some(ours) = ours {
            theirs.get_or_insert_default().extend(ours.clone());
        }
    };
    add(&mut merged.labels, ours.labels.as_ref());
    add(&mut merged.annotations, ours.annotations.as_ref());
    for owner in ours.owner_references.iter().flatten() {
        let owners = merged.owner_references.get_or_insert_default();
        let is_same = |other: &OwnerReference| (&other.kind, &other.name) == (&owner.kind, &owner.name);
        match owners.iter_mut().find(|other| is_same(other)) {
            // The owner was re-created; the rest of the reference is unchanged.
            Some(known) => known.uid.clone_from(&owner.uid),
            None => owners.push(owner.clone()),
        }
    }
    merged
}

/// The queue's label key of the settings, and the one with which the object was written last.
fn queue_label_keys<'m>(ours: &'m ObjectMeta, live: &'m ObjectMeta) -> [Option<&'m String>; 2] {
    [ours, live].map(|meta| meta.annotations.as_ref()?.get(annotation::QUEUE_LABEL_KEY))
}

/// Our selector of namespaces, with the existing expressions of others: those whose keys we do not use, and that do not demand a queue's label, as we did
/// under other settings. The labels are only ours, so one that Config no longer has goes.
fn of_namespaces(
    ours: Option<&LabelSelector>,
    theirs: Option<&LabelSelector>,
    queue_label_keys: &[Option<&String>],
) -> Option<LabelSelector> {
    let Some(theirs) = theirs else { return ours.cloned() };
    let ours = ours.cloned().unwrap_or_default();
    let own = ours.match_expressions.unwrap_or_default();
    let uses = |key: &String| own.iter().any(|term| term.key == *key);
    let demands_queue =
        |term: &LabelSelectorRequirement| term.operator == "Exists" && queue_label_keys.contains(&Some(&term.key));
    let foreign = theirs
        .match_expressions
        .iter()
        .flatten()
        .filter(|term| !uses(&term.key) && !demands_queue(term));
    let terms: Vec<LabelSelectorRequirement> = own.iter().chain(foreign).cloned().collect();
    Some(LabelSelector {
        match_expressions: Some(terms).filter(|terms| !terms.is_empty()),
        match_labels: ours.match_labels,
    })
}

/// Our selector of objects. If we have none, the API server stores an empty one, which selects all.
fn of_objects(ours: Option<&LabelSelector>, theirs: Option<&LabelSelector>) -> Option<LabelSelector> {
    ours.cloned().or_else(|| theirs.map(|_| LabelSelector::default()))
}

#[cfg(test)]
pub(super) mod tests;
