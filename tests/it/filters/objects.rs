//! Random nodes and pods as manifests.

use serde_json::{Map, Value, json};

/// A small, fast, repeatable source of numbers (splitmix64).
pub struct Random(u64);

/// Quantities that can be read, and some that cannot.
const CPU: [&str; 9] = ["0", "100m", "0.5", "1", "2", "1500m", "1e3", "8", "3k"];
const MEMORY: [&str; 8] = ["0", "128Mi", "1Gi", "2G", "1.5Gi", "8Gi", "1e9", "16Gi"];
const COUNT: [&str; 5] = ["0", "1", "2", "4", "8"];
const ODD: [&str; 8] = ["", "abc", "1Zi", "1 Gi", "--1", "1e", "0x10", "١"];
const HUGE: [&str; 5] = ["-1", "-5Gi", "9223372036854775807Ei", "1e400", "-1e400"];
const KEYS: [&str; 4] = ["zone", "kind", "number", "kubernetes.io/hostname"];
const VALUES: [&str; 6] = ["a", "b", "7", "12", "", "n0"];

impl Random {
    /// The same seed gives the same objects.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    fn some<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    /// Quantities of several resources; `odd`: one in so many is out of reason.
    fn amounts(&mut self, odd: u64) -> Value {
        let mut amounts = Map::new();
        for (name, list) in [
            ("cpu", &CPU[..]),
            ("memory", &MEMORY),
            ("nvidia.com/gpu", &COUNT),
            ("example.com/thing", &COUNT),
        ] {
            if self.one_in(3) {
                continue;
            }
            let text = match self.below(odd) {
                0 => self.of(&ODD),
                1 => self.of(&HUGE),
                _ => self.of(list),
            };
            amounts.insert(name.to_owned(), json!(text));
        }
        Value::Object(amounts)
    }

    fn labels(&mut self) -> Map<String, Value> {
        let mut labels = Map::new();
        for key in KEYS {
            if !self.one_in(3) {
                labels.insert(key.to_owned(), json!(self.of(&VALUES)));
            }
        }
        labels
    }

    /// A node named `n0`, in half of the cases with all capacity that it can have.
    pub fn node(&mut self) -> Value {
        let mut allocatable = if self.one_in(2) {
            self.amounts(40)
        } else {
            json!({"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "example.com/thing": "16"})
        };
        if !self.one_in(8) {
            allocatable["pods"] = json!(self.of(&["0", "1", "2", "110", "110", "110", "110"]));
        }
        let taints = if self.one_in(3) {
            self.some(2, |random| {
                let effects = ["NoSchedule", "NoExecute", "PreferNoSchedule", "Strange"];
                json!({"key": random.of(&["t", "u"]), "value": random.of(&["", "x"]), "effect": random.of(&effects)})
            })
        } else {
            Vec::new()
        };
        let conditions = if self.one_in(4) {
            self.some(2, |random| {
                let types = [
                    "Ready",
                    "Ready",
                    "MemoryPressure",
                    "DiskPressure",
                    "NetworkUnavailable",
                    "Strange",
                ];
                json!({"type": random.of(&types), "status": random.of(&["True", "False", "Unknown"])})
            })
        } else {
            Vec::new()
        };
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n0", "uid": "n0", "labels": self.labels()},
            "spec": {"taints": taints, "unschedulable": self.one_in(20)},
            "status": {"allocatable": allocatable, "conditions": conditions},
        })
    }

    fn requirement(&mut self, field: bool) -> Value {
        let operators = ["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"];
        let operator = self.of(&operators);
        let values = match operator {
            "Exists" | "DoesNotExist" => Vec::new(),
            "Gt" | "Lt" => vec![self.of(&["5", "9", "a", "-1", "99999999999999999999"])],
            _ => self.some(3, |random| random.of(&VALUES)),
        };
        let key = if field { "metadata.name" } else { self.of(&KEYS) };
        json!({"key": key, "operator": operator, "values": values})
    }

    fn affinity(&mut self) -> Value {
        let terms = self.some(3, |random| {
            let labels = random.some(2, |random| random.requirement(false));
            let fields = if random.one_in(4) {
                random.some(1, |random| random.requirement(true))
            } else {
                Vec::new()
            };
            json!({"matchExpressions": labels, "matchFields": fields})
        });
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    }

