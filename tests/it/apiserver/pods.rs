//! Pods: defaults, admission, validity, binding, deletion with grace, eviction.

use serde_json::{Value, json};

use super::harness::{Cluster, on_each};

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "ubuntu"}]},
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn with_resources(resources: &Value) -> Value {
    json!({"containers": [{"name": "main", "image": "ubuntu", "resources": resources}]})
}

async fn bind(cluster: &Cluster, name: &str, node: &str) -> (u16, String) {
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
    let answer = cluster
        .post(&cluster.core(&format!("pods/{name}/binding")), &binding)
        .await;
    (answer.code, answer.message().to_owned())
}

#[tokio::test]
async fn a_new_pod_has_the_defaults() {
    on_each(async |cluster: &Cluster| {
        let limits = json!({"limits": {"nvidia.com/gpu": 1, "cpu": 0.5}, "requests": {"memory": "1024Mi"}});
        let created = cluster.post(&cluster.core("pods"), &pod("a", &with_resources(&limits))).await.ok();
        assert_eq!(created["metadata"]["generation"], 1);
        assert_eq!(created["status"], json!({"phase": "Pending", "qosClass": "Burstable"}));
        assert_eq!(
            created["spec"],
            json!({
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "main", "image": "ubuntu", "imagePullPolicy": "Always",
                    "resources": {
                        "limits": {"cpu": "500m", "nvidia.com/gpu": "1"},
                        "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"},
                    },
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
                "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
                "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
                "tolerations": [
                    {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
                    {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
                ],
            })
        );
        let classes = [
            (json!({}), "BestEffort"),
            (json!({"limits": {"nvidia.com/gpu": 1}}), "BestEffort"),
            (json!({"requests": {"cpu": 1}}), "Burstable"),
            (json!({"limits": {"cpu": 1, "memory": "1Gi"}}), "Guaranteed"),
        ];
        for (index, (resources, class)) in classes.iter().enumerate() {
            let object = pod(&format!("q{index}"), &with_resources(resources));
            let created = cluster.post(&cluster.core("pods?dryRun=All"), &object).await.ok();
            assert_eq!(created["status"]["qosClass"], *class, "{resources}");
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_pods_are_refused_with_causes() {
    on_each(async |cluster: &Cluster| {
        let cases = [
            (json!({"containers": []}), "spec.containers: Required value"),
            (json!({"containers": [{"name": "c"}]}), "spec.containers[0].image: Required value"),
            (json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}), "spec.containers[1].name: Duplicate value: \"c\""),
            (
                with_resources(&json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
            (
                with_resources(&json!({"requests": {"nvidia.com/gpu": 1}})),
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            ),
            (
                with_resources(&json!({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}})),
                "spec.containers[0].resources.requests: Invalid value: \"1\": must be equal to nvidia.com/gpu limit of 2",
            ),
            (
                with_resources(&json!({"requests": {"cpu": "-1"}})),
                "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                json!({"restartPolicy": "Sometimes"}),
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ),
        ];
        for (spec, why) in cases {
            let refused = cluster.post(&cluster.core("pods"), &pod("a", &spec)).await;
            assert_eq!(refused.refusal(), (422, "Invalid", &*format!("Pod \"a\" is invalid: {why}")));
        }
        let unparsed = cluster.post(&cluster.core("pods"), &pod("a", &with_resources(&json!({"requests": {"cpu": "much"}})))).await;
        assert_eq!(unparsed.code, 400);
    })
    .await;
}

#[tokio::test]
async fn priorities_come_from_classes() {
    on_each(async |cluster: &Cluster| {
        let class = cluster.namespace.clone();
        let object = json!({"metadata": {"name": class}, "value": 1000, "preemptionPolicy": "Never"});
        cluster
            .post("/apis/scheduling.k8s.io/v1/priorityclasses", &object)
            .await
            .ok();
        let all = cluster.core("pods");
        // The real server reads classes by a watch.
        let mut created = cluster
            .post(&all, &pod("a", &json!({"priorityClassName": class})))
            .await;
        for _ in 0..100 {
            if created.code == 201 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            created = cluster
                .post(&all, &pod("a", &json!({"priorityClassName": class})))
                .await;
        }
        let created = created.ok();
        assert_eq!(
            [&created["spec"]["priority"], &created["spec"]["preemptionPolicy"]],
            [&json!(1000), &json!("Never")]
        );
        let unknown = cluster
            .post(&all, &pod("b", &json!({"priorityClassName": "none"})))
            .await;
        assert_eq!(
            unknown.refusal(),
            (
                403,
                "Forbidden",
                "pods \"b\" is forbidden: no PriorityClass with name none was found"
            )
        );
        let given = cluster.post(&all, &pod("b", &json!({"priority": 5}))).await;
        assert_eq!(given.code, 403);
        let changed = cluster
            .merge(
                &format!("/apis/scheduling.k8s.io/v1/priorityclasses/{class}"),
                &json!({"value": 1}),
            )
            .await;
        assert_eq!(changed.code, 422);
        let account = cluster
            .post(&all, &pod("b", &json!({"serviceAccountName": "none"})))
            .await;
        assert_eq!(
            account.message(),
            format!(
                "pods \"b\" is forbidden: error looking up service account {}/none: serviceaccount \"none\" not found",
                cluster.namespace
            )
        );
    })
    .await;
}

#[tokio::test]
async fn little_of_a_pod_can_be_changed() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("pods/a");
        cluster.post(&cluster.core("pods"), &pod("a", &json!({}))).await.ok();
        for spec in [
            json!({"nodeName": "n"}),
            json!({"schedulerName": "other"}),
            json!({"nodeSelector": {"a": "b"}}),
        ] {
            let refused = cluster.merge(&one, &json!({"spec": spec})).await;
            assert_eq!(refused.code, 422, "{spec}");
            assert!(
                refused
                    .message()
                    .starts_with("Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields other than"),
                "{refused:?}"
            );
        }
        let image = json!({"spec": {"containers": [{"name": "main", "image": "other"}]}});
        let changed = cluster.strategic(&one, &image).await.ok();
        assert_eq!(changed["spec"]["containers"][0]["image"], "other");
        assert_eq!(changed["metadata"]["generation"], 2);
        let both =
            json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}, "metadata": {"annotations": {"a": "b"}}});
        let reported = cluster.strategic(&format!("{one}/status"), &both).await.ok();
        assert_eq!(
            [&reported["status"]["phase"], &reported["spec"]["nodeName"]],
            [&json!("Running"), &Value::Null]
        );
        assert_eq!(reported["metadata"]["annotations"], json!({"a": "b"}));
    })
    .await;
}

