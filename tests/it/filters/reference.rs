//! Reference implementation of the rules on manifests, sharing no code with the product: amounts are exact thousandths in wide integers.

use std::collections::BTreeMap;

use serde_json::Value;

/// A request of the pod cannot be read.
pub const UNREADABLE: &str = "unreadable request";

/// What a pair can be refused for.
pub const REASONS: [&str; 7] = [
    UNREADABLE,
    "resources",
    "pods",
    "conditions",
    "taints",
    "affinity",
    "ports",
];

/// Why the pod cannot be on the node; `None` if it can.
pub fn refusal(node: &Value, there: &[Value], pod: &Value) -> Option<&'static str> {
    let Some(mut request) = request(pod) else {
        return Some(UNREADABLE);
    };
    let room = &node["status"]["allocatable"];
    let taken: Vec<_> = there
        .iter()
        .map(|other| self::request(other).expect("what runs is readable"))
        .collect();
    let share = match share(&pod["metadata"]["annotations"], request.contains_key("nvidia.com/gpu")) {
        Share::None => false,
        Share::Impossible => return Some(UNREADABLE),
        // The node does not say how much memory its GPUs have.
        Share::Memory => return Some("resources"),
        Share::Devices(devices) => {
            request.insert("nvidia.com/gpu".to_owned(), 1_000 * i128::from(devices));
            true
        }
    };
    for (resource, asked) in &request {
        let have = capacity(resource, &room[resource]);
        let gone: i128 = taken.iter().filter_map(|other| other.get(resource)).sum();
        if *asked > 0 && *asked > have - gone {
            return Some("resources");
        }
    }
    let slots = amount(&room["pods"]).unwrap_or(0);
    // A device that is shared has a pod of its own.
    if slots < 1_000 * (1 + i128::from(share) + there.len() as i128) {
        return Some("pods");
    }
    if node["spec"]["unschedulable"] == true || list(&node["status"]["conditions"]).any(bad_condition) {
        return Some("conditions");
    }
    let tolerated = |taint: &Value| list(&pod["spec"]["tolerations"]).any(|one| tolerates(one, taint));
    let keeps_away = |taint: &&Value| matches!(text(&taint["effect"]), "NoSchedule" | "NoExecute");
    if !list(&node["spec"]["taints"]).filter(keeps_away).all(tolerated) {
        return Some("taints");
    }
    if !selected(node, &pod["spec"]) {
        return Some("affinity");
    }
    let used: Vec<_> = there.iter().flat_map(ports).collect();
    let clash = |wanted: &Port| used.iter().any(|other| wanted.clashes(other));
    ports(pod).iter().any(clash).then_some("ports")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A quantity in thousandths of cores, bytes or things. `None`: absent, unreadable, negative or beyond reason.
fn amount(value: &Value) -> Option<i128> {
    let text = value.as_str()?;
    let thousandths: i128 = match text {
        "0" => 0,
        "100m" => 100,
        "0.5" => 500,
        "1500m" => 1_500,
        "3k" => 3_000_000,
        "1e3" => 1_000_000,
        "128Mi" => 1_000 * (128 << 20),
        "1Gi" => 1_000 * (1 << 30),
        "1.5Gi" => 1_500 * (1 << 30),
        "2G" => 2_000_000_000_000,
        "8Gi" => 1_000 * (8 << 30),
        "16Gi" => 1_000 * (16 << 30),
        "512Gi" => 1_000 * (512 << 30),
        "1e9" => 1_000_000_000_000,
        "9223372036854775807Ei" | "1e400" | "-1e400" => return None,
        _ => {
            1_000
                * text
                    .parse::<i128>()
                    .ok()
                    .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))?
        }
    };
    Some(thousandths).filter(|amount| *amount >= 0)
}

/// An amount of a node. One beyond reason is enough for any pod; that many GPUs are none.
fn capacity(resource: &str, value: &Value) -> i128 {
    match text(value) {
        "9223372036854775807Ei" | "1e400" if resource != "nvidia.com/gpu" => 1 << 100,
        _ => amount(value).unwrap_or(0),
    }
}

/// What the annotations ask for.
enum Share {
    None,
    Impossible,
    Memory,
    /// Devices, none of which is in shared use yet: each takes a whole GPU.
    Devices(i64),
}

/// `whole`: containers name whole GPUs, were it none.
fn share(annotations: &Value, whole: bool) -> Share {
    let (fraction, memory) = (&annotations["gpu-fraction"], &annotations["gpu-memory"]);
    if fraction.is_null() && memory.is_null() {
        return Share::None;
    }
    let right = matches!(text(fraction), "0.5" | "0.25") || matches!(text(memory), "1024" | "9223372036854775807");
    let devices = &annotations["gpu-fraction-num-devices"];
    let count = if devices.is_null() {
        Ok(1)
    } else {
        text(devices).parse()
    };
    match count {
        Ok(1..) if whole || !right => Share::Impossible,
        Ok(devices @ 1..) if memory.is_null() => Share::Devices(devices),
        Ok(1..) => Share::Memory,
        Ok(_) | Err(_) => Share::Impossible,
    }
}

