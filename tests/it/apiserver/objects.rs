//! create, get, update, patch and delete of single objects.

use serde_json::{Value, json};

use super::harness::{Cluster, on_each};

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"key": "value"}})
}

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        let one = format!("{all}/a");
        let created = cluster.post(&all, &config_map("a")).await;
        assert_eq!(created.code, 201);
        let created = created.ok();
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            assert!(created["metadata"][field].is_string(), "{field} is missing in {created}");
        }
        let read = cluster.get(&one).await.ok();
        assert_eq!(read["data"], json!({"key": "value"}));
        assert_eq!(read["metadata"]["uid"], created["metadata"]["uid"]);

        let mut changed = read.clone();
        changed["data"]["key"] = json!("other");
        let updated = cluster.put(&one, &changed).await;
        assert_eq!(updated.code, 200);
        assert_ne!(updated.revision(), read["metadata"]["resourceVersion"]);
        let refused = cluster.put(&one, &changed).await;
        assert_eq!(
            refused.refusal(),
            (
                409,
                "Conflict",
                "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
            )
        );

        let deleted = cluster.delete(&one).await.ok();
        assert_eq!(deleted["status"], "Success");
        assert_eq!(deleted["details"], json!({"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}));
        assert_eq!(cluster.get(&one).await.refusal(), (404, "NotFound", "configmaps \"a\" not found"));
        assert_eq!(cluster.delete(&one).await.refusal(), (404, "NotFound", "configmaps \"a\" not found"));
    })
    .await;
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_revision() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("configmaps/a");
        let created = cluster.post(&cluster.core("configmaps"), &config_map("a")).await;
        let put = cluster.put(&one, &created.body).await;
        let patched = cluster.merge(&one, &json!({"data": {"key": "value"}})).await;
        assert_eq!(
            [put.revision(), patched.revision()],
            [created.revision(), created.revision()]
        );
    })
    .await;
}

#[tokio::test]
async fn creates_are_refused_with_the_reason() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        cluster.post(&all, &config_map("a")).await.ok();
        let again = cluster.post(&all, &config_map("a")).await;
        assert_eq!(
            again.refusal(),
            (409, "AlreadyExists", "configmaps \"a\" already exists")
        );
        let nowhere = cluster
            .post("/api/v1/namespaces/nowhere/configmaps", &config_map("a"))
            .await;
        assert_eq!(nowhere.refusal(), (404, "NotFound", "namespaces \"nowhere\" not found"));
        let nameless = cluster.post(&all, &json!({"metadata": {}})).await;
        assert_eq!(
            nameless.refusal(),
            (
                422,
                "Invalid",
                "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
            )
        );
        let elsewhere = cluster
            .post(&all, &json!({"metadata": {"name": "b", "namespace": "other"}}))
            .await;
        assert_eq!(
            elsewhere.refusal(),
            (
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        );
        let misnamed = cluster.post(&all, &config_map("Not_A_Name")).await;
        assert_eq!(misnamed.code, 422);
        assert_eq!(misnamed.body["details"]["causes"][0]["field"], "metadata.name");
        assert_eq!(misnamed.body["details"]["causes"][0]["reason"], "FieldValueInvalid");
        let mislabelled = cluster
            .post(&all, &json!({"metadata": {"name": "b", "labels": {"a b": "c"}}}))
            .await;
        assert_eq!(mislabelled.code, 422);
        assert_eq!(mislabelled.body["details"]["causes"][0]["field"], "metadata.labels");
        let mistyped = cluster
            .post(&all, &json!({"metadata": {"name": "b"}, "data": {"key": 1}}))
            .await;
        assert_eq!(mistyped.code, 400);
        let garbled = cluster.send("POST", &all, "application/json", b"{\"a\"".to_vec()).await;
        assert_eq!(garbled.code, 400);
        let odd = cluster.send("POST", &all, "text/css", b"{}".to_vec()).await;
        assert_eq!(
            (odd.code, odd.body["reason"].as_str()),
            (415, Some("UnsupportedMediaType"))
        );
    })
    .await;
}

