//! Hostile admission requests, and invariants of every response: shared by the bench, which sends
//! millions, and the tests, which send some.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use unikai::api::Queue;
use unikai::components::admission::pods::queue_label::{Source, Workload};
use unikai::components::admission::review::{Answer, Operation, Review, Verdict};
use unikai::components::admission::{QueueLabels, Settings, pod_groups, pods, queues, topologies};
use unikai::operator::settings;

/// Values that have broken parsers before.
const TEXTS: &[&str] = &[
    "",
    "0",
    "-0",
    "1",
    "-1",
    "0.5",
    ".5",
    "5.",
    "1.0",
    "0.999999999999999999",
    "1e-10",
    "1E-400",
    "1e400",
    "-1e400",
    "NaN",
    "nan",
    "inf",
    "-Infinity",
    "0x1p-1",
    "+0.5",
    "0.5 ",
    " 0.5",
    "0,5",
    "500m",
    "1Ki",
    "1n",
    "1e",
    "1e+",
    "٠.٥",
    "½",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "1_000",
    "true",
    "false",
    "null",
    "main",
    "init",
    "a.b",
    "-",
    "\u{0}",
    "🦀",
    "a\nb",
    "\"",
    "{}",
    "[0]",
    "void",
    "none",
    "all",
    "team",
    "top",
];
const RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.5gb",
    "amd.com/gpu",
    "",
];
const NAMES: &[&str] = &["top", "team", "other", "missing", "a", "b", "c", ""];
const ANNOTATIONS: &[&str] = &[
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
    "gpu-fraction-container-name",
    "mps",
    "runai/shared-gpu-configmap",
    "pod-group-name",
    "kai.scheduler/skip-podgrouper",
];

/// A sequence of numbers that is the same each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn text(&mut self) -> String {
        match self.below(8) {
            0 => (0..self.below(12))
                .map(|_| char::from(32 + self.below(95) as u8))
                .collect(),
            1 => format!("{}", f64::from_bits(self.next())),
            2 => self.next().to_string(),
            _ => self.of(TEXTS).to_owned(),
        }
    }

    fn value(&mut self) -> Value {
        match self.below(8) {
            0 => Value::Null,
            1 => json!(self.one_in(2)),
            2 => json!(self.next()),
            3 => json!(-(self.below(1 << 30) as i64)),
            4 => json!(f64::from_bits(self.next() & 0x7fef_ffff_ffff_ffff)),
            5 => json!([self.text()]),
            6 => json!({self.text(): self.text()}),
            _ => json!(self.text()),
        }
    }

    fn amounts(&mut self) -> Value {
        let amounts = (0..self.below(4)).map(|_| (self.of(RESOURCES).to_owned(), json!(self.text())));
        Value::Object(amounts.collect::<Map<_, _>>())
    }

    fn container(&mut self, name: &str) -> Value {
        let mut container =
            json!({"name": name, "image": "i", "resources": {"limits": self.amounts(), "requests": self.amounts()}});
        if self.one_in(3) {
            container["env"] = json!([
                {"name": self.of(&["NVIDIA_VISIBLE_DEVICES", "GPU_PORTION", "X"]), "value": self.text()},
                {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": self.text()}}},
            ]);
        }
        container
    }

    fn pod(&mut self) -> Value {
        let mut annotations = Map::new();
        for _ in 0..self.below(4) {
            annotations.insert(self.of(ANNOTATIONS).to_owned(), json!(self.text()));
        }
        let containers: Vec<_> = (0..self.below(4))
            .map(|n| self.container(["main", "side", "third"][n]))
            .collect();
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "team", "annotations": annotations, "labels": {"kai.scheduler/queue": self.of(NAMES)}},
            "spec": {"schedulerName": "kai-scheduler", "containers": containers},
        });
        match self.below(3) {
            0 => pod["metadata"]["generateName"] = json!(self.text()),
            _ => pod["metadata"]["name"] = json!(self.text()),
        }
        if self.one_in(3) {
            pod["spec"]["initContainers"] = json!([self.container("init")]);
        }
        if self.one_in(4) {
            pod["spec"]["runtimeClassName"] = json!(self.text());
        }
        if self.one_in(4) {
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": self.text().repeat(self.of(&[1, 40])), "uid": "u"}]);
        }
        pod
    }

    fn queue(&mut self) -> Value {
        let mut resource = || {
            let number = |random: &mut Self| match random.below(3) {
                0 => json!(f64::from_bits(random.next() & 0xffef_ffff_ffff_ffff)),
                1 => json!(-1),
                _ => json!(random.below(100_000)),
            };
            json!({"quota": number(self), "limit": number(self), "overQuotaWeight": number(self)})
        };
        let resources = json!({"gpu": resource(), "cpu": resource(), "memory": resource()});
        json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": self.of(NAMES)},
            "spec": {"parentQueue": self.of(NAMES), "resources": resources, "preemptMinRuntime": self.text(), "displayName": self.text()},
            "status": {"childQueues": [self.of(NAMES), self.of(NAMES)], "requested": self.amounts()},
        })
    }

    fn pod_group(&mut self) -> Value {
        let mut numbers = |object: &mut Value| {
            for field in ["minMember", "minSubGroup"] {
                if self.one_in(2) {
                    object[field] = json!(self.below(6) as i64 - 1);
                }
            }
        };
        let mut spec = json!({"queue": "team"});
        numbers(&mut spec);
        let mut sub_groups = Vec::new();
        for _ in 0..4 {
            let mut sub_group = json!({});
            numbers(&mut sub_group);
            sub_groups.push(sub_group);
        }
        for sub_group in &mut sub_groups {
            sub_group["name"] = json!(self.of(NAMES));
            if self.one_in(2) {
                sub_group["parent"] = json!(self.of(NAMES));
            }
        }
        sub_groups.truncate(self.below(5));
        spec["subGroups"] = json!(sub_groups);
        json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "team"}, "spec": spec})
    }

    fn topology(&mut self) -> Value {
        let levels: Vec<_> = (0..self.below(5))
            .map(|_| json!({"nodeLabel": self.of(NAMES), "alias": self.of(NAMES)}))
            .collect();
        json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}})
    }

    /// Replaces one field by something else.
    fn damage(&mut self, object: &mut Value) {
        match object {
            Value::Object(fields) if !fields.is_empty() && !self.one_in(4) => {
                let at = self.below(fields.len());
                let key = fields.keys().nth(at).cloned().unwrap_or_default();
                self.damage(&mut fields[&key]);
            }
            Value::Array(items) if !items.is_empty() && !self.one_in(4) => {
                let at = self.below(items.len());
                self.damage(&mut items[at]);
            }
            other => *other = self.value(),
        }
    }

    fn object(&mut self, kind: &str) -> Value {
        let mut object = match kind {
            "Pod" => self.pod(),
            "Queue" => self.queue(),
            "PodGroup" => self.pod_group(),
            _ => self.topology(),
        };
        if self.one_in(3) {
            self.damage(&mut object);
        }
        object
    }

    /// An AdmissionReview, as the API server sends it.
    pub fn question(&mut self) -> (&'static str, Vec<u8>) {
        let kind = self.of(&["Pod", "Pod", "Pod", "Queue", "PodGroup", "Topology"]);
        let operation = self.of(&["CREATE", "CREATE", "UPDATE", "DELETE"]);
        let mut request =
            json!({"uid": "u", "operation": operation, "kind": {"kind": kind}, "namespace": "team", "name": "n"});
        if operation != "DELETE" {
            request["object"] = self.object(kind);
        }
        if operation != "CREATE" {
            request["oldObject"] = self.object(kind);
        }
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        (kind, serde_json::to_vec(&review).expect("JSON"))
    }
}

