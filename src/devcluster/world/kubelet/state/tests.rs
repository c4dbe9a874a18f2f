use std::collections::HashSet;
use std::sync::Mutex;

use serde_json::json;

use super::*;

/// Kubelets under test, at a time of their own.
struct Bench {
    kubelets: Kubelets,
    config_maps: Arc<Mutex<HashSet<Key>>>,
    now: Timestamp,
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Bench {
    fn new(timings: Timings) -> Self {
        let config_maps = Arc::new(Mutex::new(HashSet::new()));
        let known = Arc::clone(&config_maps);
        let exists = move |key: &Key| known.lock().expect("the set").contains(key);
        let now = "2026-01-01T00:00:00Z".parse().expect("a timestamp");
        let mut bench = Self {
            kubelets: Kubelets::new(timings, Box::new(exists)),
            config_maps,
            now,
        };
        let node = NodeSpec::gpu("n1", 8);
        bench.kubelets.start(&node, node.object(0, now), 0, Vec::new(), now);
        bench
    }

    fn see(&mut self, pod: &Pod) {
        self.kubelets
            .pod_changed(&Key::of(&pod.metadata), Some(&Arc::new(pod.clone())), self.now);
    }

    fn lose(&mut self, pod: &Pod) {
        self.kubelets.pod_changed(&Key::of(&pod.metadata), None, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now = later(self.now, time);
        self.kubelets.tick(self.now);
    }

    /// What is to be written now, each as `name phase [reason]` or `name delete`.
    fn writes(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for key in self.kubelets.take_unwritten() {
            let Some(write) = self.kubelets.take_write(&key, self.now) else {
                continue;
            };
            if let Some(patch) = write.status {
                let text = |pointer: &str| {
                    patch
                        .pointer(pointer)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                let reason = format!(
                    "{}{}",
                    text("/status/reason"),
                    text("/status/containerStatuses/0/state/waiting/reason")
                );
                lines.push(
                    format!("{} {} {reason}", key.name, text("/status/phase"))
                        .trim_end()
                        .to_owned(),
                );
            }
            if write.delete {
                lines.push(format!("{} delete", key.name));
            }
        }
        lines
    }
}

fn pod(name: &str, gpus: u32, spec: Value) -> Pod {
    let mut spec = spec;
    spec["nodeName"] = json!("n1");
    let limits = json!({"limits": {"nvidia.com/gpu": gpus.to_string()}});
    let command = spec.get("run").cloned().unwrap_or(Value::Null);
    spec["containers"] = json!([{"name": "c", "resources": limits, "command": command}]);
    let mut pod = json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")}, "spec": spec});
    pod["metadata"]["annotations"] = json!({});
    serde_json::from_value(pod).expect("a pod")
}

fn deleted(pod: &Pod, grace: i64) -> Pod {
    let mut pod = pod.clone();
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        Timestamp::UNIX_EPOCH,
    ));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod
}

#[test]
fn a_pod_runs_in_one_write_and_ends_in_another() {
    let mut bench = Bench::new(Timings::default());
    bench.see(&pod("a", 1, json!({"restartPolicy": "Never", "run": ["sleep", "5"]})));
    assert_eq!(bench.writes(), ["a Running"]);
    bench.pass(secs(4));
    assert!(bench.writes().is_empty());
    bench.pass(secs(1));
    assert_eq!(bench.writes(), ["a Succeeded"]);
    bench.see(&pod("b", 1, json!({"restartPolicy": "Never", "run": ["false"]})));
    bench.pass(secs(0));
    assert_eq!(bench.writes(), ["b Failed"]);
    assert_eq!(bench.kubelets.next_wakeup(), None);
}

#[test]
fn over_commitment_is_refused_until_the_gpus_are_free_again() {
    let mut bench = Bench::new(Timings::default());
    let (a, b, c) = (pod("a", 8, json!({})), pod("b", 1, json!({})), pod("c", 8, json!({})));
    bench.see(&a);
    bench.see(&b);
    assert_eq!(bench.writes(), ["a Running", "b Failed UnexpectedAdmissionError"]);
    assert_eq!(bench.kubelets.refusals(), Refusals { all: 1, gpu: 1 });
    bench.see(&deleted(&a, 30));
    bench.pass(Duration::from_millis(999));
    assert!(bench.writes().is_empty(), "it holds its GPUs until it is dead");
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.writes(), ["a delete"]);
    bench.see(&c);
    assert_eq!(bench.writes(), ["c Running"]);
}