#[tokio::test]
async fn unknown_fields_are_dropped_warned_of_or_refused() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        let object = json!({"metadata": {"name": "a"}, "dat": {"key": "value"}});
        let warned = cluster.post(&all, &object).await;
        assert_eq!(warned.warnings, ["299 - \"unknown field \\\"dat\\\"\""]);
        assert_eq!(warned.ok()["dat"], Value::Null);
        let strict = cluster.post(&format!("{all}?fieldValidation=Strict"), &object).await;
        assert_eq!(
            strict.refusal(),
            (
                400,
                "BadRequest",
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dat\""
            )
        );
        let ignored = cluster.put(&format!("{all}/a?fieldValidation=Ignore"), &object).await;
        assert_eq!((ignored.code, ignored.warnings.len()), (200, 0));
    })
    .await;
}

#[tokio::test]
async fn names_are_generated() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        let mut names = Vec::new();
        for _ in 0..2 {
            let created = cluster
                .post(&all, &json!({"metadata": {"generateName": "g-"}}))
                .await
                .ok();
            names.push(created["metadata"]["name"].as_str().unwrap().to_owned());
        }
        assert_ne!(names[0], names[1]);
        assert!(
            names.iter().all(|name| name.starts_with("g-") && name.len() == 7),
            "{names:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        let one = format!("{all}/a");
        let tried = cluster.post(&format!("{all}?dryRun=All"), &config_map("a")).await;
        assert_eq!(tried.code, 201);
        assert!(tried.ok()["metadata"]["uid"].is_string());
        assert_eq!(cluster.get(&one).await.code, 404);
        let created = cluster.post(&all, &config_map("a")).await;
        let tried = cluster.merge(&format!("{one}?dryRun=All"), &json!({"data": {"key": "new"}})).await.ok();
        assert_eq!(tried["data"]["key"], "new");
        cluster.delete(&format!("{one}?dryRun=All")).await.ok();
        assert_eq!(cluster.get(&one).await.revision(), created.revision());
        let odd = cluster.post(&format!("{all}?dryRun=Some"), &config_map("b")).await;
        assert_eq!(odd.message(), "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"");
    })
    .await;
}

