//! Objects of `resource.k8s.io/v1beta1` in the form of `v1`. They differ in two places: what a request of a claim asks for stands in the request itself, and
//! what is known of a device stands one level below it. `v1beta2` has the form of `v1`.

use serde_json::{Map, Value};

/// A slice as `v1` writes it, if this is one of the old form.
#[must_use]
pub fn slice(text: &str) -> Option<Value> {
    if !text.contains("\"basic\"") {
        return None;
    }
    let mut slice: Value = serde_json::from_str(text).ok()?;
    let devices = slice.pointer_mut("/spec/devices")?.as_array_mut()?;
    let mut changed = false;
    for device in devices.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            device.extend(basic);
            changed = true;
        }
    }
    changed.then_some(slice)
}

/// A claim as `v1` writes it, if this is one of the old form.
#[must_use]
pub fn claim(text: &str) -> Option<Value> {
    if !text.contains("\"deviceClassName\"") {
        return None;
    }
    let mut claim: Value = serde_json::from_str(text).ok()?;
    let requests = claim.pointer_mut("/spec/devices/requests")?.as_array_mut()?;
    let mut changed = false;
    for request in requests.iter_mut().filter_map(Value::as_object_mut) {
        if !request.contains_key("deviceClassName") {
            continue;
        }
        let (own, exactly): (Map<_, _>, Map<_, _>) = std::mem::take(request)
            .into_iter()
            .partition(|(field, _)| matches!(field.as_str(), "name" | "firstAvailable"));
        *request = own;
        // A request with alternatives has none of its own fields filled in.
        if exactly
            .get("deviceClassName")
            .and_then(Value::as_str)
            .is_some_and(|class| !class.is_empty())
        {
            request.insert("exactly".to_owned(), Value::Object(exactly));
        }
        changed = true;
    }
    changed.then_some(claim)
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
