//! Problems of an installation, section by section, and what to do about them. Pure.

mod policies;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde::Serialize;

use super::seen::Installation;
use crate::api::condition::Condition;
use crate::api::config::AdmissionConfig;
use crate::api::names::{condition, node_label, object, resource};
use crate::api::queue_access::hold_of;
use crate::api::{Queue, crds};
use crate::components::admission::queues::{circle, traps};
use crate::components::fractions;
use crate::config::{is_on, validates};
use crate::operator::lease;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// It is in order.
    Ok,
    /// It may be unintended, or could not be read.
    Warning,
    /// Something does not work.
    Failed,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The result.
    pub mark: Mark,
    /// The finding.
    pub says: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// A section of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its heading.
    pub name: &'static str,
    /// Its lines.
    pub findings: Vec<Found>,
}

/// Collects the lines of a section.
struct Lines(Vec<Found>);

impl Lines {
    fn add(&mut self, mark: Mark, says: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Found {
            mark,
            says: says.into(),
            remedy: Some(remedy.into()),
        });
    }

    fn fail(&mut self, says: impl Into<String>, remedy: impl Into<String>) {
        self.add(Mark::Failed, says, remedy);
    }

    fn warn(&mut self, says: impl Into<String>, remedy: impl Into<String>) {
        self.add(Mark::Warning, says, remedy);
    }

    /// The section; without findings it has one line that all is in order.
    fn or(mut self, name: &'static str, says: impl Into<String>) -> Section {
        if self.0.is_empty() {
            self.0.push(Found {
                mark: Mark::Ok,
                says: says.into(),
                remedy: None,
            });
        }
        Section { name, findings: self.0 }
    }
}

const APPLY: &str = "kubectl apply --server-side --force-conflicts -f crds/";
const MANIFESTS: &str = "unikai manifests --image IMAGE | kubectl apply -f -, with the image that you built and pushed";
const PODS: &str = "kubectl describe pods -l app.kubernetes.io/name=unikai, and their logs, have the reason";
/// Certificates are renewed long before this.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(48);
/// The duration of a Lease that does not name it.
const LEASE_SECONDS: i32 = 15;
/// Objects of one kind named in a line.
const NAMED: usize = 5;

/// Runs all checks.
#[must_use]
pub fn judge(seen: &Installation, now: Timestamp) -> Vec<Section> {
    vec![
        definitions(seen),
        operator(seen),
        rights(seen),
        leader(seen, now),
        webhooks(seen, now),
        policies::judge(seen),
        configuration(seen),
        nodes(seen),
        leftovers(seen),
        queues(seen),
    ]
}

fn definitions(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    for wanted in crds::all() {
        let name = wanted.name_any();
        let Some(there) = seen.definitions.iter().find(|crd| crd.name_any() == name) else {
            lines.fail(format!("CustomResourceDefinition {name} is missing"), APPLY);
            continue;
        };
        let established = there
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        if established
            .into_iter()
            .any(|is| is.type_ == "Established" && is.status != "True")
        {
            lines.fail(
                format!("CustomResourceDefinition {name} is not established"),
                format!("kubectl describe crd {name} shows the reason"),
            );
        }
        for version in &wanted.spec.versions {
            let served = there
                .spec
                .versions
                .iter()
                .find(|served| served.name == version.name && served.served);
            let Some(served) = served else {
                lines.fail(format!("{name} does not serve version {}", version.name), APPLY);
                continue;
            };
            let fields = |version: &_| serde_json::to_value(version).unwrap_or_default();
            let (has, needs) = (fields(served), fields(version));
            let path = "/schema/openAPIV3Schema/properties/status/properties";
            let has = has.pointer(path);
            let missing = needs
                .pointer(path)
                .and_then(|needed| needed.as_object())
                .into_iter()
                .flat_map(|needed| needed.keys());
            let missing: Vec<_> = missing
                .filter(|field| has.is_none_or(|has| has.get(field).is_none()))
                .cloned()
                .collect();
            if !missing.is_empty() {
                lines.warn(
                    format!(
                        "{name} is KAI's or an older one: it drops status.{}, which kubectl get shows",
                        missing.join(", status.")
                    ),
                    format!("{APPLY}, then restart the operator"),
                );
            }
        }
    }
    lines.or(
        "Definitions",
        "all CustomResourceDefinitions are installed, with the versions that unikai reads",
    )
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == condition::POD_READY && condition.status == "True")
        && pod.metadata.deletion_timestamp.is_none()
}