#[tokio::test]
async fn patches_of_three_kinds_apply() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("configmaps/a");
        cluster.post(&cluster.core("configmaps"), &config_map("a")).await.ok();
        let merged = cluster.merge(&one, &json!({"data": {"key": null, "new": "1"}})).await.ok();
        assert_eq!(merged["data"], json!({"new": "1"}));
        let operations = json!([{"op": "test", "path": "/data/new", "value": "1"}, {"op": "add", "path": "/data/more", "value": "2"}]);
        let json_patch = |operations: &Value| operations.to_string().into_bytes();
        let patched = cluster.send("PATCH", &one, "application/json-patch+json", json_patch(&operations)).await.ok();
        assert_eq!(patched["data"], json!({"new": "1", "more": "2"}));
        let failing = json!([{"op": "test", "path": "/data/new", "value": "9"}]);
        let failed = cluster.send("PATCH", &one, "application/json-patch+json", json_patch(&failing)).await;
        assert_eq!(
            failed.refusal(),
            (422, "Invalid", "the server rejected our request due to an error in our request")
        );
        let strategic = cluster.strategic(&one, &json!({"metadata": {"labels": {"new": "1"}}})).await.ok();
        assert_eq!(strategic["metadata"]["labels"], json!({"app": "a", "new": "1"}));
        let stale = cluster.merge(&one, &json!({"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}})).await;
        assert_eq!((stale.code, stale.body["reason"].as_str()), (409, Some("Conflict")));
        let renamed = cluster.merge(&one, &json!({"metadata": {"name": "b"}})).await;
        assert_eq!(renamed.refusal(), (400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"));
        let missing = cluster.merge(&cluster.core("configmaps/none"), &json!({})).await;
        assert_eq!(missing.code, 404);
        assert_eq!(cluster.send("PATCH", &one, "application/json", b"{}".to_vec()).await.code, 415);
    })
    .await;
}

#[tokio::test]
async fn preconditions_are_held() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("configmaps/a");
        let created = cluster.post(&cluster.core("configmaps"), &config_map("a")).await.ok();
        let other = "00000000-0000-0000-0000-000000000000";
        let put = cluster.put(&one, &json!({"metadata": {"name": "a", "uid": other}})).await;
        assert_eq!((put.code, put.body["reason"].as_str()), (409, Some("Conflict")));
        let delete = |preconditions: Value| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
        let send = async |preconditions: Value| {
            cluster.send("DELETE", &one, "application/json", delete(preconditions).to_string().into_bytes()).await
        };
        let uid = created["metadata"]["uid"].as_str().unwrap();
        assert_eq!(
            send(json!({"uid": other})).await.message(),
            format!("Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({other}) does not match the UID in record ({uid}). The object might have been deleted and then recreated")
        );
        assert_eq!(send(json!({"resourceVersion": "1"})).await.code, 409);
        assert_eq!(send(json!({"uid": uid})).await.code, 200);
    })
    .await;
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("configmaps/a");
        let mut object = config_map("a");
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        cluster.post(&cluster.core("configmaps"), &object).await.ok();
        let deleting = cluster.delete(&one).await.ok();
        assert!(deleting["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 0);
        assert_eq!(cluster.delete(&one).await.revision(), deleting["metadata"]["resourceVersion"]);
        let added = cluster.merge(&one, &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})).await;
        assert_eq!(
            added.message(),
            "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/more\"}"
        );
        let last = cluster.merge(&one, &json!({"metadata": {"finalizers": null}})).await.ok();
        assert_eq!(last["data"], json!({"key": "value"}));
        assert_eq!(cluster.get(&one).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn propagation_is_written_as_finalizers() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
            let name = policy.to_lowercase();
            cluster.post(&all, &config_map(&name)).await.ok();
            let one = format!("{all}/{name}");
            cluster.delete(&format!("{one}?propagationPolicy={policy}")).await.ok();
            assert_eq!(
                cluster.get(&one).await.body["metadata"]["finalizers"],
                json!([finalizer])
            );
        }
        cluster.post(&all, &config_map("background")).await.ok();
        cluster
            .delete(&format!("{all}/background?propagationPolicy=Background"))
            .await
            .ok();
        assert_eq!(cluster.get(&format!("{all}/background")).await.code, 404);
        let odd = cluster.delete(&format!("{all}/orphan?propagationPolicy=Odd")).await;
        assert_eq!(odd.code, 422);
    })
    .await;
}

