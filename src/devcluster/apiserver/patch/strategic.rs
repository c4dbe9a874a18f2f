//! Strategic merge patch: a merge patch that merges some lists of the built-in types by the keys of their elements.
//! A table has these lists with their keys; every other list is replaced.

use serde_json::{Map, Value};

use super::PatchError;

type Fields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch to a built-in object of `kind` (`Pod`, `Deployment`, …). Custom resources have no
/// merge keys, so their callers answer 415 instead of calling this.
pub fn strategic(kind: &str, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err(PatchError::Malformed(
            "error decoding patch: a strategic merge patch must be an object".to_owned(),
        ));
    };
    Ok(Value::Object(merge_fields(kind, "", original.clone(), patch)?))
}

/// How a list field merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListMerge {
    /// Elements are objects that are identified by this field.
    ByKey(&'static str),
    /// Elements are primitives; the list is a set.
    Set,
    /// The patch replaces the list.
    Replace,
}

/// The merge rule of list `field` inside `parent`, in an object of `kind`.
fn list_merge(kind: &str, parent: &str, field: &str) -> ListMerge {
    use ListMerge::{ByKey, Replace, Set};
    match field {
        "finalizers" if parent == "metadata" => Set,
        "ownerReferences" if parent == "metadata" => ByKey("uid"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "resourceClaims"
        | "schedulingGates"
        | "resourceClaimStatuses" => ByKey("name"),
        "imagePullSecrets" if kind != "ServiceAccount" => ByKey("name"),
        "secrets" if kind == "ServiceAccount" => ByKey("name"),
        "volumeMounts" => ByKey("mountPath"),
        "volumeDevices" => ByKey("devicePath"),
        "ports" if kind == "Service" => ByKey("port"),
        "ports" => ByKey("containerPort"),
        "hostAliases" | "podIPs" | "hostIPs" => ByKey("ip"),
        "topologySpreadConstraints" => ByKey("topologyKey"),
        "conditions" if kind != "CustomResourceDefinition" => ByKey("type"),
        "addresses" if kind == "Node" => ByKey("type"),
        "podCIDRs" if kind == "Node" => Set,
        "webhooks" | "matchConditions" if kind.ends_with("WebhookConfiguration") => ByKey("name"),
        "variables" | "matchConditions" if kind == "ValidatingAdmissionPolicy" => ByKey("name"),
        "reservedFor" if kind == "ResourceClaim" => ByKey("uid"),
        _ => Replace,
    }
}

fn merge_fields(kind: &str, parent: &str, mut original: Fields, patch: &Fields) -> Result<Fields, PatchError> {
    match directive(patch)? {
        Some("delete") => return Ok(Fields::new()),
        Some("replace") => original.clear(),
        _ => {}
    }
    if let Some(retained) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut original, retained, patch)?;
    }
    for (name, change) in patch {
        if let Some(field) = name.strip_prefix(DELETE_PRIMITIVES) {
            delete_primitives(&mut original, field, change)?;
        }
    }
    for (name, change) in patch {
        if is_directive(name) {
            continue;
        }
        if change.is_null() {
            original.remove(name);
            continue;
        }
        let before = original.remove(name);
        let merged = merge_value(kind, parent, name, before, change)?;
        original.insert(name.clone(), merged);
    }
    for (name, order) in patch {
        if let Some(field) = name.strip_prefix(ELEMENT_ORDER) {
            order_elements(kind, parent, field, &mut original, order)?;
        }
    }
    Ok(original)
}

