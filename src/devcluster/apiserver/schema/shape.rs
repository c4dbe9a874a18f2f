//! Normalising an object: pruning fields that are not in the schema, filling in defaults.

use serde_json::{Map, Value};

use super::node::Node;

/// The fields of `metadata`; anything else in it is unknown.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Prunes a whole object or an embedded one, whose `apiVersion`, `kind` and `metadata` need no schema.
pub(super) fn prune_object(node: &Node, object: &mut Value, path: &str, pruned: &mut Vec<String>) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = fields.remove_entry("metadata");
    let identity = ["apiVersion", "kind"].map(|name| fields.remove_entry(name));
    prune_fields(node, fields, path, pruned);
    for (name, value) in identity.into_iter().flatten() {
        fields.insert(name, value);
    }
    if let Some((name, mut value)) = metadata {
        if let Some(metadata) = value.as_object_mut() {
            let at = child(path, "metadata");
            retain(metadata, &at, pruned, |field| METADATA.contains(&field));
        }
        fields.insert(name, value);
    }
}

/// Prunes any value.
pub(super) fn prune(node: &Node, value: &mut Value, path: &str, pruned: &mut Vec<String>) {
    match value {
        Value::Object(_) if node.embedded => prune_object(node, value, path, pruned),
        Value::Object(fields) => prune_fields(node, fields, path, pruned),
        Value::Array(elements) => {
            let Some(items) = &node.items else { return };
            for (i, element) in elements.iter_mut().enumerate() {
                prune(items, element, &format!("{path}[{i}]"), pruned);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn prune_fields(node: &Node, fields: &mut Map<String, Value>, path: &str, pruned: &mut Vec<String>) {
    if let Some(additional) = &node.additional {
        for (name, value) in fields.iter_mut() {
            prune(additional, value, &child(path, name), pruned);
        }
        return;
    }
    if !node.preserve_unknown {
        retain(fields, path, pruned, |name| node.properties.contains_key(name));
    }
    for (name, value) in fields.iter_mut() {
        if let Some(property) = node.properties.get(name) {
            prune(property, value, &child(path, name), pruned);
        }
    }
}

fn retain(fields: &mut Map<String, Value>, path: &str, pruned: &mut Vec<String>, known: impl Fn(&str) -> bool) {
    fields.retain(|name, _| {
        let keep = known(name);
        if !keep {
            pruned.push(child(path, name));
        }
        keep
    });
}

/// Fills in defaults, and drops nulls of fields that are not nullable.
pub(super) fn default(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &node.properties {
                let absent = fields
                    .get(name)
                    .is_none_or(|value| value.is_null() && !property.nullable);
                match &property.default {
                    Some(default) if absent => drop(fields.insert(name.clone(), default.clone())),
                    None if absent => drop(fields.remove(name)),
                    _ => {}
                }
                if let Some(value) = fields.get_mut(name) {
                    default(property, value);
                }
            }
            if let Some(additional) = &node.additional {
                fields.retain(|_, value| !value.is_null() || additional.nullable || additional.json_type.is_none());
                fields.values_mut().for_each(|value| default(additional, value));
            }
        }
        Value::Array(elements) => {
            if let Some(items) = &node.items {
                elements.iter_mut().for_each(|element| default(items, element));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The path of a field: `spec` at the root, `spec.name` below.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