fn operator(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    let name = object::OPERATOR;
    let namespace = &seen.found.namespace;
    match &seen.found.own {
        None => lines.fail(
            format!("there is no Deployment {name} in namespace {namespace}"),
            MANIFESTS,
        ),
        Some(own) if own.replicas == 0 => lines.fail(
            format!("Deployment {name} is scaled to 0 replicas"),
            format!("kubectl scale -n {namespace} deployment/{name} --replicas=1"),
        ),
        Some(own) => {
            let status = own.deployment.status.clone().unwrap_or_default();
            let available = status.available_replicas.unwrap_or_default();
            if available == 0 {
                lines.fail(format!("no replica of Deployment {name} is available"), PODS);
            } else if available < own.replicas {
                lines.warn(
                    format!(
                        "{available} of {} replicas of Deployment {name} are available",
                        own.replicas
                    ),
                    PODS,
                );
            }
            let observed = status.observed_generation;
            if observed.is_some() && observed < own.deployment.metadata.generation {
                lines.warn(
                    format!("Deployment {name} is being changed"),
                    "wait, and run this again",
                );
            }
        }
    }
    service(seen, &mut lines);
    lines.or("Operator", "the Deployment is available, and its Service selects it")
}

fn service(seen: &Installation, lines: &mut Lines) {
    let name = object::OPERATOR;
    let Some(service) = &seen.service else {
        lines.fail(
            format!("there is no Service {name}, so webhooks cannot be reached"),
            MANIFESTS,
        );
        return;
    };
    let spec = service.spec.clone().unwrap_or_default();
    let selector = spec.selector.unwrap_or_default();
    let selected = seen
        .pods
        .iter()
        .filter(|pod| selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value)));
    if selector.is_empty() || !selected.into_iter().any(is_ready) {
        lines.fail(format!("Service {name} selects no ready pod"), PODS);
    }
    if !spec.ports.iter().flatten().any(|port| port.port == 443) {
        lines.fail(format!("Service {name} has no port 443 for webhooks"), MANIFESTS);
    }
}

fn rights(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    match &seen.lacking {
        Err(why) => lines.warn(
            format!("the operator's rights are not known: {why}"),
            "run this as a user with the right to create subjectaccessreviews.authorization.k8s.io",
        ),
        Ok(lacking) if !lacking.is_empty() => {
            lines.fail(
                format!("the operator lacks rights: {}", some(lacking)),
                "kubectl apply -f manifests/30-rbac.yaml binds its roles",
            );
        }
        Ok(_) => {}
    }
    lines.or("Rights", "the operator has all rights that the manifests give it")
}

/// Some of several, by name.
fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let shown: Vec<_> = names.iter().take(NAMED).map(String::as_str).collect();
    let shown = shown.join(", ");
    if more == 0 {
        shown
    } else {
        format!("{shown}, and {more} more")
    }
}

fn leader(seen: &Installation, now: Timestamp) -> Section {
    let mut lines = Lines(Vec::new());
    for (name, lease) in &seen.leases {
        let held = lease.as_ref().filter(|lease| lease::holder(lease).is_some());
        let Some(held) = held else {
            lines.fail(
                format!("Lease {name} has no holder, so nothing is scheduled under it"),
                PODS,
            );
            continue;
        };
        let spec = held.spec.clone().unwrap_or_default();
        let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(LEASE_SECONDS).into());
        let renewed = spec.renew_time.map(|time| time.0);
        let holder = lease::holder(held).unwrap_or_default();
        // Clocks differ a little.
        if renewed.is_none_or(|renewed| now.duration_since(renewed) > lasts * 2) {
            let since = renewed.map_or_else(|| "ever".to_owned(), |renewed| format!("since {renewed}"));
            lines.fail(format!("Lease {name} of {holder} has not been renewed {since}"), PODS);
        }
    }
    let holders: BTreeSet<_> = seen.leases.values().flatten().filter_map(lease::holder).collect();
    let holders: Vec<_> = holders.into_iter().map(ToOwned::to_owned).collect();
    lines.or("Leader", format!("held and renewed: {}", some(&holders)))
}

