//! The syntax of names, labels and names of metrics.

use std::collections::BTreeSet;

use crate::components::queues::shown::{MetricLabel, OWN_LABELS};

/// Whether it is a valid name of a Kubernetes object: parts of lower-case letters, digits and '-', separated by '.', at most 253 characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inside = |c: char| ends(c) || c == '-';
    let is_part = |part: &str| part.starts_with(ends) && part.ends_with(ends) && part.chars().all(inside);
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether it is a valid label key, such as `example.com/queue`.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_name(prefix) && is_label_word(name),
        None => is_label_word(text),
    }
}

/// Whether it is a valid label value and not empty.
#[must_use]
pub fn is_label_word(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: char| c.is_ascii_alphanumeric();
    !text.is_empty() && text.len() <= 63 && text.chars().all(inside) && text.starts_with(ends) && text.ends_with(ends)
}

/// Whether it is valid in Prometheus as the prefix of a metric's name and as a label.
#[must_use]
pub fn is_metric_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What is wrong with labels of queues that become labels of their metrics. Prometheus refuses a page with a series that has two labels of one name.
#[must_use]
pub fn wrong_metric_labels(labels: &[MetricLabel]) -> Vec<String> {
    let mut taken: BTreeSet<&str> = OWN_LABELS.into();
    let mut wrong = Vec::new();
    for MetricLabel { label, shown_as, .. } in labels {
        if !(is_label_key(label) && is_metric_word(shown_as)) || shown_as.starts_with("__") {
            wrong.push(format!(
                "{label}={shown_as}: not a label key and a label name of Prometheus"
            ));
        } else if !taken.insert(shown_as) {
            wrong.push(format!(
                "{label}={shown_as}: the metrics have a label {shown_as} already"
            ));
        }
    }
    wrong
}