#[tokio::test]
async fn a_terminating_namespace_accepts_no_new_objects() {
    on_each(async |cluster: &Cluster| {
        let name = format!("{}-leaving", cluster.namespace);
        let path = format!("/api/v1/namespaces/{name}");
        let created = cluster.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.ok();
        assert_eq!(created["metadata"]["labels"], json!({"kubernetes.io/metadata.name": name}));
        assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(created["status"]["phase"], "Active");
        let leaving = cluster.delete(&path).await.ok();
        assert_eq!(leaving["status"]["phase"], "Terminating");
        let refused = cluster.post(&format!("{path}/configmaps"), &config_map("a")).await;
        assert_eq!(
            refused.refusal(),
            (
                403,
                "Forbidden",
                &*format!("configmaps \"a\" is forbidden: unable to create new content in namespace {name} because it is being terminated")
            )
        );
        assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
        let mut finalized = leaving.clone();
        finalized["spec"]["finalizers"] = json!([]);
        cluster.put(&format!("{path}/finalize"), &finalized).await.ok();
        assert_eq!(cluster.get(&path).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn unserved_kinds_get_404() {
    on_each(async |cluster: &Cluster| {
        let missing = "the server could not find the requested resource";
        for path in [cluster.core("unknowns"), cluster.group("apps/v1", "unknowns")] {
            assert_eq!(cluster.get(&path).await.refusal(), (404, "NotFound", missing), "{path}");
            let posted = cluster.post(&path, &json!({"metadata": {"name": "x"}})).await;
            assert_eq!(posted.refusal(), (404, "NotFound", missing), "{path}");
        }
        // Of a group or version that is not served the real server has no handler: it answers with a plain text, for which clients say the same.
        for (version, resource) in [("apps/v9", "deployments"), ("kubeflow.org/v1", "pytorchjobs")] {
            let path = cluster.group(version, resource);
            assert_eq!(cluster.get(&path).await.code, 404, "{path}");
            let posted = cluster.post(&path, &json!({"metadata": {"name": "x"}})).await;
            assert_eq!(posted.code, 404, "{path}");
        }
        for document in [
            "/apis/kubeflow.org",
            "/apis/kubeflow.org/v1",
            "/openapi/v3/apis/kubeflow.org/v1",
        ] {
            assert_eq!(cluster.get(document).await.code, 404, "{document}");
        }
        let refused = "the server does not allow this method on the requested resource";
        for (method, path) in [("PUT", "configmaps"), ("PATCH", "configmaps"), ("POST", "configmaps/a")] {
            let answer = cluster
                .send(method, &cluster.core(path), "application/json", b"{}".to_vec())
                .await;
            assert_eq!(answer.refusal(), (405, "MethodNotAllowed", refused), "{method} {path}");
        }
        assert_eq!(cluster.delete("/api/v1/namespaces").await.code, 405);
        let odd = cluster.get_as(&cluster.core("configmaps"), "application/x-odd").await;
        assert_eq!(odd.code, 406);
    })
    .await;
}

#[tokio::test]
async fn statuses_and_specs_are_written_apart() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.group("apps/v1", "deployments");
        let one = format!("{all}/web");
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let object = json!({"metadata": {"name": "web"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
        let created = cluster.post(&all, &object).await.ok();
        assert_eq!(created["metadata"]["generation"], 1);
        assert_eq!(
            created["spec"]["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
        );
        let labelled = cluster.merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
        assert_eq!(labelled["metadata"]["generation"], 1);
        let both = json!({"spec": {"paused": true}, "status": {"observedGeneration": 7}});
        let specified = cluster.merge(&one, &both).await.ok();
        assert_eq!(specified["metadata"]["generation"], 2);
        assert_eq!(specified["status"]["observedGeneration"], Value::Null);
        let both = json!({"spec": {"paused": null}, "status": {"observedGeneration": 7}, "metadata": {"labels": {"a": null}}});
        let reported = cluster.merge(&format!("{one}/status"), &both).await.ok();
        assert_eq!(reported["metadata"]["generation"], 2);
        assert_eq!(reported["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(reported["spec"]["paused"], true);
        assert_eq!(reported["status"]["observedGeneration"], 7);
        let moved = cluster.merge(&one, &json!({"spec": {"selector": {"matchLabels": {"app": "web", "b": "c"}}}})).await;
        assert_eq!(moved.code, 422);
    })
    .await;
}

#[tokio::test]
async fn workloads_scale() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.group("apps/v1", "replicasets");
        let one = format!("{all}/web");
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template});
        cluster
            .post(&all, &json!({"metadata": {"name": "web"}, "spec": spec}))
            .await
            .ok();
        let scaled = cluster
            .merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 3}}))
            .await
            .ok();
        assert_eq!(
            (&scaled["kind"], &scaled["spec"]),
            (&json!("Scale"), &json!({"replicas": 3}))
        );
        assert_eq!(cluster.get(&one).await.body["spec"]["replicas"], 3);
        let read = cluster.get(&format!("{one}/scale")).await.ok();
        assert_eq!(read["status"], json!({"replicas": 0, "selector": "app=web"}));
        let negative = cluster
            .merge(&format!("{one}/scale"), &json!({"spec": {"replicas": -1}}))
            .await;
        assert_eq!(
            negative.message(),
            "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
    })
    .await;
}

