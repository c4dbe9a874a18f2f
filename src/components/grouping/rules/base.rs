//! The base of all rules: one group per top owner, named after it, with minMember 1.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;

use super::inherit::{self, Base};
use super::{Grouped, Input, RuleError, wrong};
use crate::api::names::{annotation, label, priority_class, third_party};
use crate::api::pod_group::{PodGroup, PodGroupSpec, TopologyConstraint};
use crate::components::grouping::spark_application;
use crate::components::grouping::workload::Workload;
use crate::mirror::identity::default_group_name;
use crate::mirror::trim::trim_annotations;

/// One group per top owner, minMember 1. Also for kinds without a rule.
///
/// ```yaml
/// # StatefulSet db with uid s1, three pods  →  one pod group pg-db-s1, minMember 1, priority class train
/// ```
pub fn default_rule(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let owners: Vec<&Workload> = if input.chain.is_empty() {
        vec![top]
    } else {
        input.chain.iter().map(AsRef::as_ref).collect()
    };
    build(
        input,
        &Base {
            top,
            owners: &owners,
            fallback_class: priority_class::TRAIN,
        },
    )
}

/// A pod without owners, or owned by another pod: it is in the group of the topmost pod.
///
/// Pods of Spark applications carry the application's id, which names their common group.
pub fn pod(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    if let Some(application) = spark_application(input.pod) {
        if application.is_empty() {
            return wrong(format!(
                "label {} of a Spark pod is empty",
                third_party::SPARK_APP_SELECTOR
            ));
        }
        // Executors without an owner must not become owners of the group: it is deleted with the driver.
        let driver = input
            .cluster
            .pod_group(input.namespace(), application)
            .and_then(|group| group.metadata.owner_references.clone())
            .filter(|owners| input.chain.is_empty() && !owners.is_empty());
        if let Some(owners) = driver {
            grouped.group.metadata.owner_references = Some(owners);
        }
        grouped.group.metadata.name = Some(application.to_owned());
    }
    Ok(grouped)
}

/// The pod group of the default rule, for rules that look at one owner only.
pub fn of_owner(input: &Input, top: &Workload, fallback_class: &str) -> Result<Grouped, RuleError> {
    build(
        input,
        &Base {
            top,
            owners: &[top],
            fallback_class,
        },
    )
}

/// The pod group of the default rule, as a template.
pub fn build(input: &Input, base: &Base) -> Result<Grouped, RuleError> {
    let top = base.top;
    let metadata = ObjectMeta {
        name: Some(default_group_name(&top.name, &top.uid)),
        namespace: input.pod.metadata.namespace.clone(),
        labels: Some(labels(input, top)).filter(|labels| !labels.is_empty()),
        annotations: Some(annotations(input, top)),
        owner_references: Some(vec![top.owner_reference()]),
        ..ObjectMeta::default()
    };
    let (priority_class, class_of_pods) = inherit::priority_class(input, base)?;
    let (preemptibility, preemptibility_of_pods) = inherit::preemptibility(input, base)?;
    let spec = PodGroupSpec {
        min_member: Some(1),
        queue: Some(inherit::queue(input, top)),
        priority_class_name: Some(priority_class),
        preemptibility,
        preemption_delay: inherit::preemption_delay(input, base),
        staleness_grace_period: inherit::staleness_grace_period(input, base),
        topology_constraint: topology(|key| top.annotation(key)),
        ..PodGroupSpec::default()
    };
    Ok(Grouped {
        group: PodGroup {
            metadata,
            spec,
            status: None,
        },
        sub_group: None,
        class_of_pods,
        preemptibility_of_pods,
        doubtful: false,
        rule: String::new(),
    })
}

/// Turns the group into one of this pod alone, owned by it.
pub fn per_pod(input: &Input, grouped: &mut Grouped) {
    let pod = Workload::of_pod(input.pod);
    grouped.group.metadata.name = Some(default_group_name(&pod.name, &pod.uid));
    grouped.group.metadata.owner_references = Some(vec![pod.owner_reference()]);
}

/// All labels of the owner, and the pod's `user`.
fn labels(input: &Input, top: &Workload) -> BTreeMap<String, String> {
    let mut labels = top.labels.clone();
    if let Some(user) = input.label(label::USER) {
        labels.entry(label::USER.to_owned()).or_insert_with(|| user.to_owned());
    }
    let node_pool = &input.settings.pools.key;
    if let Some(pool) = input.label(node_pool).filter(|_| !node_pool.is_empty()) {
        labels.entry(node_pool.clone()).or_insert_with(|| pool.to_owned());
    }
    labels
}

