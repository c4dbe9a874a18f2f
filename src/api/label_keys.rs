//! `matchLabelKeys` and `mismatchLabelKeys` of pods: keys of labels whose values, those of the new pod, the API server adds to the label selector beside
//! them when the pod is created: of terms of pod affinity and anti-affinity, and, from Kubernetes 1.34 on, of topology spread constraints.

use serde_json::{Value, json};

/// The fields with keys, and the operators of the requirements that they become.
const KEYS: [(&str, &str); 2] = [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")];

/// Adds the requirements of all label keys of a new pod to its selectors. A pod that the API server has created has them already.
pub fn add_to_selectors(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let Some(spec) = pod.get_mut("spec") else { return };
    for constraint in entries(spec, "topologySpreadConstraints") {
        add(constraint, &labels);
    }
    let Some(affinity) = spec.get_mut("affinity") else {
        return;
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = affinity.get_mut(kind) else { continue };
        for term in entries(terms, "requiredDuringSchedulingIgnoredDuringExecution") {
            add(term, &labels);
        }
        for preferred in entries(terms, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = preferred.get_mut("podAffinityTerm") {
                add(term, &labels);
            }
        }
    }
}

/// The entries of a list; none if it is absent.
fn entries<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Keys of labels that the pod does not have are ignored, and so are all keys beside no selector, which the API server refuses.
fn add(term: &mut Value, labels: &Value) {
    let mut requirements = Vec::new();
    for (field, operator) in KEYS {
        for key in term[field].as_array().into_iter().flatten() {
            let value = key.as_str().and_then(|key| labels.get(key)).and_then(Value::as_str);
            if let Some(value) = value {
                requirements.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if requirements.is_empty() {
        return;
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else {
        return;
    };
    let expressions = selector.entry("matchExpressions").or_insert(Value::Null);
    match expressions.as_array_mut() {
        Some(expressions) => expressions.extend(requirements),
        None => *expressions = Value::Array(requirements),
    }
}

#[cfg(test)]
mod tests;
