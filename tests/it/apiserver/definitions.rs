//! Kinds that CRDs define: they come and go, validate, default, prune, and keep their own rules of writing.

use serde_json::{Value, json};

use super::harness::{Cluster, on_each};

/// A CRD of the test's own group, with a status, a scale and two versions.
fn definition(group: &str) -> Value {
    let spec = json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "replicas": {"type": "integer", "default": 2},
            "mode": {"type": "string", "enum": ["fast", "slow"]},
        },
    });
    let status =
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"});
    json!({
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}, "scale": scale}},
                {"name": "v2", "served": true, "storage": false, "schema": schema, "subresources": {"status": {}}},
            ],
        },
    })
}

struct Defined {
    group: String,
    crd: String,
    all: String,
}

impl Defined {
    /// Installs the CRD and waits until it is served.
    async fn install(cluster: &Cluster) -> Self {
        let group = format!("{}.example.com", cluster.namespace);
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        cluster.post(definitions, &definition(&group)).await.ok();
        let crd = format!("{definitions}/widgets.{group}");
        cluster
            .wait_for(&crd, |answer| {
                let conditions = answer.body["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                conditions
                    .iter()
                    .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
            })
            .await;
        let all = cluster.group(&format!("{group}/v1"), "widgets");
        cluster.wait_for(&all, |answer| answer.code == 200).await;
        Defined { group, crd, all }
    }

    fn widget(&self, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": format!("{}/v1", self.group), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
    }
}

#[tokio::test]
async fn a_kind_is_served_from_creation_to_deletion_of_its_definition() {
    on_each(async |cluster: &Cluster| {
        let defined = Defined::install(cluster).await;
        let group = cluster
            .wait_for(&format!("/apis/{}", defined.group), |answer| answer.code == 200)
            .await
            .ok();
        assert_eq!(group["preferredVersion"]["version"], "v2");
        let resources = cluster
            .wait_for(&format!("/apis/{}/v1", defined.group), |answer| answer.code == 200)
            .await
            .ok();
        let names: Vec<&str> = resources["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|resource| resource["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);

        let mut held = defined.widget("a", &json!({"size": 1}));
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        cluster.post(&defined.all, &held).await.ok();
        cluster
            .post(&defined.all, &defined.widget("b", &json!({"size": 1})))
            .await
            .ok();
        cluster.delete(&defined.crd).await.ok();
        cluster
            .wait_for(&format!("{}/b", defined.all), |answer| answer.code == 404)
            .await;
        let leaving = cluster
            .wait_for(&format!("{}/a", defined.all), |answer| {
                answer.body["metadata"]["deletionTimestamp"].is_string()
            })
            .await;
        assert_eq!(leaving.code, 200);
        let refused = cluster
            .post(&defined.all, &defined.widget("c", &json!({"size": 1})))
            .await;
        assert_eq!(
            refused.message(),
            format!(
                "widgets.{} \"c\" is forbidden: create not allowed while custom resource definition is terminating",
                defined.group
            )
        );
        cluster
            .merge(
                &format!("{}/a", defined.all),
                &json!({"metadata": {"finalizers": null}}),
            )
            .await
            .ok();
        cluster.wait_for(&defined.crd, |answer| answer.code == 404).await;
        cluster.wait_for(&defined.all, |answer| answer.code == 404).await;
        cluster
            .wait_for(&format!("/apis/{}/v1", defined.group), |answer| answer.code == 404)
            .await;
    })
    .await;
}

#[tokio::test]
async fn objects_are_pruned_defaulted_and_validated() {
    on_each(async |cluster: &Cluster| {
        let defined = Defined::install(cluster).await;
        let group = &defined.group;
        let odd = defined.widget("a", &json!({"size": 3, "colour": "red"}));
        let strict = cluster.post(&format!("{}?fieldValidation=Strict", defined.all), &odd).await;
        assert_eq!(
            strict.message(),
            "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.colour\""
        );
        let created = cluster.post(&defined.all, &odd).await;
        assert_eq!(created.warnings, ["299 - \"unknown field \\\"spec.colour\\\"\""]);
        assert_eq!(created.body["spec"], json!({"size": 3, "replicas": 2}));
        let invalid = cluster.post(&defined.all, &defined.widget("b", &json!({"size": 0, "mode": "odd"}))).await;
        assert_eq!((invalid.code, invalid.body["details"]["causes"].as_array().unwrap().len()), (422, 2));
        let missing = cluster.post(&defined.all, &defined.widget("b", &json!({}))).await;
        assert_eq!(missing.message(), format!("Widget.{group} \"b\" is invalid: spec.size: Required value"));
        let typeless = cluster.post(&defined.all, &json!({"metadata": {"name": "b"}, "spec": {"size": 1}})).await;
        assert_eq!(typeless.code, 400);
        let versionless = cluster.put(&format!("{}/a", defined.all), &defined.widget("a", &json!({"size": 1}))).await;
        assert_eq!(
            versionless.message(),
            format!("widgets.{group} \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update")
        );
        let one = format!("{}/a", defined.all);
        assert_eq!(cluster.strategic(&one, &json!({"spec": {"size": 4}})).await.code, 415);
        let field = cluster.get(&format!("{}?fieldSelector=spec.size%3D3", defined.all)).await;
        assert_eq!(field.message(), "field label not supported: spec.size");
    })
    .await;
}

#[tokio::test]
async fn status_scale_and_spec_are_written_separately() {
    on_each(async |cluster: &Cluster| {
        let defined = Defined::install(cluster).await;
        let one = format!("{}/a", defined.all);
        let mut object = defined.widget("a", &json!({"size": 3}));
        object["status"] = json!({"replicas": 9});
        let created = cluster.post(&defined.all, &object).await.ok();
        assert_eq!((&created["status"], &created["metadata"]["generation"]), (&Value::Null, &json!(1)));
        let both = json!({"spec": {"size": 4}, "status": {"replicas": 9}});
        let specified = cluster.merge(&one, &both).await.ok();
        assert_eq!((&specified["status"], &specified["metadata"]["generation"]), (&Value::Null, &json!(2)));
        let all = json!({"spec": {"size": 5}, "status": {"replicas": 1, "selector": "a=b"}, "metadata": {"labels": {"x": "y"}}});
        let reported = cluster.merge(&format!("{one}/status"), &all).await.ok();
        assert_eq!(
            (&reported["spec"]["size"], &reported["metadata"]["labels"], &reported["metadata"]["generation"]),
            (&json!(4), &Value::Null, &json!(2))
        );
        let scale = cluster.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 7}})).await.ok();
        assert_eq!((&scale["spec"], &scale["status"]), (&json!({"replicas": 7}), &json!({"replicas": 1, "selector": "a=b"})));
        assert_eq!(cluster.get(&one).await.body["metadata"]["generation"], 3);
    })
    .await;
}

#[tokio::test]
async fn versions_share_their_objects() {
    on_each(async |cluster: &Cluster| {
        let defined = Defined::install(cluster).await;
        cluster
            .post(&defined.all, &defined.widget("a", &json!({"size": 3})))
            .await
            .ok();
        let newer = cluster.group(&format!("{}/v2", defined.group), "widgets");
        let read = cluster.get(&format!("{newer}/a")).await.ok();
        assert_eq!(read["apiVersion"], format!("{}/v2", defined.group));
        let listed = cluster.get(&newer).await.ok();
        assert_eq!(listed["items"][0]["apiVersion"], format!("{}/v2", defined.group));
        cluster
            .merge(&format!("{newer}/a"), &json!({"spec": {"size": 4}}))
            .await
            .ok();
        let older = cluster.get(&format!("{}/a", defined.all)).await.ok();
        assert_eq!(
            (&older["spec"]["size"], &older["apiVersion"]),
            (&json!(4), &json!(format!("{}/v1", defined.group)))
        );
    })
    .await;
}