#[tokio::test]
async fn a_binding_is_written_once() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("pods/a");
        let created = cluster.post(&cluster.core("pods"), &pod("a", &json!({}))).await.ok();
        let path = format!("{one}/binding");
        let refused = async |metadata: Value, target: Value| {
            let answer = cluster
                .post(&path, &json!({"metadata": metadata, "target": target}))
                .await;
            (answer.code, answer.message().to_owned())
        };
        let node = json!({"kind": "Node", "name": "n1"});
        assert_eq!(
            refused(json!({"name": "b"}), node.clone()).await,
            (400, "name in URL does not match name in Binding object".to_owned())
        );
        assert_eq!(
            refused(json!({"name": "a"}), json!({})).await,
            (500, "target.name: Required value".to_owned())
        );
        let other = "00000000-0000-0000-0000-000000000000";
        let (code, message) = refused(json!({"name": "a", "uid": other}), node.clone()).await;
        let uid = created["metadata"]["uid"].as_str().unwrap();
        assert_eq!(code, 409);
        assert!(
            message.contains(&format!(
                "Precondition failed: UID in precondition: {other}, UID in object meta: {uid}"
            )),
            "{message}"
        );

        let metadata = json!({"name": "a", "uid": uid, "annotations": {"gpus": "0,1"}});
        let bound = cluster
            .post(&path, &json!({"metadata": metadata, "target": node}))
            .await;
        assert_eq!((bound.code, bound.body["status"].as_str()), (201, Some("Success")));
        let read = cluster.get(&one).await.ok();
        assert_eq!(read["spec"]["nodeName"], "n1");
        assert_eq!(read["metadata"]["annotations"], json!({"gpus": "0,1"}));
        assert_eq!(read["metadata"]["generation"], 1);
        let condition = &read["status"]["conditions"][0];
        assert_eq!([&condition["type"], &condition["status"]], ["PodScheduled", "True"]);

        assert_eq!(
            bind(cluster, "a", "n2").await,
            (
                409,
                "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""
                    .to_owned()
            )
        );
        assert_eq!(
            bind(cluster, "none", "n1").await,
            (404, "pods \"none\" not found".to_owned())
        );
        let found = cluster
            .get(&cluster.core("pods?fieldSelector=spec.nodeName%3Dn1,status.phase%3DPending"))
            .await
            .ok();
        assert_eq!(found["items"].as_array().unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn gates_hold_a_pod_back() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("pods/a");
        let gated = pod("a", &json!({"schedulingGates": [{"name": "example.com/wait"}]}));
        let created = cluster.post(&cluster.core("pods"), &gated).await.ok();
        assert_eq!(created["status"]["conditions"][0]["reason"], "SchedulingGated");
        assert_eq!(
            bind(cluster, "a", "n1").await,
            (
                409,
                "Operation cannot be fulfilled on pods/binding \"a\": pod a has non-empty .spec.schedulingGates"
                    .to_owned()
            )
        );
        let more = json!({"spec": {"schedulingGates": [{"name": "example.com/wait"}, {"name": "example.com/more"}]}});
        assert_eq!(cluster.merge(&one, &more).await.code, 422);
        cluster
            .merge(&one, &json!({"spec": {"schedulingGates": null}}))
            .await
            .ok();
        assert_eq!(bind(cluster, "a", "n1").await.0, 201);
    })
    .await;
}

