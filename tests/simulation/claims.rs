//! Devices that pods claim: the objects of drivers and tenants.

use serde_json::{Value, json};

use crate::plan::{DEVICES, TEAMS};

const CLASS: &str = "device.example.com";
/// The names of claims that several pods may use begin with this.
pub const SHARED: &str = "shared-";

/// What a claim asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wants {
    #[default]
    One,
    Two,
    /// One of the fast model.
    Fast,
    /// Two of the same NUMA node.
    Pair,
}

impl Wants {
    pub const ALL: [Self; 4] = [Self::One, Self::Two, Self::Fast, Self::Pair];

    /// The template of such claims.
    fn template(self) -> &'static str {
        match self {
            Self::One => "one-device",
            Self::Two => "two-devices",
            Self::Fast => "fast-device",
            Self::Pair => "pair-of-devices",
        }
    }

    fn count(self) -> usize {
        match self {
            Self::One | Self::Fast => 1,
            Self::Two | Self::Pair => 2,
        }
    }

    fn spec(self) -> Value {
        let mut exactly = json!({"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": self.count()});
        if self == Self::Fast {
            let fast = format!("device.attributes['{CLASS}'].model == 'fast'");
            exactly["selectors"] = json!([{"cel": {"expression": fast}}]);
        }
        let mut devices = json!({"requests": [{"name": "device", "exactly": exactly}]});
        if self == Self::Pair {
            devices["constraints"] = json!([{"requests": ["device"], "matchAttribute": format!("{CLASS}/numa")}]);
        }
        json!({"devices": devices})
    }

    /// What a stored claim asks for.
    pub fn of(spec: &Value) -> Self {
        let devices = &spec["devices"];
        let exactly = &devices["requests"][0]["exactly"];
        let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
        match exactly["count"].as_u64() {
            Some(2) if is_empty(&devices["constraints"]) => Self::Two,
            Some(2) => Self::Pair,
            _ if is_empty(&exactly["selectors"]) => Self::One,
            _ => Self::Fast,
        }
    }

    /// Whether these devices of one node are what is asked for.
    pub fn are(self, devices: &[&str]) -> bool {
        devices.len() == self.count() && self.can_be_of(devices)
    }

    /// Whether what is asked for can be had from these free devices of one node.
    pub fn can_be_of(self, devices: &[&str]) -> bool {
        let numas = devices.iter().map(|device| numa(number(device)));
        let pairs = |numa: u32| numas.clone().filter(|other| *other == numa).count() > 1;
        match self {
            Self::One | Self::Two => devices.len() >= self.count(),
            Self::Fast => devices.iter().any(|device| is_fast(number(device))),
            Self::Pair => numas.clone().any(pairs),
        }
    }
}

/// The number in the name of a device.
fn number(device: &str) -> u32 {
    let (_, number) = device.rsplit_once('-').unwrap_or_default();
    number.parse().unwrap_or(0)
}

fn is_fast(device: u32) -> bool {
    device.is_multiple_of(2)
}

fn numa(device: u32) -> u32 {
    device / 2
}

/// What is there from the beginning: the class, what drivers offer, and the templates.
pub fn installed() -> impl Iterator<Item = Value> {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{CLASS}'")}}]},
    });
    let of_team = |team: &'static &str| {
        Wants::ALL.into_iter().map(move |wants| {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": wants.template(), "namespace": team}, "spec": {"spec": wants.spec()},
            })
        })
    };
    let templates = TEAMS.iter().flat_map(of_team);
    std::iter::once(class).chain(slices()).chain(templates)
}

/// What the drivers of all nodes offer.
pub fn slices() -> impl Iterator<Item = Value> {
    (0..DEVICES.len()).map(slice)
}

/// What the driver of one of the nodes with such devices offers.
pub fn slice(at: usize) -> Value {
    let (node, count) = DEVICES[at];
    let device = |number: u32| {
        let model = if is_fast(number) { "fast" } else { "slow" };
        let attributes = json!({"model": {"string": model}, "numa": {"int": numa(number)}});
        json!({"name": format!("device-{number}"), "attributes": attributes})
    };
    let devices: Vec<_> = (0..count).map(device).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-devices")},
        "spec": {
            "driver": CLASS, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    })
}

/// The claim of that name, which several pods may use.
pub fn shared(name: &str, namespace: &str, wants: Wants) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace}, "spec": wants.spec(),
    })
}

/// Has a pod claim devices: by the claim of that name, or by one of its own.
pub fn claim(pod: &mut Value, shared: Option<&str>, wants: Wants) {
    let by = match shared {
        Some(name) => json!({"name": "device", "resourceClaimName": name}),
        None => json!({"name": "device", "resourceClaimTemplateName": wants.template()}),
    };
    pod["spec"]["resourceClaims"] = json!([by]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "device"}]);
}
