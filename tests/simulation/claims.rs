//! Devices that pods claim: the objects of drivers and tenants.

use serde_json::{Value, json};

use crate::plan::{CARDS, TEAMS};

const CLASS: &str = "card.example.com";
const TEMPLATE: &str = "one-card";
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
            "metadata": {"name": TEMPLATE, "namespace": team}, "spec": {"spec": one_card()},
        })
    });
    std::iter::once(class).chain(slices()).chain(templates)
}

fn one_card() -> Value {
    json!({"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": CLASS}}]}})
}

/// What the drivers of all nodes offer.
pub fn slices() -> impl Iterator<Item = Value> {
    (0..CARDS.len()).map(slice)
}

/// What the driver of one of the nodes with such devices offers.
pub fn slice(at: usize) -> Value {
    let (node, count) = CARDS[at];
    let devices: Vec<_> = (0..count)
        .map(|number| json!({"name": format!("card-{number}")}))
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-cards")},
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
        "metadata": {"name": name, "namespace": namespace}, "spec": one_card(),
    })
}

/// Has a pod claim a device: by the claim of that name, or by one of its own.
pub fn claim(pod: &mut Value, shared: Option<&str>) {
    let by = match shared {
        Some(name) => json!({"name": "card", "resourceClaimName": name}),
        None => json!({"name": "card", "resourceClaimTemplateName": TEMPLATE}),
    };
    pod["spec"]["resourceClaims"] = json!([by]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "card"}]);
}