#[tokio::test]
async fn a_bound_pod_has_a_grace_period() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("pods");
        cluster.post(&all, &pod("free", &json!({}))).await.ok();
        let deleted = cluster.delete(&format!("{all}/free")).await.ok();
        assert_eq!([&deleted["kind"], &deleted["metadata"]["deletionGracePeriodSeconds"]], [&json!("Pod"), &json!(0)]);
        assert_eq!(cluster.get(&format!("{all}/free")).await.code, 404);

        cluster.post(&all, &pod("a", &json!({"terminationGracePeriodSeconds": 40}))).await.ok();
        assert_eq!(bind(cluster, "a", "n1").await.0, 201);
        let one = format!("{all}/a");
        let deleting = cluster.delete(&one).await.ok();
        assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 40);
        assert_eq!(deleting["metadata"]["generation"], 2);
        let again = cluster.delete(&one).await;
        assert_eq!(again.revision(), deleting["metadata"]["resourceVersion"]);
        let sooner = cluster.delete(&format!("{one}?gracePeriodSeconds=5")).await.ok();
        assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
        let later = cluster.delete(&format!("{one}?gracePeriodSeconds=50")).await.ok();
        assert_eq!(later["metadata"]["deletionGracePeriodSeconds"], 5);
        assert_eq!(
            bind(cluster, "a", "n2").await,
            (409, "Operation cannot be fulfilled on pods/binding \"a\": pod a is being deleted, cannot be assigned to a host".to_owned())
        );
        cluster.delete(&format!("{one}?gracePeriodSeconds=0")).await.ok();
        assert_eq!(cluster.get(&one).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn a_finished_pod_is_deleted_at_once() {
    on_each(async |cluster: &Cluster| {
        let one = cluster.core("pods/a");
        cluster.post(&cluster.core("pods"), &pod("a", &json!({}))).await.ok();
        assert_eq!(bind(cluster, "a", "n1").await.0, 201);
        cluster
            .merge(&format!("{one}/status"), &json!({"status": {"phase": "Succeeded"}}))
            .await
            .ok();
        cluster.delete(&one).await.ok();
        assert_eq!(cluster.get(&one).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn an_eviction_respects_budgets() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("pods");
        for name in ["a", "b"] {
            let mut object = pod(name, &json!({}));
            object["metadata"]["labels"] = json!({"app": "web"});
            cluster.post(&all, &object).await.ok();
            assert_eq!(bind(cluster, name, "n1").await.0, 201);
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            cluster.strategic(&format!("{all}/{name}/status"), &status).await.ok();
        }
        let budgets = cluster.group("policy/v1", "poddisruptionbudgets");
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
        cluster.post(&budgets, &json!({"metadata": {"name": "web"}, "spec": spec})).await.ok();
        let evict = async |name: &str| {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": cluster.namespace}});
            cluster.post(&format!("{all}/{name}/eviction"), &eviction).await
        };
        let early = evict("a").await;
        assert_eq!(
            (early.refusal(), &early.body["details"]["causes"][0]["message"]),
            (
                (429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."),
                &json!("The disruption budget web is still being processed by the server.")
            )
        );
        let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2});
        cluster.merge(&format!("{budgets}/web/status"), &json!({"status": status})).await.ok();
        let evicted = evict("a").await;
        assert_eq!((evicted.code, evicted.body["status"].as_str()), (201, Some("Success")));
        assert!(cluster.get(&format!("{all}/a")).await.body["metadata"]["deletionTimestamp"].is_string());
        let budget = cluster.get(&format!("{budgets}/web")).await.ok();
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
        assert!(budget["status"]["disruptedPods"]["a"].is_string());
        let spent = evict("b").await;
        assert_eq!(spent.code, 429);
        assert_eq!(spent.body["details"]["causes"][0]["message"], "The disruption budget web does not allow evicting pods currently");
        assert_eq!(evict("none").await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn a_new_node_is_not_ready_until_its_status_says_so() {
    on_each(async |cluster: &Cluster| {
        let name = cluster.namespace.clone();
        let node = json!({"metadata": {"name": name}, "status": {"capacity": {"cpu": 4, "nvidia.com/gpu": 8}}});
        let created = cluster.post("/api/v1/nodes", &node).await.ok();
        assert_eq!(
            created["spec"]["taints"],
            json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
        );
        assert_eq!(
            created["status"]["allocatable"],
            json!({"cpu": "4", "nvidia.com/gpu": "8"})
        );
        let path = format!("/api/v1/nodes/{name}");
        let cordoned = cluster
            .strategic(&path, &json!({"spec": {"unschedulable": true}}))
            .await
            .ok();
        assert_eq!(cordoned["spec"]["unschedulable"], true);
        let found = cluster
            .get(&format!(
                "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue,metadata.name%3D{name}"
            ))
            .await
            .ok();
        assert_eq!(found["items"].as_array().unwrap().len(), 1);
        cluster.delete(&path).await.ok();
    })
    .await;
}