#[tokio::test]
async fn a_job_selects_its_pods_and_orphans_them_on_deletion() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.group("batch/v1", "jobs");
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let created = cluster
            .post(
                &all,
                &json!({"metadata": {"name": "train"}, "spec": {"template": template}}),
            )
            .await
            .ok();
        let uid = &created["metadata"]["uid"];
        assert_eq!(
            created["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
        );
        assert_eq!(
            created["spec"]["template"]["metadata"]["labels"],
            json!({
                "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
                "batch.kubernetes.io/job-name": "train", "job-name": "train",
            })
        );
        let fields = [
            "parallelism",
            "completions",
            "backoffLimit",
            "completionMode",
            "suspend",
        ];
        let defaults: Vec<&Value> = fields.iter().map(|field| &created["spec"][*field]).collect();
        assert_eq!(json!(defaults), json!([1, 1, 6, "NonIndexed", false]));
        let deleted = cluster.delete(&format!("{all}/train")).await;
        assert_eq!(deleted.warnings.len(), 1);
        assert_eq!(
            cluster.get(&format!("{all}/train")).await.body["metadata"]["finalizers"],
            json!(["orphan"])
        );
    })
    .await;
}

#[tokio::test]
async fn events_are_the_same_in_both_groups() {
    on_each(async |cluster: &Cluster| {
        let newer = cluster.group("events.k8s.io/v1", "events");
        let event = json!({
            "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p", "namespace": cluster.namespace}, "reason": "Scheduled",
            "note": "placed", "type": "Normal", "action": "Binding", "reportingController": "unikai", "reportingInstance": "unikai-0",
            "eventTime": "2026-01-01T00:00:00.000000Z",
        });
        cluster.post(&newer, &event).await.ok();
        let core = cluster.get(&cluster.core("events/e")).await.ok();
        assert_eq!(
            [&core["message"], &core["involvedObject"]["name"], &core["reportingComponent"], &core["apiVersion"]],
            ["placed", "p", "unikai", "v1"]
        );
        let found = cluster.get(&cluster.core("events?fieldSelector=involvedObject.name%3Dp,reason%3DScheduled")).await.ok();
        assert_eq!(found["items"].as_array().unwrap().len(), 1);
        let found = cluster.get(&format!("{newer}?fieldSelector=regarding.name%3Dother")).await.ok();
        assert_eq!(found["items"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn reviews_show_the_users_identity_and_rights() {
    on_each(async |cluster: &Cluster| {
        let me = cluster
            .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}))
            .await
            .ok();
        assert_eq!(me["status"]["userInfo"]["username"], "admin");
        let spec = json!({"resourceAttributes": {"verb": "delete", "resource": "nodes"}});
        let may = cluster
            .post(
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                &json!({"spec": spec}),
            )
            .await
            .ok();
        assert_eq!(may["status"]["allowed"], true);
    })
    .await;
}

#[tokio::test]
async fn system_namespaces_cannot_be_deleted_and_nodes_have_no_namespace() {
    on_each(async |cluster: &Cluster| {
        assert_eq!(
            cluster.delete("/api/v1/namespaces/default").await.refusal(),
            (
                403,
                "Forbidden",
                "namespaces \"default\" is forbidden: this namespace may not be deleted"
            )
        );
        assert_eq!(cluster.get(&cluster.core("nodes")).await.code, 404);
        assert_eq!(cluster.get("/api/v1/configmaps/a").await.code, 404);
        assert_eq!(cluster.post("/api/v1/configmaps", &config_map("a")).await.code, 405);
    })
    .await;
}
