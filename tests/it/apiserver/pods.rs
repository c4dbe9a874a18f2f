//! Pods: defaults, admission, validity, binding, deletion with grace.

use serde_json::{Value, json};

use super::harness::{Cluster, on_each};

pub fn pod(name: &str, spec: &Value) -> Value {
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

pub async fn bind(cluster: &Cluster, name: &str, node: &str) -> (u16, String) {
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
async fn label_keys_become_part_of_the_selectors() {
    on_each(async |cluster: &Cluster| {
        let selector = json!({"matchLabels": {"app": "web"}});
        let keys = json!(["version", "absent"]);
        let same = json!({"labelSelector": selector, "topologyKey": "zone", "matchLabelKeys": keys});
        let other = json!({"labelSelector": {}, "topologyKey": "zone", "mismatchLabelKeys": keys});
        let spread = json!({
            "labelSelector": selector, "topologyKey": "zone", "matchLabelKeys": keys, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        });
        let mut object = pod(
            "a",
            &json!({
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [same]},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": other}]},
                },
                "topologySpreadConstraints": [spread],
            }),
        );
        object["metadata"]["labels"] = json!({"app": "web", "version": "2"});
        let created = cluster.post(&cluster.core("pods"), &object).await.ok();
        let affinity = &created["spec"]["affinity"];
        let near = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        let apart = &affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
        let spread = &created["spec"]["topologySpreadConstraints"][0];
        let added = |operator: &str| json!([{"key": "version", "operator": operator, "values": ["2"]}]);
        for term in [near, spread] {
            let merged = json!({"matchLabels": {"app": "web"}, "matchExpressions": added("In")});
            assert_eq!(term["labelSelector"], merged);
            assert_eq!(term["matchLabelKeys"], keys);
        }
        assert_eq!(apart["labelSelector"], json!({"matchExpressions": added("NotIn")}));
    })
    .await;
}

#[tokio::test]
async fn a_limit_of_the_whole_pod_is_its_request() {
    on_each(async |cluster: &Cluster| {
        let resources = json!({"limits": {"memory": "1Gi"}});
        let object = pod("a", &json!({"resources": resources}));
        let created = cluster.post(&cluster.core("pods"), &object).await.ok();
        let both = json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}});
        assert_eq!(created["spec"]["resources"], both);
    })
    .await;
}

#[tokio::test]
async fn a_pod_gets_the_overhead_and_the_nodes_of_its_runtime_class() {
    on_each(async |cluster: &Cluster| {
        let (name, all) = (cluster.namespace.clone(), cluster.core("pods"));
        let toleration = json!({"key": "sandboxed", "operator": "Exists"});
        let class = json!({
            "metadata": {"name": name}, "handler": "sandbox", "overhead": {"podFixed": {"memory": "1Gi"}},
            "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [toleration]},
        });
        let classes = "/apis/node.k8s.io/v1/runtimeclasses";
        cluster.post(classes, &class).await.ok();
        let spec = json!({"runtimeClassName": name, "nodeSelector": {"zone": "a"}});
        let created = cluster.post(&all, &pod("a", &spec)).await.ok();
        assert_eq!(created["spec"]["overhead"], json!({"memory": "1Gi"}));
        assert_eq!(created["spec"]["nodeSelector"], json!({"sandbox": "yes", "zone": "a"}));
        assert!(created["spec"]["tolerations"].as_array().unwrap().contains(&toleration));
        let elsewhere = json!({"runtimeClassName": name, "nodeSelector": {"sandbox": "no"}});
        let lighter = json!({"runtimeClassName": name, "overhead": {"memory": "1Mi"}});
        for spec in [elsewhere, lighter] {
            assert_eq!(cluster.post(&all, &pod("b", &spec)).await.code, 403, "{spec}");
        }
        cluster.delete(&format!("{classes}/{name}")).await.ok();
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