#[test]
fn refusals_read_like_a_kubelets() {
    let mut bench = Bench::new(Timings::default());
    let mut greedy = pod("a", 0, json!({}));
    let limits = json!({"limits": {"cpu": "65"}});
    greedy.spec.as_mut().expect("a spec").containers[0].resources = serde_json::from_value(limits).expect("resources");
    bench.see(&greedy);
    bench.see(&pod("b", 9, json!({})));
    bench.see(&pod("c", 0, json!({"nodeSelector": {"zone": "b"}})));
    let messages: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let write = bench
                .kubelets
                .take_write(&Key::new("ns", name), bench.now)
                .expect("a write");
            write.status.expect("a status")["status"]["message"]
                .as_str()
                .expect("a message")
                .to_owned()
        })
        .collect();
    assert_eq!(
        messages,
        [
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 65000, used: 0, capacity: 64000",
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. \
             Requested: 9, Available: 8, which is unexpected",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ]
    );
    assert_eq!(bench.kubelets.refusals(), Refusals { all: 3, gpu: 1 });
}

#[test]
fn a_host_port_is_used_by_one_pod_at_a_time() {
    let mut bench = Bench::new(Timings::default());
    let using = |name: &str, number: i32, ip: &str| {
        let mut pod = pod(name, 0, json!({}));
        let ports = json!([{"containerPort": 80, "hostPort": number, "hostIP": ip}]);
        pod.spec.as_mut().expect("a spec").containers[0].ports = serde_json::from_value(ports).expect("ports");
        pod
    };
    let first = using("first", 8080, "10.0.0.1");
    bench.see(&first);
    bench.see(&using("other-port", 8081, ""));
    bench.see(&using("other-address", 8080, "10.0.0.2"));
    let anywhere = using("anywhere", 8080, "0.0.0.0");
    bench.see(&anywhere);
    let written = [
        "first Running",
        "other-port Running",
        "other-address Running",
        "anywhere Failed NodePorts",
    ];
    assert_eq!(bench.writes(), written);
    let mut plain = pod("plain", 0, json!({"hostNetwork": true}));
    let ports = json!([{"containerPort": 8081}]);
    plain.spec.as_mut().expect("a spec").containers[0].ports = serde_json::from_value(ports).expect("ports");
    bench.see(&plain);
    assert_eq!(
        bench.writes(),
        ["plain Failed NodePorts"],
        "all its ports are the host's"
    );
    bench.lose(&first);
    bench.see(&using("next", 8080, "10.0.0.1"));
    assert_eq!(bench.writes(), ["next Running"]);
}

#[test]
fn grace_periods() {
    let cases = [
        ("ends at SIGTERM", false, 30, 1000),
        ("short grace", false, 0, 0),
        ("ignores SIGTERM", true, 30, 30_000),
    ];
    for (name, ignores, grace, expected_ms) in cases {
        let mut bench = Bench::new(Timings::default());
        let mut a = pod("a", 1, json!({}));
        if ignores {
            let annotation = (super::super::lifetime::IGNORE_SIGTERM.to_owned(), "true".to_owned());
            a.metadata.annotations = Some([annotation].into());
        }
        bench.see(&a);
        bench.writes();
        bench.see(&deleted(&a, grace));
        if expected_ms > 0 {
            bench.pass(Duration::from_millis(expected_ms - 1));
            assert!(bench.writes().is_empty(), "{name}");
            bench.pass(Duration::from_millis(1));
        }
        assert_eq!(bench.writes(), ["a delete"], "{name}");
    }
}

#[test]
fn a_second_deletion_shortens_the_grace_period() {
    let mut bench = Bench::new(Timings {
        termination: secs(60),
        ..Timings::default()
    });
    let a = pod("a", 1, json!({}));
    bench.see(&a);
    bench.writes();
    bench.see(&deleted(&a, 30));
    bench.see(&deleted(&a, 5));
    bench.pass(secs(5));
    assert_eq!(bench.writes(), ["a delete"]);
}

#[test]
fn a_pod_with_finalizers_is_seen_to_end() {
    let mut bench = Bench::new(Timings::default());
    let mut a = pod("a", 1, json!({}));
    a.metadata.finalizers = Some(vec!["x/y".to_owned()]);
    bench.see(&a);
    bench.writes();
    bench.see(&deleted(&a, 30));
    bench.pass(secs(1));
    assert_eq!(bench.writes(), ["a Failed", "a delete"]);
}

#[test]
fn restarts_back_off_and_the_pod_keeps_its_resources() {
    let mut bench = Bench::new(Timings::default());
    bench.see(&pod("a", 8, json!({"run": ["sleep", "5"]})));
    assert_eq!(bench.writes(), ["a Running"]);
    for delay in [10, 20, 40] {
        bench.pass(secs(5));
        assert_eq!(bench.writes(), ["a Running CrashLoopBackOff"]);
        bench.pass(secs(delay - 1));
        assert!(bench.writes().is_empty());
        bench.pass(secs(1));
        assert_eq!(bench.writes(), ["a Running"]);
    }
    bench.see(&pod("b", 1, json!({})));
    assert_eq!(bench.writes(), ["b Failed UnexpectedAdmissionError"]);
}