fn merge_value(
    kind: &str,
    parent: &str,
    name: &str,
    before: Option<Value>,
    change: &Value,
) -> Result<Value, PatchError> {
    match change {
        Value::Object(change) => {
            let before = match before {
                Some(Value::Object(fields)) => fields,
                _ => Fields::new(),
            };
            Ok(Value::Object(merge_fields(kind, name, before, change)?))
        }
        Value::Array(change) => {
            let before = match before {
                Some(Value::Array(elements)) => elements,
                _ => Vec::new(),
            };
            merge_list(kind, name, list_merge(kind, parent, name), before, change)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(change.clone()),
    }
}

fn merge_list(
    kind: &str,
    name: &str,
    rule: ListMerge,
    before: Vec<Value>,
    change: &[Value],
) -> Result<Value, PatchError> {
    match rule {
        ListMerge::Replace => Ok(Value::Array(
            change.iter().filter(|element| !is_marker(element)).cloned().collect(),
        )),
        ListMerge::Set => {
            let mut merged = before.clone();
            for element in change {
                if !merged.contains(element) {
                    merged.push(element.clone());
                }
            }
            Ok(Value::Array(in_order(merged, change, &before, None)))
        }
        ListMerge::ByKey(key) => merge_by_key(kind, name, key, before, change),
    }
}

fn merge_by_key(kind: &str, name: &str, key: &str, before: Vec<Value>, change: &[Value]) -> Result<Value, PatchError> {
    let replace = change
        .iter()
        .any(|element| is_marker(element) && element[DIRECTIVE] == "replace");
    let mut merged = if replace { Vec::new() } else { before.clone() };
    for element in change {
        let Value::Object(fields) = element else {
            return Err(PatchError::Unprocessable(format!(
                "{name}: an element of the patch is not an object"
            )));
        };
        if is_marker(element) {
            continue;
        }
        let Some(identity) = fields.get(key) else {
            return Err(PatchError::Unprocessable(format!(
                "map: {element} does not contain declared merge key: {key}"
            )));
        };
        let position = merged.iter().position(|candidate| candidate.get(key) == Some(identity));
        if directive(fields)? == Some("delete") {
            merged.retain(|candidate| candidate.get(key) != Some(identity));
            continue;
        }
        let old = position
            .and_then(|at| merged[at].as_object().cloned())
            .unwrap_or_default();
        let new = Value::Object(merge_fields(kind, name, old, fields)?);
        match position {
            Some(at) => merged[at] = new,
            None => merged.push(new),
        }
    }
    Ok(Value::Array(in_order(merged, change, &before, Some(key))))
}

/// Orders a merged list: elements named in `wanted` in that order, the others as in `before`, interleaved so that an
/// element of `before` stays in front of a wanted one that it preceded.
fn in_order(merged: Vec<Value>, wanted: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let rank = |list: &[Value], element: &Value| {
        list.iter().position(|candidate| match key {
            Some(key) => candidate.get(key) == element.get(key),
            None => candidate == element,
        })
    };
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|element| rank(wanted, element).is_some());
    named.sort_by_key(|element| rank(wanted, element));
    others.sort_by_key(|element| rank(before, element));
    let mut ordered = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(wanted), Some(other)) = (named.peek(), others.peek()) {
        let other_first = match (rank(before, other), rank(before, wanted)) {
            (Some(left), Some(right)) => left < right,
            _ => false,
        };
        ordered.extend(if other_first { others.next() } else { named.next() });
    }
    ordered.extend(named);
    ordered.extend(others);
    ordered
}

fn order_elements(kind: &str, parent: &str, field: &str, fields: &mut Fields, order: &Value) -> Result<(), PatchError> {
    let Value::Array(order) = order else {
        return Err(PatchError::Malformed(format!("{ELEMENT_ORDER}{field} must be a list")));
    };
    let key = match list_merge(kind, parent, field) {
        ListMerge::ByKey(key) => Some(key),
        ListMerge::Set => None,
        ListMerge::Replace => return Ok(()),
    };
    if let Some(Value::Array(list)) = fields.get_mut(field) {
        let before = list.clone();
        *list = in_order(std::mem::take(list), order, &before, key);
    }
    Ok(())
}

fn retain_keys(original: &mut Fields, retained: &Value, patch: &Fields) -> Result<(), PatchError> {
    let Some(keys) = retained.as_array() else {
        return Err(PatchError::Malformed(format!(
            "{RETAIN_KEYS} must be a list of field names"
        )));
    };
    if patch
        .iter()
        .any(|(name, change)| !is_directive(name) && !change.is_null() && !keys.iter().any(|key| key == name))
    {
        return Err(PatchError::Malformed(format!(
            "{RETAIN_KEYS} must hold every field of the patch"
        )));
    }
    original.retain(|name, _| keys.iter().any(|key| key == name));
    Ok(())
}

fn delete_primitives(original: &mut Fields, field: &str, doomed: &Value) -> Result<(), PatchError> {
    let Value::Array(doomed) = doomed else {
        return Err(PatchError::Malformed(format!(
            "{DELETE_PRIMITIVES}{field} must be a list"
        )));
    };
    if let Some(Value::Array(list)) = original.get_mut(field) {
        list.retain(|element| !doomed.contains(element));
    }
    Ok(())
}

fn directive(fields: &Fields) -> Result<Option<&str>, PatchError> {
    match fields.get(DIRECTIVE) {
        None => Ok(None),
        Some(Value::String(text)) if matches!(text.as_str(), "delete" | "replace" | "merge") => Ok(Some(text)),
        Some(other) => Err(PatchError::Unprocessable(format!("unknown patch type: {other}"))),
    }
}

fn is_directive(name: &str) -> bool {
    name == DIRECTIVE || name == RETAIN_KEYS || name.starts_with(DELETE_PRIMITIVES) || name.starts_with(ELEMENT_ORDER)
}

/// An element that only says how the list is patched: `{$patch: replace}`.
fn is_marker(element: &Value) -> bool {
    element
        .as_object()
        .is_some_and(|fields| fields.len() == 1 && fields.contains_key(DIRECTIVE))
}
