//! The syntax of names of metrics and of their labels.

use std::collections::BTreeSet;

use crate::api::syntax::is_label_key;
use crate::components::queues::shown::{MetricLabel, OWN_LABELS};

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
