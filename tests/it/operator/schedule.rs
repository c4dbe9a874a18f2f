//! Quota schedules: a queue's limit changes at a time of day, with nothing else happening.

use jiff::{Timestamp, ToSpan};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, pod};

const KEY: &str = "unikai.dev/quota-schedule";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_until_the_quota_schedule_allows_its_request() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    let begins = Timestamp::now() + 6.seconds();
    let time = |at: Timestamp| at.strftime("%H:%M:%S").to_string();
    let schedule = format!(
        "entries: [{{name: soon, from: '{}', to: '{}', gpu: {{quota: 3, limit: -1}}}}]",
        time(begins),
        time(begins + 1.hour())
    );
    let none = json!({"quota": 0, "limit": 0, "overQuotaWeight": 1});
    let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let mut queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
        "metadata": {"name": "later", "annotations": {KEY: "entries: [{name: soon, gpu: {limit: -5}}]"}},
        "spec": {"parentQueue": "default", "resources": {"gpu": none, "cpu": free, "memory": free}}});
    let refused = lab.create(queue.clone()).await.unwrap_err().to_string();
    let says =
        "annotation unikai.dev/quota-schedule: entry soon: gpu.limit: -5 is no amount of 0 or more, or -1 for no bound";
    assert!(refused.contains(says), "{refused}");
    queue["metadata"]["annotations"][KEY] = json!(schedule);
    lab.create(queue).await.unwrap();

    let mut waits = pod("waits", 1);
    waits["metadata"]["labels"]["kai.scheduler/queue"] = json!("later");
    lab.create(waits).await.unwrap();
    let says = async |text: String| {
        eventually(&format!("the status says: {text}"), async || {
            let queue = lab.queues().get("later").await.map_err(|error| error.to_string())?;
            let conditions = queue.status.unwrap_or_default().conditions;
            let found = conditions
                .iter()
                .any(|condition| condition.message.as_deref() == Some(&text));
            found.then_some(()).ok_or_else(|| format!("{conditions:?}"))
        })
        .await;
    };
    let until = Timestamp::from_second(begins.as_second()).unwrap();
    says(format!(
        "no entry is in force until {until}; what the queue says itself holds"
    ))
    .await;
    lab.unschedulable("waits").await;
    assert!(Timestamp::now() < until, "the machine is too slow for this test");
    assert_eq!(lab.runs("waits").await, "gpu-1");
    assert!(Timestamp::now() >= until);
    says(format!("entry soon is in force until {}", until + 1.hour())).await;
    eventually("the metrics are those of the entry", async || {
        let page = operator.get("/metrics").await.map_err(|error| error.to_string())?;
        let line = page
            .lines()
            .find(|line| line.starts_with("kai_queue_deserved_gpus{queue_name=\"later\""));
        let line = line.unwrap_or_default().to_owned();
        line.ends_with(" 3").then_some(()).ok_or(line)
    })
    .await;

    let off = Patch::Merge(json!({"metadata": {"annotations": {KEY: null}}}));
    lab.queues()
        .patch("later", &PatchParams::default(), &off)
        .await
        .unwrap();
    eventually("the condition is gone", async || {
        let queue = lab.queues().get("later").await.map_err(|error| error.to_string())?;
        let conditions = queue.status.unwrap_or_default().conditions;
        conditions
            .is_empty()
            .then_some(())
            .ok_or_else(|| format!("{conditions:?}"))
    })
    .await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}
