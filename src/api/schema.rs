//! Parts of the OpenAPI schema that cannot be derived from Rust's types: quantities, times, patterns, and Kubernetes' own types.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The text of a Kubernetes quantity.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The name of a label, with or without a prefix.
const LABEL_NAME_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// The text of a Go duration.
const GO_DURATION_PATTERN: &str = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// The text of a Go duration that may also use days and weeks.
const EXTENDED_DURATION_PATTERN: &str = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w))+)$";

/// The format of integers that the API calls int64. Those to which schemars gives this format lose it, since the API does not name a
/// format for them.
pub const INT64: &str = "api-int64";

/// A Go duration.
pub fn go_duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": GO_DURATION_PATTERN})
}

/// A Go duration that may also use days and weeks.
pub fn extended_duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": EXTENDED_DURATION_PATTERN})
}

/// An object whose values are such durations.
pub fn extended_duration_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"type": "string", "pattern": EXTENDED_DURATION_PATTERN}})
}

/// A Kubernetes quantity, as a string or a number.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    quantity_value().try_into().expect("an object is a schema")
}

/// An object whose values are quantities.
pub fn quantity_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": quantity_value()})
}

/// A point in time (RFC 3339).
pub fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// The status of a standard condition.
pub fn condition_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["True", "False", "Unknown"]})
}

/// The generation of an object.
pub fn generation(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": INT64, "minimum": 0})
}

/// The values of a PodGroup's preemptibility.
pub fn preemptibility(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["preemptible", "non-preemptible"]})
}

/// A number above 0 and up to 1.
pub fn ratio(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 1})
}

/// The name of a node label or of an alias for one.
pub fn label_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 316, "pattern": LABEL_NAME_PATTERN})
}

/// An object that the API server stores unchanged.
pub fn opaque(_: &mut SchemaGenerator) -> Schema {
    opaque_value().try_into().expect("an object is a schema")
}

/// A list of objects that the API server stores unchanged.
pub fn opaque_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": opaque_value()})
}

/// The rules on the levels of a Topology; the messages are part of the API.
pub fn topology_rules() -> Value {
    json!([
        {
            "rule": "self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)",
            "message": "nodeLabel structure is immutable; only aliases may be edited",
        },
        {
            "rule": "size(self.filter(i, size(self.filter(j, j.nodeLabel == i.nodeLabel)) > 1)) == 0",
            "message": "nodeLabel must be unique",
        },
        {
            "rule": "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            "message": "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        },
    ])
}

/// `resource.k8s.io/v1` AllocationResult.
pub fn allocation_result(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "allocationTimestamp": {"type": "string", "format": "date-time"},
            "devices": {
                "type": "object",
                "properties": {
                    "config": atomic_list(&allocated_configuration()),
                    "results": atomic_list(&allocated_device()),
                },
            },
            "nodeSelector": node_selector(),
        },
    })
}

/// A list of `resource.k8s.io/v1` DeviceRequest.
pub fn device_requests(_: &mut SchemaGenerator) -> Schema {
    let mut exactly = device_subrequest();
    exactly["properties"]["adminAccess"] = json!({"type": "boolean"});
    exactly["required"] = json!(["deviceClassName"]);
    let mut alternative = device_subrequest();
    alternative["properties"]["name"] = string();
    alternative["required"] = json!(["name", "deviceClassName"]);
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": string(), "exactly": exactly, "firstAvailable": atomic_list(&alternative)},
        },
    })
}

fn allocated_configuration() -> Value {
    json!({
        "type": "object",
        "required": ["source"],
        "properties": {
            "source": string(),
            "requests": atomic_list(&string()),
            "opaque": {
                "type": "object",
                "required": ["driver", "parameters"],
                "properties": {"driver": string(), "parameters": opaque_value()},
            },
        },
    })
}

fn allocated_device() -> Value {
    json!({
        "type": "object",
        "required": ["request", "driver", "pool", "device"],
        "properties": {
            "request": string(),
            "driver": string(),
            "pool": string(),
            "device": string(),
            "adminAccess": {"type": "boolean"},
            "tolerations": device_tolerations(),
            "bindingConditions": atomic_list(&string()),
            "bindingFailureConditions": atomic_list(&string()),
            "shareID": string(),
            "consumedCapacity": quantity_map_value(),
        },
    })
}

/// The fields that an exact request and each of its alternatives have in common.
fn device_subrequest() -> Value {
    let selector = json!({
        "type": "object",
        "properties": {"cel": {"type": "object", "required": ["expression"], "properties": {"expression": string()}}},
    });
    json!({
        "type": "object",
        "properties": {
            "deviceClassName": string(),
            "allocationMode": string(),
            "count": {"type": "integer", "format": INT64},
            "selectors": atomic_list(&selector),
            "tolerations": device_tolerations(),
            "capacity": {"type": "object", "properties": {"requests": quantity_map_value()}},
        },
    })
}

fn device_tolerations() -> Value {
    atomic_list(&json!({
        "type": "object",
        "properties": {
            "key": string(),
            "operator": {"type": "string", "default": "Equal"},
            "value": string(),
            "effect": string(),
            "tolerationSeconds": {"type": "integer", "format": INT64},
        },
    }))
}

fn node_selector() -> Value {
    let requirements = atomic_list(&json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {"key": string(), "operator": string(), "values": atomic_list(&string())},
    }));
    let term = json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {"matchExpressions": requirements, "matchFields": requirements},
    });
    json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "required": ["nodeSelectorTerms"],
        "properties": {"nodeSelectorTerms": atomic_list(&term)},
    })
}

fn string() -> Value {
    json!({"type": "string"})
}

fn atomic_list(items: &Value) -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": items})
}

fn opaque_value() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn quantity_value() -> Value {
    json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY_PATTERN, "x-kubernetes-int-or-string": true})
}

fn quantity_map_value() -> Value {
    json!({"type": "object", "additionalProperties": quantity_value()})
}
