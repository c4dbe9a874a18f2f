//! Fairness over time on a short time scale: two queues that request all GPUs alternate, through a restart, and with usage from Prometheus.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use unikai::api::SchedulingShard;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, QUICK_LEASE, Replica, eventually, pod};

/// The window, and the time after which use counts half.
const WINDOW: f64 = 8.0;
const HALF_LIFE: f64 = 4.0;
/// The resulting length of a turn in seconds, in which the usage of one queue falls from nearly all to nearly nothing.
const TURN: f64 = 7.6;

/// Two queues without quota, each of which may have all of 16 GPUs, with ten jobs that request all of them; and a shard with these usage settings.
async fn start(mut usage: Value) -> Lab {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 16)]).await;
    let params = json!({"windowSize": format!("{WINDOW}s"), "halfLifePeriod": format!("{HALF_LIFE}s"), "fetchInterval": "100ms",
        "stalenessPeriod": "10s"});
    usage["usageParams"] = params;
    if usage["clientType"] == "prometheus" {
        usage["usageParams"]["extraParams"] = json!({"queryResolution": "100ms"});
    }
    let shard = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "default"},
        "spec": {"usageDBConfig": usage}});
    lab.create(shard).await.unwrap();
    for name in ["one", "two"] {
        let share = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
        let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
            "spec": {"parentQueue": "default", "resources": {"gpu": share, "cpu": free, "memory": free}}});
        lab.create(queue).await.unwrap();
    }
    for number in 0..10 {
        for queue in ["one", "two"] {
            let mut pod = pod(&format!("{queue}-{number}"), 16);
            pod["metadata"]["labels"]["kai.scheduler/queue"] = json!(queue);
            lab.create(pod).await.unwrap();
        }
    }
    lab
}

/// The queue whose pod runs, if one does.
async fn holder(lab: &Lab) -> Option<&'static str> {
    let pods = lab.pods().list(&ListParams::default()).await.unwrap();
    let runs = pods.into_iter().find(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    })?;
    let name = runs.metadata.name.unwrap_or_default();
    ["one", "two"].into_iter().find(|queue| name.starts_with(queue))
}

/// Watches which queue holds the GPUs for so many turns; returns when each began.
async fn turns(lab: &Lab, count: usize) -> Vec<(&'static str, Instant)> {
    let mut turns: Vec<(&str, Instant)> = Vec::new();
    eventually(&format!("{count} turns"), async || {
        if let Some(holder) = holder(lab).await
            && turns.last().is_none_or(|(last, _)| *last != holder)
        {
            turns.push((holder, Instant::now()));
        }
        (turns.len() == count).then_some(()).ok_or_else(|| format!("{turns:?}"))
    })
    .await;
    turns
}

/// Asserts that the turns from the third on have the length that they should have, so that both have as much. The first ones depend on how long the start
/// took, of which nothing was used.
fn assert_even(turns: &[(&str, Instant)]) {
    let lengths = turns[2..].windows(2).map(|two| (two[1].1 - two[0].1).as_secs_f64());
    let lengths: Vec<f64> = lengths.collect();
    println!("turns of {lengths:.2?} s");
    for length in &lengths {
        assert!((length / TURN - 1.0).abs() < 0.25, "{lengths:?}");
    }
}