/// The webhook configurations, and whether Config has them on. Without its controller that of a kind is off.
fn enabled_webhooks(seen: &Installation) -> [(&'static str, bool); 4] {
    let spec = seen.found.config.as_ref().map(|config| &config.spec);
    let queues = spec.and_then(|spec| spec.queue_controller.as_ref());
    let pod_groups = spec.and_then(|spec| spec.pod_group_controller.as_ref());
    let admission = is_on(admission(seen).and_then(|given| given.service.as_ref()));
    let queues = queues.is_none_or(|given| validates(given.service.as_ref(), given.webhooks.as_ref()));
    let pod_groups = pod_groups.is_none_or(|given| validates(given.service.as_ref(), given.webhooks.as_ref()));
    [
        (object::MUTATING_WEBHOOK, admission),
        (object::VALIDATING_WEBHOOK, admission),
        (object::QUEUE_WEBHOOK, queues),
        (object::POD_GROUP_WEBHOOK, pod_groups),
    ]
}

fn webhooks(seen: &Installation, now: Timestamp) -> Section {
    let mut lines = Lines(Vec::new());
    let log = "the operator registers it when it leads; if it fails, its log has the reason";
    for (configuration, enabled) in enabled_webhooks(seen) {
        let registered = seen
            .webhooks
            .iter()
            .any(|webhook| webhook.configuration == configuration);
        if enabled && !registered {
            lines.fail(
                format!("webhook configuration {configuration} is not registered by unikai"),
                log,
            );
        }
    }
    let renew = "delete the configuration; the operator creates it again";
    for webhook in &seen.webhooks {
        let name = format!("webhook {} of {}", webhook.name, webhook.configuration);
        let bundle = webhook
            .client
            .ca_bundle
            .as_ref()
            .map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned());
        let bundle = bundle.unwrap_or_default();
        if !bundle.contains("-----BEGIN CERTIFICATE-----") {
            lines.fail(
                format!("{name} has no caBundle, so the API server does not trust the operator"),
                renew,
            );
        } else if let Some(certificates) = &seen.certificates
            && !certificates.authorities.trim().is_empty()
            && bundle.trim() != certificates.authorities.trim()
        {
            lines.fail(
                format!(
                    "{name} trusts another authority than the one of Secret {}",
                    object::WEBHOOK_SECRET
                ),
                renew,
            );
        }
        if let Some(service) = &webhook.client.service
            && (service.name != object::OPERATOR || service.namespace != seen.found.namespace)
        {
            lines.fail(
                format!("{name} leads to Service {}/{}", service.namespace, service.name),
                renew,
            );
        }
    }
    match &seen.certificates {
        None => lines.warn(
            format!(
                "Secret {} may not be read, so the certificate's validity is not known",
                object::WEBHOOK_SECRET
            ),
            "run this as a user with the right to read secrets there",
        ),
        Some(certificates) => match certificates.expires {
            Some(expires) if expires > now + EXPIRES_SOON => {}
            Some(expires) if expires > now => lines.warn(
                format!("the certificate of the webhooks expires at {expires}"),
                "the operator renews it in time while it leads; if it fails, its log has the reason",
            ),
            Some(_) | None => lines.fail(
                format!(
                    "there is no certificate in Secret {} that is valid",
                    object::WEBHOOK_SECRET
                ),
                "delete the Secret; the operator creates a new one",
            ),
        },
    }
    lines.or(
        "Webhooks",
        "all webhooks that Config does not switch off are registered, trusted and call the operator",
    )
}