#[test]
fn a_pod_waits_for_its_config_maps() {
    let mut bench = Bench::new(Timings::default());
    let volumes = json!({"volumes": [{"name": "v", "configMap": {"name": "settings"}}, {"name": "r", "configMap": {"name": ROOT_CA}}]});
    bench.see(&pod("a", 1, volumes));
    assert_eq!(bench.writes(), ["a Pending ContainerCreating"]);
    let settings = Key::new("ns", "settings");
    bench.config_maps.lock().expect("the set").insert(settings.clone());
    bench.kubelets.config_map_changed(&settings, bench.now);
    assert_eq!(bench.writes(), ["a Running"]);
}

#[test]
fn starting_takes_its_time_and_is_cut_short_by_deletion() {
    let mut bench = Bench::new(Timings {
        pod_start: secs(3),
        ..Timings::default()
    });
    let (a, b) = (pod("a", 1, json!({})), pod("b", 1, json!({})));
    bench.see(&a);
    bench.see(&b);
    assert!(bench.writes().is_empty());
    bench.see(&deleted(&b, 30));
    assert_eq!(bench.writes(), ["b delete"]);
    bench.pass(secs(3));
    assert_eq!(bench.writes(), ["a Running"]);
}

#[test]
fn a_jump_of_the_clock_keeps_the_order_of_events() {
    let mut bench = Bench::new(Timings::default());
    bench.see(&pod("a", 4, json!({"restartPolicy": "Never", "run": ["sleep", "5"]})));
    bench.see(&pod("b", 4, json!({"run": ["sleep", "1"]})));
    bench.writes();
    bench.pass(secs(3600));
    assert_eq!(
        bench.writes(),
        ["b Running CrashLoopBackOff", "a Succeeded"],
        "what was in between is not written"
    );
}

#[test]
fn existing_pods_are_continued_in_their_state() {
    let mut bench = Bench::new(Timings::default());
    let mut running = pod("old", 8, json!({}));
    running.status = serde_json::from_value(json!({"phase": "Running", "podIP": "10.0.0.9"})).expect("a status");
    let mut done = pod("done", 8, json!({}));
    done.status = serde_json::from_value(json!({"phase": "Succeeded"})).expect("a status");
    let pods = [pod("new", 1, json!({})), done, running.clone()].map(Arc::new).to_vec();
    let node = NodeSpec::gpu("n1", 8);
    bench
        .kubelets
        .start(&node, node.object(0, bench.now), 0, pods, bench.now);
    assert_eq!(
        bench.writes(),
        ["new Failed UnexpectedAdmissionError"],
        "what runs was there first"
    );
    bench.lose(&running);
    bench.see(&pod("next", 8, json!({})));
    assert_eq!(bench.writes(), ["next Running"]);
}

#[test]
fn a_stopped_kubelet_and_foreign_nodes_do_nothing() {
    let mut bench = Bench::new(Timings::default());
    bench.see(&pod("a", 1, json!({"restartPolicy": "Never", "run": ["sleep", "5"]})));
    bench.writes();
    bench.kubelets.stop("n1");
    bench.pass(secs(10));
    bench.see(&pod("b", 1, json!({})));
    assert!(bench.writes().is_empty());
    assert_eq!(bench.kubelets.next_wakeup(), None);
}

#[test]
fn a_restarted_kubelet_leaves_reserved_gpus_to_the_pods_that_name_them() {
    let mut bench = Bench::new(Timings::default());
    let running = |name: &str, gpus: u32| {
        let mut pod = pod(name, gpus, json!({}));
        pod.status = serde_json::from_value(json!({"phase": "Running"})).expect("a status");
        pod
    };
    let first = Devices::of(&NodeSpec::gpu("n1", 8), Checkpoint::new()).take(&Pod::default(), 1);
    let mut reservation = running("reservation", 1);
    reservation.metadata.annotations = Some([(devices::RESERVED.to_owned(), first[0].clone())].into());
    let pods = [running("a", 7), reservation].map(Arc::new).to_vec();
    let node = NodeSpec::gpu("n1", 8);
    bench
        .kubelets
        .start(&node, node.object(0, bench.now), 0, pods, bench.now);
    let key = Key::of(&running("reservation", 1).metadata);
    assert_eq!(bench.kubelets.pods[&key].devices, first);
}