    fn toleration(&mut self) -> Value {
        let mut toleration = Map::new();
        let mut put = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                toleration.insert(key.to_owned(), json!(value));
            }
        };
        put("key", self.of(&[Some("t"), Some("u"), None]));
        put("operator", self.of(&[Some("Exists"), Some("Equal"), None, Some("Gt")]));
        put("value", self.of(&[Some("x"), Some(""), None]));
        put(
            "effect",
            self.of(&[Some("NoSchedule"), Some("NoExecute"), None, None, Some("Strange")]),
        );
        Value::Object(toleration)
    }

    fn port(&mut self) -> Value {
        let mut port = json!({"containerPort": 80 + self.below(2)});
        if !self.one_in(3) {
            port["hostPort"] = json!(self.below(3) + 79);
        }
        if self.one_in(2) {
            port["hostIP"] = json!(self.of(&["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]));
        }
        if self.one_in(2) {
            port["protocol"] = json!(self.of(&["TCP", "UDP"]));
        }
        port
    }

    fn container(&mut self, odd: u64) -> Value {
        let ports = if self.one_in(3) {
            self.some(2, Self::port)
        } else {
            Vec::new()
        };
        json!({"name": "c", "resources": {"requests": self.amounts(odd)}, "ports": ports})
    }

    /// Annotations for shares of GPUs, sensible and not.
    fn gpu_share(&mut self) -> Value {
        let mut all = Map::new();
        let mut put = |key: &str, value: &str| all.insert(key.to_owned(), json!(value));
        if self.one_in(2) {
            put(
                "gpu-fraction",
                self.of(&[
                    "0.5", "0.25", "0.5", "0.25", "0.5", "0.25", "1", "0", "-1", "1.5", "NaN", "inf", "1e-400", "",
                    "0.5.5",
                ]),
            );
        } else {
            put(
                "gpu-memory",
                self.of(&["1024", "0", "-1", "9223372036854775807", "1Gi", "", "1.5"]),
            );
        }
        if self.one_in(4) {
            put(
                "gpu-fraction-num-devices",
                self.of(&["1", "2", "0", "-3", "9223372036854775807", "two", ""]),
            );
        }
        Value::Object(all)
    }

    /// A queue with any numbers.
    pub fn queue(&mut self, name: &str, parent: Option<&str>) -> Value {
        let mut resources = Map::new();
        for resource in ["cpu", "memory", "gpu"] {
            let odd = [-1.0, 0.0, 1.0, 0.3, 4.0, 1e9, 1e300, -1e300, 5e-324, 1.797e308, -2.0];
            let number = |random: &mut Self| if random.one_in(4) { random.of(&odd) } else { -1.0 };
            let share = json!({"quota": number(self), "limit": number(self), "overQuotaWeight": number(self)});
            resources.insert(resource.to_owned(), share);
        }
        let spec = json!({
            "resources": resources, "parentQueue": parent,
            "priority": self.of(&[0, 100, i64::from(i32::MAX), i64::from(i32::MIN)]),
            "preemptMinRuntime": self.of(&["", "0s", "1h", "87600000h", "-5s", "soon"]),
            "reclaimMinRuntime": self.of(&["", "0s", "1h", "87600000h", "-5s", "soon"]),
        });
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
    }

    /// A pod group in some queue, with any numbers.
    pub fn group(&mut self, name: &str) -> Value {
        let minimum = |random: &mut Self| random.of(&[0, 1, 1, 1, 2, 1000, i64::from(i32::MAX), -1]);
        let times = [
            "2026-01-01T00:00:00Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "yesterday",
        ];
        let mut spec = json!({
            "queue": self.of(&["left", "left", "right", "right", "root", "nowhere", ""]),
            "minMember": minimum(self),
            "priorityClassName": self.of(&["", "high", "no-such-class"]),
            "preemptibility": self.of(&["preemptible", "non-preemptible", "strange"]),
            "stalenessGracePeriod": self.of(&["1s", "-1s", "99999999h"]),
        });
        if self.one_in(3) {
            spec["topologyConstraint"] = json!({"topology": "missing", "requiredTopologyLevel": "zone"});
        }
        if self.one_in(3) {
            let sub = |random: &mut Self, name: &str| json!({"name": name, "minMember": minimum(random), "parent": random.of(&[None, Some("s0"), Some("s1"), Some("s9")])});
            spec["subGroups"] = json!([sub(self, "s0"), sub(self, "s1")]);
        }
        json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {
                "name": name, "namespace": "ns", "uid": name,
                "annotations": {"kai.scheduler/last-start-timestamp": self.of(&times), "kai.scheduler/stale-podgroup-timestamp": self.of(&times)},
            },
            "spec": spec,
        })
    }

    /// A pod: one that waits in the pod group, or one without a group that runs on a node. Running pods have no unusual requests.
    pub fn pod(&mut self, name: &str, node: Option<&str>) -> Value {
        let odd = if node.is_some() { u64::MAX } else { 60 };
        let mut containers = self.some(1, |random| random.container(odd));
        containers.push(self.container(odd));
        let init = if self.one_in(3) {
            self.some(2, |random| {
                let mut container = random.container(odd);
                if random.one_in(2) {
                    container["restartPolicy"] = json!("Always");
                }
                container
            })
        } else {
            Vec::new()
        };
        let mut spec = json!({
            "schedulerName": "kai-scheduler", "containers": containers, "initContainers": init,
            "hostNetwork": self.one_in(10),
            "tolerations": if self.one_in(2) { self.some(2, Self::toleration) } else { Vec::new() },
        });
        if self.one_in(6) {
            spec["overhead"] = self.amounts(odd);
        }
        if self.one_in(5) {
            spec["nodeSelector"] = json!({self.of(&KEYS): self.of(&VALUES)});
        }
        if self.one_in(3) {
            spec["affinity"] = self.affinity();
        }
        let mut metadata =
            json!({"name": name, "namespace": "ns", "uid": name, "labels": {"kai.scheduler/queue": "q"}});
        if let Some(node) = node {
            spec["nodeName"] = json!(node);
            spec["schedulerName"] = json!("default-scheduler");
        } else {
            let shares = self.one_in(8);
            metadata["annotations"] = if shares { self.gpu_share() } else { json!({}) };
            // Whole GPUs beside a share are refused; most shares stand alone.
            if shares && !self.one_in(4) {
                let lists = ["containers", "initContainers"].map(|list| spec[list].take());
                for (list, mut containers) in ["containers", "initContainers"].into_iter().zip(lists) {
                    for container in containers.as_array_mut().into_iter().flatten() {
                        if let Some(requests) = container["resources"]["requests"].as_object_mut() {
                            requests.remove("nvidia.com/gpu");
                        }
                    }
                    spec[list] = containers;
                }
            }
            metadata["annotations"]["pod-group-name"] = json!("g");
        }
        let phase = if node.is_some() { "Running" } else { "Pending" };
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}})
    }
}
