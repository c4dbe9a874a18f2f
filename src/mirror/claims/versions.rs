//! Converts objects of `resource.k8s.io/v1beta1` to `v1`. They differ in two places: the fields of a claim's request are in the request itself, and
//! the fields of a device are one level below it. `v1beta2` has the form of `v1`.

use serde_json::{Map, Value};

/// Start of the `apiVersion` of both older versions, which watch events have and list items lack.
const OLD: &str = "\"resource.k8s.io/v1beta";

/// A class as `v1` writes it, if this is one of an older version.
#[must_use]
pub fn class(text: &str) -> Option<Value> {
    renamed(text, false)
}

/// A slice as `v1` writes it, if this is one of an older version.
#[must_use]
pub fn slice(text: &str) -> Option<Value> {
    let mut slice = renamed(text, text.contains("\"basic\""))?;
    let devices = slice.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            device.extend(basic);
        }
    }
    Some(slice)
}

/// A claim as `v1` writes it, if this is one of an older version.
#[must_use]
pub fn claim(text: &str) -> Option<Value> {
    let asks_at_once = text.contains("\"deviceClassName\"") && !text.contains("\"exactly\"");
    let mut claim = renamed(text, asks_at_once)?;
    let mut changed = text.contains(OLD);
    let requests = claim
        .pointer_mut("/spec/devices/requests")
        .and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !request.contains_key("deviceClassName") {
            continue;
        }
        let (own, exactly): (Map<_, _>, Map<_, _>) = std::mem::take(request)
            .into_iter()
            .partition(|(field, _)| matches!(field.as_str(), "name" | "firstAvailable"));
        *request = own;
        // A request with alternatives has none of its own fields filled in.
        let class = exactly.get("deviceClassName").and_then(Value::as_str);
        if class.is_some_and(|class| !class.is_empty()) {
            request.insert("exactly".to_owned(), Value::Object(exactly));
        }
        changed = true;
    }
    changed.then_some(claim)
}

/// The object with `apiVersion` v1, if it is of an older version, or `suspected` to be.
fn renamed(text: &str, suspected: bool) -> Option<Value> {
    if !suspected && !text.contains(OLD) {
        return None;
    }
    let mut object: Value = serde_json::from_str(text).ok()?;
    if let Some(version) = object.get_mut("apiVersion") {
        *version = "resource.k8s.io/v1".into();
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_of_the_old_form_are_read_as_those_of_the_new() {
        let of = |device: Value| json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n", "devices": [device]}});
        let old = of(
            json!({"name": "gpu-0", "basic": {"attributes": {"model": {"string": "A"}}, "capacity": {"memory": {"value": "40Gi"}}}}),
        );
        let new = of(
            json!({"name": "gpu-0", "attributes": {"model": {"string": "A"}}, "capacity": {"memory": {"value": "40Gi"}}}),
        );
        assert_eq!(slice(&old.to_string()), Some(new.clone()));
        assert_eq!(slice(&new.to_string()), None);
        serde_json::from_value::<ResourceSlice>(new).unwrap();
    }

    #[test]
    fn the_version_in_watch_events_is_converted() {
        for version in ["v1beta1", "v1beta2"] {
            let of = |version: &str, kind: &str| json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": kind, "metadata": {"name": "a"}, "spec": {}});
            assert_eq!(
                class(&of(version, "DeviceClass").to_string()),
                Some(of("v1", "DeviceClass"))
            );
            assert_eq!(
                slice(&of(version, "ResourceSlice").to_string()),
                Some(of("v1", "ResourceSlice"))
            );
            assert_eq!(
                claim(&of(version, "ResourceClaim").to_string()),
                Some(of("v1", "ResourceClaim"))
            );
            assert_eq!(claim(&of("v1", "ResourceClaim").to_string()), None);
        }
    }

    #[test]
    fn requests_of_the_old_form_are_read_as_those_of_the_new() {
        let of = |request: Value| json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}});
        let old = of(json!({"name": "a", "deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"}));
        let new =
            of(json!({"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"}}));
        assert_eq!(claim(&old.to_string()), Some(new.clone()));
        assert_eq!(claim(&new.to_string()), None);
        let alternatives = json!([{"name": "x", "deviceClassName": "gpu"}]);
        let old = of(json!({"name": "a", "deviceClassName": "", "firstAvailable": alternatives}));
        let new = of(json!({"name": "a", "firstAvailable": alternatives}));
        assert_eq!(claim(&old.to_string()), Some(new.clone()));
        assert_eq!(claim(&new.to_string()), None);
        serde_json::from_value::<ResourceClaim>(new).unwrap();
        assert_eq!(claim("{\"deviceClassName\""), None, "no JSON");
    }
}