fn configuration(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    let mut look = |what: String, conditions: &[Condition]| {
        let mut told = Vec::new();
        for condition in conditions {
            let (kind, holds) = (condition.r#type.as_str(), condition.status.as_str());
            let message = condition.message.trim();
            // Several conditions may have the same reason.
            if holds == "False" && told.contains(&message) {
                continue;
            }
            match (kind, holds) {
                ("FieldsIgnored", "True") => lines.warn(
                    format!("{what}: {message}"),
                    "unikai fields prints the effect of each field; remove those without effect",
                ),
                ("Available" | "Deployed" | "Ready" | "DependenciesFulfilled", "False") => {
                    told.push(message);
                    lines.fail(
                        format!("{what} is not in force: {message}"),
                        "correct it; until then the last valid state applies, and after a restart nothing is scheduled",
                    );
                }
                ("PrometheusConnected", "False") => lines.warn(
                    format!("{what}: {message}"),
                    "until it answers, fair shares do not depend on past usage",
                ),
                _ => {}
            }
        }
    };
    if let Some(config) = &seen.found.config {
        look(
            "Config kai-config".to_owned(),
            config.status.as_ref().map_or(&[], |status| &status.conditions),
        );
    }
    for shard in &seen.found.shards {
        let conditions = shard.status.as_ref().map_or(&[][..], |status| &status.conditions);
        look(format!("SchedulingShard {}", shard.name_any()), conditions);
    }
    if seen.found.config.is_none() {
        lines.warn("there is no Config kai-config", "the operator creates it when it leads");
    }
    if seen.found.shards.is_empty() {
        lines.fail(
            "there is no SchedulingShard, so no node pool is scheduled",
            "the operator creates the default one when it leads",
        );
    }
    lines.or(
        "Configuration",
        "Config and SchedulingShards are in force, and none of their fields is ignored",
    )
}

fn amount(node: &Node, name: &str) -> u64 {
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let amount = capacity.and_then(|capacity| capacity.get(name)?.0.parse().ok());
    amount.unwrap_or_default()
}

fn nodes(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    let gpus = |node: &Node| amount(node, resource::NVIDIA_GPU) + amount(node, resource::AMD_GPU);
    let names = |keep: &dyn Fn(&Node) -> bool| -> Vec<String> {
        seen.nodes
            .iter()
            .filter(|node| keep(node))
            .map(ResourceExt::name_any)
            .collect()
    };
    let labelled = |node: &Node, label: &str| node.labels().contains_key(label);
    let without_plugin = names(&|node| {
        let has = node
            .labels()
            .get(node_label::GPU_COUNT)
            .is_some_and(|count| count != "0");
        has && gpus(node) == 0
    });
    if !without_plugin.is_empty() {
        lines.fail(
            format!(
                "nodes with the label {} offer no GPUs: {}",
                node_label::GPU_COUNT,
                some(&without_plugin)
            ),
            "the device plugin of the GPU's vendor must run there",
        );
    }
    for (label, why) in [
        (node_label::GPU_COUNT, "cannot be checked for equal GPUs"),
        (node_label::GPU_MEMORY, "cannot be shared by memory (gpu-memory)"),
    ] {
        let without = names(&|node| amount(node, resource::NVIDIA_GPU) > 0 && !labelled(node, label));
        if !without.is_empty() {
            lines.warn(
                format!(
                    "nodes with GPUs lack the label {label}, and a node without it {why}: {}",
                    some(&without)
                ),
                "GPU feature discovery of NVIDIA's GPU operator sets it",
            );
        }
    }
    let all = seen.nodes.iter().map(gpus).sum::<u64>();
    if all == 0 {
        lines.warn(
            "no node offers GPUs",
            "a device plugin offers them; pods without GPUs are scheduled nevertheless",
        );
    }
    if shares(seen) {
        if !seen.reservation_namespace_exists {
            let namespace = seen.found.reservation_namespace();
            lines.fail(
                format!("GPUs are shared, and there is no namespace {namespace}"),
                fractions::installation(&namespace),
            );
        }
        let class = admission(seen).and_then(|given| {
            let named = given.gpu_fraction_runtime_class_name.as_ref();
            named.or(given.gpu_pod_runtime_class_name.as_ref()).cloned()
        });
        let class = class.or_else(|| seen.found.own.as_ref()?.flag("gpu-fraction-runtime-class-name"));
        let class = class.unwrap_or_else(|| "nvidia".to_owned());
        if !class.is_empty() && !seen.runtime_classes.contains(&class) {
            lines.warn(
                format!("GPUs are shared, and there is no RuntimeClass {class}"),
                "if the container runtime provides GPUs without one, set --gpu-fraction-runtime-class-name= to empty",
            );
        }
    }
    lines.or(
        "Nodes",
        format!("{} nodes offer {all} GPUs, and have their labels", seen.nodes.len()),
    )
}

/// What Config says about admission; it has precedence over flags.
fn admission(seen: &Installation) -> Option<&AdmissionConfig> {
    seen.found.config.as_ref()?.spec.admission.as_ref()
}

fn shares(seen: &Installation) -> bool {
    let by_flag = || {
        // The flag alone is the same as true.
        let own = seen.found.own.as_ref();
        own.and_then(|own| own.flag("gpu-sharing"))
            .is_some_and(|value| value != "false")
    };
    admission(seen)
        .and_then(|given| given.gpu_sharing)
        .unwrap_or_else(by_flag)
}

fn leftovers(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    let run = seen.found.kai.iter().filter(|(_, workload)| workload.replicas > 0);
    let run: Vec<_> = run.map(|(_, workload)| workload.name.clone()).collect();
    if !run.is_empty() {
        lines.fail(
            format!("Deployments of KAI run: {}", some(&run)),
            "unikai migrate adopt stops them in order",
        );
    }
    if !seen.kai_webhooks.is_empty() {
        lines.fail(
            format!(
                "webhook configurations of KAI are registered: {}",
                some(&seen.kai_webhooks)
            ),
            "unikai overwrites those of the same name, and unikai migrate adopt deletes the others",
        );
    }
    lines.or("KAI", "no component of KAI runs")
}

fn queues(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    let find = |name: &str| {
        let queue = seen
            .queues
            .iter()
            .find(|queue| queue.metadata.name.as_deref() == Some(name));
        queue.map(|queue| Arc::new(queue.clone()))
    };
    let above = |queue: &Queue| queue.spec.parent_queue.clone().filter(|above| !above.is_empty());
    let parents: BTreeSet<_> = seen.queues.iter().filter_map(above).collect();
    if seen.queues.iter().all(|queue| parents.contains(&queue.name_any())) {
        lines.fail(
            "there is no leaf queue in which workloads could run",
            "create one; docs/quickstart.yaml has an example",
        );
    }
    for queue in &seen.queues {
        let name = queue.name_any();
        if let Some(above) = above(queue) {
            if let Some(circle) = circle(&name, &above, &find) {
                lines.fail(
                    format!("queue {name} is below itself: {circle}"),
                    "choose another parentQueue",
                );
            } else if find(&above).is_none() {
                lines.fail(
                    format!("queue {name}: its parent queue {above} does not exist, and nothing runs in {name}"),
                    format!("create {above}, or choose another parentQueue"),
                );
            }
        }
        if let Some(hold) = hold_of(queue) {
            let reason = hold.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            lines.warn(
                format!("queue {name} is held{reason}: nothing is started in it and below it"),
                format!("unikai drain queue {name} --undo, once it may start workloads again"),
            );
        }
        for warning in traps::of_amounts(queue) {
            lines.warn(warning, format!("kubectl edit queue {name}"));
        }
        let below = seen.queues.iter().filter(|other| above(other).as_ref() == Some(&name));
        let below: Vec<_> = below.map(|queue| Arc::new(queue.clone())).collect();
        for warning in traps::of_children(queue, &below) {
            lines.warn(warning, format!("raise the quota of {name}, or lower those below it"));
        }
    }
    lines.or(
        "Queues",
        format!("{} queues, with plausible amounts", seen.queues.len()),
    )
}
