//! Custom resources as clients see them: definitions, validation, defaults, subresources, tables. Every scenario runs on
//! devcluster and, where its binaries are, on a real API server.

use serde_json::{Value, json};

use crate::apiserver::harness::{Answer, Cluster, on_each};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A CRD of the test's own and the paths of its objects.
struct Widgets<'a> {
    cluster: &'a Cluster,
    group: String,
}

impl<'a> Widgets<'a> {
    /// Installs the widget CRD in a group that no other test has.
    async fn install(cluster: &'a Cluster) -> Self {
        let group = format!("{}.test.dev", cluster.namespace);
        let source =
            include_str!("../../src/devcluster/apiserver/schema/tests/widget.yaml").replace("test.dev", &group);
        let source: Value = serde_yaml_ng::from_str(&source).expect("YAML");
        cluster
            .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &source)
            .await
            .ok();
        let widgets = Self { cluster, group };
        cluster
            .wait_for(&widgets.collection(), |answer| answer.code == 200)
            .await;
        widgets
    }

    fn collection(&self) -> String {
        self.cluster.group(&format!("{}/v1", self.group), "widgets")
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.collection())
    }

    fn object(&self, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": format!("{}/v1", self.group), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
    }

    async fn create(&self, name: &str, spec: Value) -> Answer {
        self.cluster.post(&self.collection(), &self.object(name, &spec)).await
    }

    /// The sentence behind `… is invalid: ` of a refused creation.
    async fn refusal(&self, spec: Value) -> String {
        let answer = self.create("refused", spec).await;
        assert_eq!(
            (answer.code, &answer.body["reason"]),
            (422, &json!("Invalid")),
            "{answer:?}"
        );
        let about = format!("Widget.{} \"refused\" is invalid: ", self.group);
        answer
            .message()
            .strip_prefix(&about)
            .expect("a sentence about the widget")
            .to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_name_the_error() {
    on_each(async |cluster| {
        let widgets = Widgets::install(cluster).await;
        let not_checked = "<nil>: Invalid value: null: some validation rules were not checked because the object was \
                           invalid; correct the existing errors to complete validation";
        for (spec, expected) in [
            (json!({"name": "AB"}), "spec.name: Invalid value: \"AB\": spec.name in body should match '^[a-z]+$'".to_owned()),
            (json!({}), format!("[spec.name: Required value, {not_checked}]")),
            (
                json!({"name": "ab", "mode": "z"}),
                format!("[spec.mode: Unsupported value: \"z\": supported values: \"a\", \"b\", {not_checked}]"),
            ),
            (
                json!({"name": "ab", "count": "x"}),
                format!("[spec.count: Invalid value: \"string\": spec.count in body must be of type integer: \"string\", {not_checked}]"),
            ),
            (json!({"name": "ab", "items": [{"name": "a"}, {"name": "a"}]}), "spec.items[1]: Duplicate value: {\"name\":\"a\"}".to_owned()),
            (
                json!({"name": "ab", "levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}),
                "spec.levels: Invalid value: nodeLabel must be unique".to_owned(),
            ),
            (json!({"name": "ab", "celmsg": 1}), "spec.celmsg: Forbidden: got small".to_owned()),
            (json!({"name": "ab", "count": 5, "big": 4}), "spec.count: Invalid value: count below big".to_owned()),
        ] {
            assert_eq!(widgets.refusal(spec.clone()).await, expected, "{spec}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_pruned_defaulted_and_told_of() {
    on_each(async |cluster| {
        let widgets = Widgets::install(cluster).await;
        let spec = json!({"name": "ab", "foo": 1, "items": [{"name": "x", "zz": 1}], "nested": {"q": 1}, "flag": null});
        let created = widgets.create("w", spec.clone()).await;
        assert_eq!(
            created.warnings,
            ["spec.foo", "spec.items[0].zz", "spec.nested.q"].map(|field| format!("299 - \"unknown field \\\"{field}\\\"\""))
        );
        let stored = created.ok();
        let expected = json!({
            "name": "ab", "flag": true, "mode": "a", "nulldef": "x", "nested": {"deep": "dd"}, "items": [{"name": "x", "value": 7}],
        });
        assert_eq!(stored["spec"], expected);
        let path = format!("{}?fieldValidation=Strict", widgets.collection());
        let strict = cluster.post(&path, &widgets.object("strict", &spec)).await;
        assert_eq!(strict.code, 400);
        let unknown = r#"strict decoding error: unknown field "spec.foo", unknown field "spec.items[0].zz", unknown field "spec.nested.q""#;
        assert!(strict.message().ends_with(unknown), "{}", strict.message());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn main_status_and_scale_are_written_separately() {
    on_each(async |cluster| {
        let widgets = Widgets::install(cluster).await;
        let mut object = widgets.object("w", &json!({"name": "ab", "replicas": 1}));
        object["status"] = json!({"replicas": 9});
        let created = cluster.post(&widgets.collection(), &object).await.ok();
        assert_eq!((created.get("status"), &created["metadata"]["generation"]), (None, &json!(1)));

        let path = widgets.path("w");
        let changed = cluster.merge(&path, &json!({"spec": {"count": 4}, "status": {"replicas": 4}})).await.ok();
        assert_eq!((changed.get("status"), &changed["metadata"]["generation"]), (None, &json!(2)));
        let labelled = cluster.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
        assert_eq!(labelled["metadata"]["generation"], 2);

        let status = json!({"metadata": {"labels": {"c": "d"}}, "spec": {"count": 5}, "status": {"replicas": 4, "selector": "a=b"}});
        let observed = cluster.merge(&format!("{path}/status"), &status).await.ok();
        assert_eq!(observed["spec"]["count"], 4);
        assert_eq!(observed["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!((&observed["status"]["replicas"], &observed["metadata"]["generation"]), (&json!(4), &json!(2)));

        let scale = cluster.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 7}})).await.ok();
        assert_eq!((&scale["spec"]["replicas"], &scale["status"]), (&json!(7), &json!({"replicas": 4, "selector": "a=b"})));
        assert_eq!(cluster.get(&path).await.ok()["spec"]["replicas"], 7);
        let negative = cluster.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": -1}})).await;
        assert!(negative.message().ends_with(".spec.replicas: Invalid value: -1: should be a non-negative integer"), "{negative:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn immutable_fields_stay_and_strategic_patches_are_refused() {
    on_each(async |cluster| {
        let widgets = Widgets::install(cluster).await;
        widgets
            .create("w", json!({"name": "ab", "levels": [{"nodeLabel": "a"}]}))
            .await
            .ok();
        let patch = json!({"spec": {"levels": [{"nodeLabel": "b"}]}});
        let immutable = cluster.merge(&widgets.path("w"), &patch).await;
        assert!(
            immutable
                .message()
                .ends_with("is invalid: spec.levels: Invalid value: immutable levels"),
            "{immutable:?}"
        );
        assert_eq!(cluster.strategic(&widgets.path("w"), &patch).await.code, 415);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_show_the_printer_columns() {
    on_each(async |cluster| {
        let widgets = Widgets::install(cluster).await;
        let spec = json!({"name": "ab", "count": 3, "items": [{"name": "x"}, {"name": "y"}], "tags": ["t"], "free": {"a": 1}, "ratio": 0.5});
        widgets.create("w", spec).await.ok();
        let status = json!({"status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        cluster.merge(&format!("{}/status", widgets.path("w")), &status).await.ok();
        let table = cluster.get_as(&widgets.collection(), TABLE).await.ok();
        let columns: Vec<&Value> = table["columnDefinitions"].as_array().expect("columns").iter().map(|column| &column["name"]).collect();
        assert_eq!(json!(columns), json!(["Name", "Count", "Names", "When", "Ready", "Obj", "Flag", "Bad", "Arr", "Num"]));
        assert_eq!(table["rows"][0]["cells"], json!(["w", 3, "x", null, "True", "{\"a\":1}", true, null, "[\"t\"]", 0.5]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_definitions_are_refused() {
    on_each(async |cluster| {
        let group = format!("{}.test.dev", cluster.namespace);
        let mut errors = Vec::new();
        let properties = json!({
            "untyped": {}, "list": {"type": "array"}, "set": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
            "wrong": {"type": "string", "default": 5},
            "rule": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}, "x-kubernetes-validations": [{"rule": "self.b == 'x'"}]},
        });
        for (name, schema) in properties.as_object().expect("an object") {
            let crd = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("foos.{group}")},
                "spec": {"group": group, "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"}, "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {name: schema}}},
                }]},
            });
            let answer = cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
            assert_eq!(answer.code, 422, "{name}: {answer:?}");
            errors.push((answer.body["details"]["causes"][0]["reason"].clone(), answer.body["details"]["causes"][0]["field"].clone()));
        }
        let at = |path: &str| json!(format!("spec.validation.openAPIV3Schema.properties{path}"));
        assert_eq!(
            errors,
            [
                (json!("FieldValueRequired"), at("[list].items")),
                (json!("FieldValueInvalid"), at("[rule].x-kubernetes-validations[0].rule")),
                (json!("FieldValueForbidden"), at("[set].uniqueItems")),
                (json!("FieldValueRequired"), at("[untyped].type")),
                (json!("FieldValueTypeInvalid"), at("[wrong].default")),
            ]
        );
    })
    .await;
}
