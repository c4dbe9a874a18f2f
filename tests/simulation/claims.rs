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
    /// One of any model, and one of the fast one, by two requests.
    AnyAndFast,
    /// Two of the fast model, else one of any.
    FastOrAny,
    /// All of the node.
    All,
}

impl Wants {
    pub const ALL: [Self; 7] = [
        Self::One,
        Self::Two,
        Self::Fast,
        Self::Pair,
        Self::AnyAndFast,
        Self::FastOrAny,
        Self::All,
    ];

    /// The template of such claims.
    fn template(self) -> &'static str {
        match self {
            Self::One => "one-device",
            Self::Two => "two-devices",
            Self::Fast => "fast-device",
            Self::Pair => "pair-of-devices",
            Self::AnyAndFast => "any-device-and-a-fast-one",
            Self::FastOrAny => "fast-devices-or-any",
            Self::All => "all-devices",
        }
    }

    fn spec(self) -> Value {
        let any = |count: u32| json!({"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count});
        let fast = |count: u32| {
            let mut wanted = any(count);
            let expression = format!("device.attributes['{CLASS}'].model == 'fast'");
            wanted["selectors"] = json!([{"cel": {"expression": expression}}]);
            wanted
        };
        let named = |name: &str, mut wanted: Value| {
            wanted["name"] = json!(name);
            wanted
        };
        let one = |exactly: Value| json!([{"name": self.request(), "exactly": exactly}]);
        let requests = match self {
            Self::One => one(any(1)),
            Self::Two | Self::Pair => one(any(2)),
            Self::Fast => one(fast(1)),
            Self::AnyAndFast => {
                json!([{"name": self.request(), "exactly": any(1)}, {"name": "fast", "exactly": fast(1)}])
            }
            Self::FastOrAny => {
                json!([{"name": self.request(), "firstAvailable": [named("fast", fast(2)), named("any", any(1))]}])
            }
            Self::All => one(json!({"deviceClassName": CLASS, "allocationMode": "All"})),
        };
        let mut devices = json!({"requests": requests});
        if self == Self::Pair {
            devices["constraints"] = json!([{"requests": [self.request()], "matchAttribute": format!("{CLASS}/numa")}]);
        }
        json!({"devices": devices})
    }

    /// The name of the first request, by which a stored claim is known.
    fn request(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Two => "two",
            Self::Fast => "fast-one",
            Self::Pair => "pair",
            Self::AnyAndFast => "any",
            Self::FastOrAny => "fast-or-any",
            Self::All => "all",
        }
    }

    /// What a stored claim asks for.
    pub fn of(spec: &Value) -> Self {
        let name = &spec["devices"]["requests"][0]["name"];
        let known = Self::ALL.into_iter().find(|wants| *name == wants.request());
        known.unwrap_or_default()
    }

    /// Whether these devices of a node are what is asked for.
    pub fn are(self, node: &str, devices: &[&str]) -> bool {
        let fast = devices.iter().filter(|device| is_fast(number(device))).count();
        let count = match self {
            Self::One | Self::Fast => 1,
            Self::Two | Self::Pair | Self::AnyAndFast => 2,
            Self::FastOrAny if fast == 2 => 2,
            Self::FastOrAny => 1,
            Self::All => offered(node),
        };
        devices.len() == count && self.can_be_of(node, devices)
    }

    /// Whether what is asked for can be had from these free devices of a node.
    pub fn can_be_of(self, node: &str, devices: &[&str]) -> bool {
        let numas = devices.iter().map(|device| numa(number(device)));
        let pairs = |numa: u32| numas.clone().filter(|other| *other == numa).count() > 1;
        let has_fast = || devices.iter().any(|device| is_fast(number(device)));
        match self {
            Self::One | Self::FastOrAny => !devices.is_empty(),
            Self::Two => devices.len() >= 2,
            Self::Fast => has_fast(),
            Self::Pair => numas.clone().any(pairs),
            Self::AnyAndFast => devices.len() >= 2 && has_fast(),
            Self::All => !devices.is_empty() && devices.len() == offered(node),
        }
    }
}

/// How many devices the driver of a node offers.
fn offered(node: &str) -> usize {
    let known = DEVICES.iter().find(|(name, _)| *name == node);
    known.map_or(0, |(_, count)| *count as usize)
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