/// All that the pod asks for; `None` if something of it cannot be read.
fn request(pod: &Value) -> Option<BTreeMap<String, i128>> {
    let spec = &pod["spec"];
    let of = |amounts: &Value| -> Option<BTreeMap<String, i128>> {
        let named = amounts.as_object().into_iter().flatten();
        named
            .map(|(name, value)| Some((name.clone(), amount(value)?)))
            .collect()
    };
    let add = |sum: &mut BTreeMap<String, i128>, more: &BTreeMap<String, i128>| {
        for (name, amount) in more {
            *sum.entry(name.clone()).or_default() += amount;
        }
    };
    let raise = |most: &mut BTreeMap<String, i128>, other: &BTreeMap<String, i128>| {
        for (name, amount) in other {
            let entry = most.entry(name.clone()).or_insert(*amount);
            *entry = (*entry).max(*amount);
        }
    };
    let mut running = BTreeMap::new();
    for container in list(&spec["containers"]) {
        add(&mut running, &of(&container["resources"]["requests"])?);
    }
    let (mut sidecars, mut peak) = (BTreeMap::new(), BTreeMap::new());
    for container in list(&spec["initContainers"]) {
        let mut own = of(&container["resources"]["requests"])?;
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &own);
        } else {
            add(&mut own, &sidecars);
            raise(&mut peak, &own);
        }
    }
    add(&mut running, &sidecars);
    raise(&mut running, &peak);
    let mut overhead = of(&spec["overhead"])?;
    overhead.remove("nvidia.com/gpu");
    add(&mut running, &overhead);
    Some(running)
}

fn bad_condition(condition: &Value) -> bool {
    match text(&condition["type"]) {
        "Ready" => condition["status"] != "True",
        "MemoryPressure" | "DiskPressure" | "NetworkUnavailable" => condition["status"] != "False",
        _ => false,
    }
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    if !effect.is_empty() && effect != text(&taint["effect"]) {
        return false;
    }
    match text(&toleration["operator"]) {
        "Exists" => key.is_empty() || key == text(&taint["key"]),
        "" | "Equal" => {
            !key.is_empty() && key == text(&taint["key"]) && text(&toleration["value"]) == text(&taint["value"])
        }
        _ => false,
    }
}

fn selected(node: &Value, spec: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let selector = spec["nodeSelector"].as_object().into_iter().flatten();
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let term = |term: &Value| {
        let (expressions, fields) = (&term["matchExpressions"], &term["matchFields"]);
        let all = |requirements: &Value, value: &dyn Fn(&str) -> Option<String>| {
            list(requirements).all(|one| meets(one, value(text(&one["key"])).as_deref()))
        };
        let some = list(expressions).next().is_some() || list(fields).next().is_some();
        some && all(expressions, &|key| labels[key].as_str().map(ToOwned::to_owned))
            && all(fields, &|_| node["metadata"]["name"].as_str().map(ToOwned::to_owned))
    };
    selector.into_iter().all(|(key, value)| labels[key] == *value)
        && (required.is_null() || list(&required["nodeSelectorTerms"]).any(term))
}

fn meets(requirement: &Value, value: Option<&str>) -> bool {
    let listed = || list(&requirement["values"]).any(|one| Some(text(one)) == value);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let numbers = || {
        let asked = number(list(&requirement["values"]).next().map(text))?;
        Some((number(value)?, asked))
    };
    match text(&requirement["operator"]) {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(have, asked)| have > asked),
        "Lt" => numbers().is_some_and(|(have, asked)| have < asked),
        _ => false,
    }
}

struct Port {
    address: String,
    protocol: String,
    number: i64,
}

impl Port {
    fn clashes(&self, other: &Self) -> bool {
        let everywhere = |port: &Self| matches!(&*port.address, "" | "0.0.0.0");
        self.number == other.number
            && self.protocol == other.protocol
            && (everywhere(self) || everywhere(other) || self.address == other.address)
    }
}

fn ports(pod: &Value) -> Vec<Port> {
    let spec = &pod["spec"];
    let host_network = spec["hostNetwork"] == true;
    let sidecars = list(&spec["initContainers"]).filter(|container| container["restartPolicy"] == "Always");
    let containers = list(&spec["containers"]).chain(sidecars);
    let ports = containers.flat_map(|container| list(&container["ports"]));
    let read = |port: &Value| {
        let host = port["hostPort"].as_i64().filter(|number| *number > 0);
        let number = host.or(port["containerPort"].as_i64().filter(|_| host_network))?;
        let protocol = text(&port["protocol"]);
        Some(Port {
            address: text(&port["hostIP"]).to_owned(),
            protocol: if protocol.is_empty() { "TCP" } else { protocol }.to_owned(),
            number,
        })
    };
    ports.filter_map(read).collect()
}