/// The rules with everything switched on, and some queues.
pub struct Webhooks {
    settings: Settings,
    queues: BTreeMap<String, Arc<Queue>>,
}

impl Webhooks {
    pub fn new() -> Self {
        let settings = Settings {
            queue_labels: QueueLabels::Enforce,
            gpu_sharing: true,
            block_nvidia_visible_devices: true,
            hami_core: true,
            queue_rules: queues::Rules {
                quotas: true,
                protect: false,
            },
            ..settings::Settings::embedded().common.admission
        };
        let share = json!({"quota": 10, "limit": -1});
        let queue = |name: &str, parent: &str| {
            let resources = json!({"gpu": share, "cpu": share, "memory": share});
            let queue = json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}});
            (
                name.to_owned(),
                Arc::new(serde_json::from_value(queue).expect("a queue")),
            )
        };
        Self {
            settings,
            queues: [queue("top", ""), queue("team", "top"), queue("a", "b"), queue("b", "a")].into(),
        }
    }

    /// Handles a review like the server, from the request's bytes to the response's.
    pub fn answer(&self, kind: &str, question: &[u8]) -> Vec<u8> {
        let review: Review = serde_json::from_slice(question).expect("a question");
        let verdict = self.judge(kind, &review);
        serde_json::to_vec(&Answer::new(review.request.uid, verdict)).expect("JSON")
    }

    fn judge(&self, kind: &str, review: &Review) -> Verdict {
        let request = &review.request;
        match kind {
            "Pod" => {
                let pod = request.object.value();
                let label = pod
                    .pointer("/metadata/labels/kai.scheduler~1queue")
                    .and_then(Value::as_str);
                let workload = Workload {
                    queue: label.unwrap_or("team").to_owned(),
                    source: Source::Pod,
                    tree: self.queues.values().map(|queue| &**queue).collect(),
                };
                if request.operation == Operation::Create {
                    let mutated = pods::mutate(
                        request,
                        pods::PodContext {
                            queue: Some(&workload.queue),
                            has_runtime_class: true,
                            random: "bcdfghj",
                        },
                        &self.settings,
                    );
                    if !mutated.is_allowed() {
                        return mutated;
                    }
                }
                let verdict = pods::validate(request, Some(&workload), &self.settings);
                if verdict.is_allowed() && request.operation == Operation::Create {
                    assert_sound(&pod);
                }
                verdict
            }
            "Queue" => {
                let find = |name: &str| self.queues.get(name).cloned();
                let verdict = queues::validate(request, &find, self.settings.queue_rules);
                for warning in &verdict.warnings {
                    assert!(!warning.contains("NaN") && !warning.contains("inf"), "{warning}");
                }
                verdict
            }
            "PodGroup" => pod_groups::validate(request),
            _ => topologies::validate(request),
        }
    }
}

/// Checks that the requests of an admitted pod can be counted.
fn assert_sound(pod: &Value) {
    if pod.pointer("/spec/schedulerName").and_then(Value::as_str) != Some("kai-scheduler") {
        return;
    }
    let of = |key: &str| {
        pod.pointer(&format!("/metadata/annotations/{key}"))
            .and_then(Value::as_str)
    };
    if let Some(fraction) = of("gpu-fraction") {
        let fraction: f64 = fraction.parse().expect("a fraction that is let in is a number");
        assert!(fraction > 0.0 && fraction < 1.0, "{fraction}");
    }
    for key in ["gpu-memory", "gpu-fraction-num-devices"] {
        if let Some(number) = of(key) {
            assert!(number.parse::<u64>().is_ok_and(|number| number > 0), "{key} {number}");
        }
    }
}
