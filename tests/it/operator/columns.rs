//! What `kubectl get queues` and `kubectl get podgroups` say: the columns of the definitions, filled by the operator.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, gang, pod};

/// The cells of a table by its columns' names, as kubectl asks for it: one line for each object, without its age.
async fn table(lab: &Lab, path: &str) -> Vec<String> {
    let request = http::Request::get(path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = lab.client.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let shown = |(column, _): &(&Value, &Value)| column["priority"] == 0 && column["name"] != "Age";
    let rows = table["rows"].as_array().unwrap().iter().map(|row| {
        let cells = columns.iter().zip(row["cells"].as_array().unwrap()).filter(shown);
        let cells = cells.map(|(column, cell)| {
            let cell = match cell {
                Value::Null => "-".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            format!("{}={cell}", column["name"].as_str().unwrap())
        });
        cells.collect::<Vec<_>>().join(" ")
    });
    rows.collect()
}

async fn shows(lab: &Lab, path: &str, expected: &[&str]) {
    eventually(&format!("{path} says what it should"), async || {
        let found = table(lab, path).await;
        // Names of pod groups end in a UID. Not what this is about: the operator's default queues, and groups that are to go.
        let found: Vec<_> = found
            .iter()
            .filter(|line| !line.starts_with("Name=default-") && !line.contains("State=Empty"))
            .map(|line| line.split_once(' ').map_or(line.as_str(), |(_, rest)| rest))
            .collect();
        (found == expected).then_some(()).ok_or_else(|| format!("{found:#?}"))
    })
    .await;
}

const QUEUES: &str = "/apis/scheduling.run.ai/v2/queues";
const GROUPS: &str = "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups";

fn team() -> Value {
    let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let gpu = json!({"quota": 4, "limit": 6, "overQuotaWeight": 1});
    json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "small"},
        "spec": {"parentQueue": "default", "displayName": "Small", "resources": {"gpu": gpu, "cpu": free, "memory": free}}})
}

fn in_queue(mut object: Value, queue: &str) -> Value {
    object["metadata"]["labels"]["kai.scheduler/queue"] = json!(queue);
    if let Some(template) = object.pointer_mut("/spec/template/metadata/labels") {
        template["kai.scheduler/queue"] = json!(queue);
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_columns_show_the_state_of_queues_and_pod_groups() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    lab.create(team()).await.unwrap();
    lab.create(in_queue(gang("train", 2, 2), "small")).await.unwrap();
    lab.running(2).await;
    lab.create(in_queue(pod("more", 3), "small")).await.unwrap();
    lab.unschedulable("more").await;
    let free = "Quota=unlimited Limit=unlimited";
    let queues = [
        format!(
            "GPUs=4/7 Fair=7 {free} Waiting=1 Held=- Priority=- Parent=- Children=[\"small\",\"test\"] DisplayName=-"
        ),
        "GPUs=4/4 Fair=6 Quota=4 Limit=6 Waiting=1 Held=- Priority=- Parent=default Children=- DisplayName=Small"
            .to_owned(),
        format!("GPUs=0/0 Fair=0 {free} Waiting=0 Held=- Priority=- Parent=default Children=- DisplayName=-"),
    ];
    let queues: Vec<_> = queues.iter().map(String::as_str).collect();
    shows(&lab, QUEUES, &queues).await;
    let groups = [
        "Running=0/1 State=Pending Reason=queue_limit Queue=small",
        "Running=2/2 State=Running Reason=- Queue=small",
    ];
    shows(&lab, GROUPS, &groups).await;
    lab.delete_pod("more").await;
    lab.create(in_queue(gang("next", 3, 1), "test")).await.unwrap();
    lab.running(5).await;
    let groups = [
        "Running=3/3 State=Running Reason=- Queue=test",
        "Running=2/2 State=Running Reason=- Queue=small",
    ];
    shows(&lab, GROUPS, &groups).await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_without_the_summary_costs_one_write_and_a_line_in_the_log() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(lab.client.clone());
    for name in ["queues.scheduling.run.ai", "podgroups.scheduling.run.ai"] {
        let mut definition = serde_json::to_value(definitions.get(name).await.unwrap()).unwrap();
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        let removed = schema["properties"].as_object_mut().unwrap().remove("summary");
        assert!(removed.is_some());
        let definition = serde_json::from_value(definition).unwrap();
        definitions
            .replace(name, &PostParams::default(), &definition)
            .await
            .unwrap();
    }
    let operator = lab.replica("one").await;
    for name in ["a", "b", "c"] {
        lab.create(pod(name, 1)).await.unwrap();
        lab.runs(name).await;
    }
    eventually("the log says so", async || {
        let log = operator.log();
        let says = ["PodGroups", "Queues"].map(|kind| {
            log.matches(&format!("the definition of {kind} has no status.summary"))
                .count()
        });
        (says == [1, 1]).then_some(()).ok_or(log)
    })
    .await;
    lab.server.audit().clear();
    lab.create(pod("d", 1)).await.unwrap();
    lab.runs("d").await;
    eventually("its status is there", async || {
        let seen = table(&lab, QUEUES).await;
        let patches = lab.writes_of(&operator);
        let statuses = patches
            .iter()
            .filter(|write| write.contains("podgroups/status pg-d-"))
            .count();
        // Where things go slowly, in more than one step.
        (1..=2)
            .contains(&statuses)
            .then_some(())
            .ok_or_else(|| format!("{patches:#?} {seen:#?}"))
    })
    .await;
    operator.assert_no_errors();
}