/// Annotations about the manager of the owner, or written by the scheduler: not inherited.
fn stays_with_owner(key: &str) -> bool {
    let prefixes = [
        "kubectl.kubernetes.io/",
        "meta.helm.sh/",
        "argocd.argoproj.io/",
        "deployment.kubernetes.io/",
    ];
    let own = [annotation::POD_GROUP_NAME, annotation::RECEIVED_RESOURCE_TYPE];
    prefixes.iter().any(|prefix| key.starts_with(prefix)) || own.contains(&key)
}

/// Annotations of pod groups that only we write. Inherited, they would fake a recent start, which protects from
/// eviction, or another creator of the group.
fn is_ours(key: &str) -> bool {
    let ours = [
        annotation::TOP_OWNER_METADATA,
        annotation::STALE_TIMESTAMP,
        annotation::LAST_START_TIMESTAMP,
        annotation::LAST_EVICTION_TIMESTAMP,
    ];
    ours.contains(&key)
}

/// The owner's annotations, the pod's `user`, and the owner's identity.
fn annotations(input: &Input, top: &Workload) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(annotation::TOP_OWNER_METADATA.to_owned(), describe(top))]);
    if let Some(user) = input.annotation(annotation::USER) {
        annotations.insert(annotation::USER.to_owned(), user.to_owned());
    }
    let all = input.settings.exactly_as_kai;
    let inherited = top.annotations.iter();
    let inherited = inherited.filter(|(key, _)| !is_ours(key) && (all || !stays_with_owner(key)));
    annotations.extend(inherited.map(|(key, value)| (key.clone(), value.clone())));
    // There may be a pod group for each of the owner's pods.
    trim_annotations(&mut annotations);
    annotations
}

/// The owner as YAML, in the form that tools around KAI read: a value is quoted only where YAML would not take it for text.
fn describe(top: &Workload) -> String {
    let fields = [
        ("name", &top.name),
        ("uid", &top.uid),
        ("group", &top.group),
        ("version", &top.version),
        ("kind", &top.kind),
    ];
    fields
        .iter()
        .map(|(key, value)| format!("{key}: {}\n", scalar(value)))
        .collect()
}

fn scalar(text: &str) -> String {
    if is_surely_text(text) || is_text(text) {
        text.to_owned()
    } else {
        format!("{text:?}")
    }
}

/// Words that are text for some readers of YAML, and for others not.
const WORDS: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];
/// Words that YAML does not take for text.
const VALUES: [&str; 3] = ["true", "false", "null"];

fn is_among(words: &[&str], text: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// Whether it is text beyond doubt, as most names and every uid: parsing them took a fortieth of the operator's CPU time in a burst of pods.
fn is_surely_text(text: &str) -> bool {
    let in_names = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'/');
    // No number has three dashes, and no date.
    let several_dashes = || text.bytes().filter(|byte| *byte == b'-').count() > 2;
    let first = text.bytes().next();
    text.bytes().all(in_names)
        && first.is_some_and(|first| first.is_ascii_alphabetic() || (first.is_ascii_digit() && several_dashes()))
        && !is_among(&WORDS, text)
        && !is_among(&VALUES, text)
}

fn is_text(text: &str) -> bool {
    let plain = serde_yaml_ng::from_str::<serde_yaml_ng::Value>(text).is_ok_and(|value| value.as_str() == Some(text));
    let is_date = text.len() >= 10 && text.parse::<jiff::civil::Date>().is_ok();
    plain && !is_among(&WORDS, text) && !is_date
}

/// A topology constraint from annotations.
pub fn topology<'a>(stated_by: impl Fn(&'static str) -> Option<&'a str>) -> Option<TopologyConstraint> {
    let stated = |key| stated_by(key).filter(|value| !value.is_empty()).map(ToOwned::to_owned);
    let constraint = TopologyConstraint {
        topology: stated(annotation::TOPOLOGY),
        required_topology_level: stated(annotation::TOPOLOGY_REQUIRED),
        preferred_topology_level: stated(annotation::TOPOLOGY_PREFERRED),
    };
    Some(constraint).filter(|constraint| *constraint != TopologyConstraint::default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_surely_text_is_text(text in "[a-zA-Z0-9./-]{1,12}|[0-9e.-]{1,9}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?i:yes|no|true|null|off|y)") {
            prop_assert!(!is_surely_text(&text) || is_text(&text), "{text}");
        }
    }

    #[test]
    fn owners_names_are_surely_text_and_what_yaml_takes_for_something_else_is_quoted() {
        for text in [
            "Pod",
            "v1",
            "batch/v1",
            "a-job",
            "0a1b2c3d-0000-4000-8000-0123456789ab",
            "12345678-1234-1234-1234-123456789012",
        ] {
            assert!(is_surely_text(text) && scalar(text) == text, "{text}");
        }
        for text in ["", "1e3", "123", "true", "No", "2026-11-28", "~", "0x1f"] {
            assert_eq!(scalar(text), format!("{text:?}"));
        }
    }
}
