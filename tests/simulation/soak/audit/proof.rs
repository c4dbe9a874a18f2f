//! Short logs that break a rule, and some that break none.

use std::io::Write as _;

use serde_json::{Value, json};
use unikai::devcluster::apiserver::Identity;

use super::{Shown, replay};

/// A log, line by line.
#[derive(Clone, Default)]
struct Log(Vec<Value>);

impl Log {
    /// A request that took from one ms of the log to another.
    fn request(&mut self, verb: &str, of: &str, took: [u64; 2], code: u16, [request, response]: [Value; 2]) {
        let mut parts = of.split('/');
        let mut part = || parts.next().unwrap_or_default();
        let (resource, name, subresource) = (part(), part(), part());
        let time = |ms: u64| format!("2026-01-01T00:00:00.{ms:03}000Z");
        let namespace = if resource == "pods" && verb != "list" {
            "team-a"
        } else {
            ""
        };
        self.0.push(json!({
            "auditID": format!("{}", self.0.len()), "stage": if code == 0 { "RequestReceived" } else { "ResponseComplete" }, "verb": verb,
            "requestURI": format!("/{of}"), "user": {"username": Identity::operator().user},
            "requestReceivedTimestamp": time(took[0]), "stageTimestamp": time(took[1]),
            "objectRef": {"resource": resource, "namespace": namespace, "name": name, "subresource": subresource},
            "responseStatus": {"code": code}, "requestObject": request, "responseObject": response,
        }));
    }

    fn stored(&mut self, verb: &str, of: &str, took: [u64; 2], object: Value) {
        self.request(verb, of, took, 200, [Value::Null, object]);
    }

    fn bound(&mut self, pod: &str, took: [u64; 2]) {
        let binding = json!({"kind": "Binding", "target": {"name": "n1"}});
        self.request(
            "create",
            &format!("pods/{pod}/binding"),
            took,
            201,
            [binding, json!({"kind": "Status"})],
        );
    }

    fn deleted(&mut self, pod: &str, took: [u64; 2], code: u16, version: u64) {
        let now = json!({"gracePeriodSeconds": 0});
        self.request(
            "delete",
            &format!("pods/{pod}"),
            took,
            code,
            [now, self::pod(pod, version, "n1")],
        );
    }

    fn replayed(&self) -> Result<Shown, String> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        for line in &self.0 {
            writeln!(file, "{line}").expect("a file that can be written");
        }
        replay(file.path()).map_err(|error| format!("{error:#}"))
    }
}

fn pod(name: &str, version: u64, node: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"namespace": "team-a", "name": name, "uid": name, "resourceVersion": version.to_string()},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": node, "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    })
}

/// A node with one GPU, the first pod there, and a second one that waits.
fn one_runs() -> Log {
    let mut log = Log::default();
    let node = json!({
        "kind": "Node", "metadata": {"name": "n1", "resourceVersion": "1"},
        "status": {"allocatable": {"nvidia.com/gpu": "1", "cpu": "8", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    log.stored("create", "nodes/n1", [0, 1], node);
    log.stored("create", "pods/first", [2, 3], pod("first", 2, ""));
    log.bound("first", [4, 9]);
    log.stored("patch", "pods/first/status", [5, 8], pod("first", 4, "n1"));
    log.stored("create", "pods/second", [10, 11], pod("second", 5, ""));
    log
}

fn second_runs_and_ends(log: &mut Log) {
    log.stored("patch", "pods/second/status", [61, 62], pod("second", 8, "n1"));
    log.deleted("second", [80, 81], 200, 9);
}

/// Whether the replay of some logs shows what it should.
pub fn logs_are_judged() -> bool {
    let mut right = true;
    let mut expect = |what: &str, shown: &Result<Shown, String>, is_right: bool| {
        if !is_right {
            println!("audit log: {what}: {shown:?}");
            right = false;
        }
    };

    let mut log = one_runs();
    log.bound("second", [50, 60]);
    log.deleted("first", [40, 70], 200, 6);
    second_runs_and_ends(&mut log);
    let shown = log.replayed();
    let all = Shown {
        writes: 9,
        checked: 9,
        ..Shown::default()
    };
    expect("a response that is late", &shown, shown == Ok(all));

    // Other objects had versions in between.
    let mut log = one_runs();
    log.deleted("first", [40, 41], 200, 6);
    let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [pod("second", 5, "")]});
    log.stored("list", "pods", [55, 56], list);
    log.bound("second", [50, 60]);
    second_runs_and_ends(&mut log);
    let shown = log.replayed();
    expect(
        "a list during a bind",
        &shown,
        shown.as_ref().is_ok_and(|shown| shown.checked == 10),
    );

    let mut log = one_runs();
    log.bound("second", [50, 60]);
    let shown = log.replayed();
    let says = |shown: &Result<Shown, String>, what: &str| shown.as_ref().is_err_and(|error| error.contains(what));
    expect(
        "a node that is overfull",
        &shown,
        says(&shown, "request 5: broken: N-1"),
    );

    for (code, what) in [(504, "a deletion without an answer"), (0, "a server that is killed")] {
        let mut log = one_runs();
        log.deleted("first", [40, 41], code, 6);
        log.bound("second", [50, 60]);
        let mut listed = log.clone();
        second_runs_and_ends(&mut log);
        let shown = log.replayed();
        let unknown = shown
            .as_ref()
            .is_ok_and(|shown| (shown.unknown, shown.uncertain, shown.checked) == (1, 1, 5));
        expect(what, &shown, unknown);

        let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [pod("second", 7, "n1")]});
        listed.stored("list", "pods", [70, 71], list);
        let mut overfull = listed.clone();
        second_runs_and_ends(&mut listed);
        let shown = listed.replayed();
        expect(what, &shown, shown.as_ref().is_ok_and(|shown| shown.checked > 5));
        overfull.stored("create", "pods/third", [72, 73], pod("third", 10, "n1"));
        let shown = overfull.replayed();
        expect("after the list", &shown, says(&shown, "broken: N-1"));
    }

    let mut log = one_runs();
    let status = || json!({"kind": "Status"});
    log.request("create", "pods/second/eviction", [12, 13], 201, [Value::Null, status()]);
    log.request("create", "pods/first/eviction", [14, 15], 201, [Value::Null, status()]);
    log.deleted("first", [40, 41], 200, 6);
    let shown = log.replayed();
    expect(
        "evictions",
        &shown,
        shown.as_ref().is_ok_and(|shown| shown.checked == 8),
    );

    let mut log = one_runs();
    log.deleted("second", [50, 51], 200, 6);
    let shown = log.replayed();
    expect("a pod that is left over", &shown, says(&shown, "at the end of the log"));
    right
}