/// What the queues have used of the GPUs, as the operator shows it.
async fn used(operator: &Replica) -> [f64; 2] {
    eventually("usage is shown", async || {
        let page = operator.get("/metrics").await.map_err(|error| error.to_string())?;
        let of = |queue: &str| {
            let line = format!("kai_queue_gpu_usage{{queue_name=\"{queue}\"");
            let line = page.lines().find(|text| text.starts_with(&line))?;
            line.rsplit(' ').next()?.parse::<f64>().ok()
        };
        let used = of("one").zip(of("two")).ok_or("not shown".to_owned())?;
        let known = used.0 + used.1 > 0.5;
        known.then_some([used.0, used.1]).ok_or_else(|| format!("{used:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_take_turns_and_a_restart_changes_nothing() {
    let lab = start(json!({"clientType": "builtin"})).await;
    let mut operator = lab.replica_with("first", QUICK_LEASE).await;
    assert_even(&turns(&lab, 5).await);

    // One queue has just begun its turn, and the other has used nearly all: so it stays, whichever process schedules.
    let before = holder(&lab).await.expect("somebody holds the GPUs");
    let (most, least) = if before == "one" { (1, 0) } else { (0, 1) };
    let shown = used(&operator).await;
    assert!(shown[most] > 0.6 && shown[least] < 0.4, "{shown:?}");
    operator.signal("TERM");
    operator.ends_well().await;
    operator.assert_no_errors();
    let kept = Api::<ConfigMap>::namespaced(lab.client.clone(), "kai-scheduler");
    let kept = kept
        .get("unikai-usage-default")
        .await
        .expect("it is kept")
        .data
        .unwrap_or_default();
    assert!(kept["ledger"].len() < 20_000, "{}", kept["ledger"].len());
    let operator = lab.replica_with("second", QUICK_LEASE).await;
    let after = used(&operator).await;
    assert!(
        after[most] > 0.3 && after[0] + after[1] < 1.1,
        "{shown:?}, then {after:?}"
    );
    assert_eq!(holder(&lab).await, Some(before));
    turns(&lab, 2).await;

    // Without fairness over time the one that holds all keeps it: usage is none at once.
    let shards = Api::<SchedulingShard>::all(lab.client.clone());
    let off = Patch::Merge(json!({"spec": {"usageDBConfig": null}}));
    shards.patch("default", &PatchParams::default(), &off).await.unwrap();
    eventually("usage is none", async || {
        let page = operator.get("/metrics").await.map_err(|error| error.to_string())?;
        let lines = page.lines().filter(|line| line.starts_with("kai_queue_gpu_usage{"));
        let lines: Vec<_> = lines.map(str::to_owned).collect();
        let none = !lines.is_empty() && lines.iter().all(|line| line.ends_with(" 0"));
        none.then_some(()).ok_or(lines.join("\n"))
    })
    .await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

/// The time of a sample, and which queue held the GPUs.
type Sample = (f64, Option<&'static str>);

/// A Prometheus server that samples every tenth of a second which queue holds the GPUs, and answers the operator's queries.
#[derive(Clone, Default)]
struct FakePrometheus {
    samples: Arc<Mutex<Vec<Sample>>>,
    fails: Arc<Mutex<bool>>,
}

impl FakePrometheus {
    async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        let answer = move |body: String| {
            let server = server.clone();
            async move { server.answer(&body) }
        };
        let app = Router::new().route("/api/v1/query", post(answer));
        tokio::spawn(async move { axum::serve(listener, app).await });
        address.to_string()
    }

    /// Samples for ever.
    async fn sample(&self, lab: &Lab) {
        loop {
            let sample = (now(), holder(lab).await);
            self.samples.lock().unwrap().push(sample);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sums up what the query names, as it says: over the window, weighed by age.
    fn answer(&self, form: &str) -> String {
        if *self.fails.lock().unwrap() {
            return "out of order".to_owned();
        }
        let whole = form.contains("nvidia%5Fcom%5Fgpu");
        let gpus = whole || form.contains("kai%5Fqueue%5Fallocated%5Fgpus");
        assert!(
            form.contains("%5B8s%3A100ms%5D") && form.contains("4%2E000000"),
            "{form}"
        );
        let sum = |queue: Option<&str>| {
            let samples = self.samples.lock().unwrap();
            let counted = samples
                .iter()
                .filter(|(at, holder)| gpus && now() - at < WINDOW && (queue.is_none() || *holder == queue));
            counted
                .map(|(at, _)| 16.0 * (-(now() - at) / HALF_LIFE).exp2())
                .sum::<f64>()
        };
        let sample = |labels: Value, value: f64| json!({"metric": labels, "value": [now(), value.to_string()]});
        let result = match whole {
            true => vec![sample(json!({}), sum(None))],
            false => ["one", "two"]
                .map(|queue| sample(json!({"queue_metadata_name": queue}), sum(Some(queue))))
                .to_vec(),
        };
        json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
    }
}

fn now() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1e3
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_take_turns_by_usage_from_a_prometheus_server() {
    let server = FakePrometheus::default();
    let address = server.serve().await;
    let lab = start(json!({"clientType": "prometheus", "connectionString": format!("http://{address}")})).await;
    let work = async {
        let operator = lab.replica_with("one", QUICK_LEASE).await;
        assert_even(&turns(&lab, 5).await);
        *server.fails.lock().unwrap() = true;
        eventually("a failure is told", async || {
            let page = operator.get("/metrics").await.map_err(|error| error.to_string())?;
            let none = page.contains("unikai_usage_fetch_failures_total{shard=\"default\"} 0\n");
            (!none).then_some(()).ok_or("no failure yet".to_owned())
        })
        .await;
        assert!(operator.log().contains("failed to fetch usage data"));
        used(&operator).await;
        eventually("old figures are dropped", async || {
            let page = operator.get("/metrics").await.map_err(|error| error.to_string())?;
            page.contains("unikai_usage_stale{shard=\"default\"} 1")
                .then_some(())
                .ok_or("not yet".to_owned())
        })
        .await;
        *server.fails.lock().unwrap() = false;
        used(&operator).await;
        operator.assert_no_errors();
    };
    tokio::select! {
        () = work => {}
        () = server.sample(&lab) => {}
    }
    lab.assert_safe().await;
}
