//! Pods with hostile content, and the pods of other tenants meanwhile.

use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::json;
use unikai::devcluster::world::NodeSpec;

use super::bench::{self, Bench, pod};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_with_invalid_names_do_not_stop_grouping() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8)]).await;
    for number in 0..40 {
        let mut hostile = pod(&format!("hostile-{number}"), json!({"cpu": "1"}));
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "?watch=true", "uid": format!("u-{number}"), "controller": true}]);
        hostile.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
        bench.create(&hostile).await;
    }
    let job = bench.create_job("honest", json!({})).await;
    let mut honest = pod("honest", json!({"nvidia.com/gpu": "1"}));
    honest.metadata.owner_references = Some(vec![job]);
    bench.create(&honest).await;
    let _: Pod = bench
        .until("the pod runs", "default", "honest", |pod: &Pod| {
            bench::phase(pod) == "Running"
        })
        .await;
    let said = |event: &Event| {
        let about = event.involved_object.name.as_deref().unwrap_or_default();
        let message = event.message.as_deref().unwrap_or_default();
        about.starts_with("hostile-") && message.contains(r#"name "?watch=true" is no valid name"#)
    };
    bench
        .until_list("their authors are told", "default", |events: &[Event]| {
            events.iter().any(said)
        })
        .await;
    bench.stop().await;
}

/// More sub-groups than are read, and pods that change without end: the pods of others run meanwhile, and so does the valid pod of the same job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_change_constantly_delay_no_others() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8)]).await;
    let parts: Vec<String> = (0..3_000).map(|number| format!("part-{number}=1")).collect();
    let annotations = json!({"kai.scheduler/subgroups": parts.join(","), "kai.scheduler/subgroup-label": "part"});
    let loud = bench.create_job("loud", annotations).await;
    for number in 0..20 {
        let mut member = pod(&format!("loud-{number}"), json!({"cpu": "1"}));
        member.metadata.owner_references = Some(vec![loud.clone()]);
        member
            .metadata
            .labels
            .get_or_insert_default()
            .insert("part".to_owned(), format!("part-{number}"));
        bench.create(&member).await;
    }
    for round in 0..10 {
        for number in 0..20 {
            bench
                .annotate(&format!("loud-{number}"), "round", &round.to_string())
                .await;
        }
        let name = format!("quiet-{round}");
        bench.create(&pod(&name, json!({"cpu": "100m"}))).await;
        let _: Pod = bench
            .until("the pod runs", "default", &name, |pod: &Pod| {
                bench::phase(pod) == "Running"
            })
            .await;
    }
    bench.stop().await;
}
