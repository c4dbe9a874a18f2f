//! Devices that pods claim: the objects of drivers and tenants.

use serde_json::{Value, json};

use crate::plan::{DEVICES, TEAMS};

const CLASS: &str = "device.example.com";
const TEMPLATE: &str = "one-device";
/// The names of claims that several pods may use begin with this.
pub const SHARED: &str = "shared-";

/// What is there from the beginning: the class, what drivers offer, and the templates.
pub fn installed() -> impl Iterator<Item = Value> {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{CLASS}'")}}]},
    });
    let templates = TEAMS.iter().map(|team| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": TEMPLATE, "namespace": team}, "spec": {"spec": one_device()},
        })
    });
    std::iter::once(class).chain(slices()).chain(templates)
}

fn one_device() -> Value {
    json!({"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": CLASS}}]}})
}

/// What the drivers of all nodes offer.
pub fn slices() -> impl Iterator<Item = Value> {
    (0..DEVICES.len()).map(slice)
}

/// What the driver of one of the nodes with such devices offers.
pub fn slice(at: usize) -> Value {
    let (node, count) = DEVICES[at];
    let devices: Vec<_> = (0..count)
        .map(|number| json!({"name": format!("device-{number}")}))
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-devices")},
        "spec": {
            "driver": CLASS, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    })
}

/// The claim of that name, which several pods may use.
pub fn shared(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace}, "spec": one_device(),
    })
}

/// Has a pod claim a device: by the claim of that name, or by one of its own.
pub fn claim(pod: &mut Value, shared: Option<&str>) {
    let by = match shared {
        Some(name) => json!({"name": "device", "resourceClaimName": name}),
        None => json!({"name": "device", "resourceClaimTemplateName": TEMPLATE}),
    };
    pod["spec"]["resourceClaims"] = json!([by]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "device"}]);
}
