//! Admission webhooks over TLS. Every scenario runs on devcluster and, where its binaries are, on a real API server; only
//! the resolution of Services is devcluster's own.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::{Json, Router, routing::post};
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine;
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{ApiServer, Identity, Options};

use crate::apiserver::harness::{Answer, Cluster, client_of, on_each, send};
use crate::polling::eventually;
use crate::support::free_port;

/// The requests that the webhook at each path was asked about.
type Asked = Arc<Mutex<BTreeMap<String, Vec<Value>>>>;

/// A server of webhooks; what it answers is in the path.
struct Hooks {
    address: SocketAddr,
    ca_bundle: String,
    asked: Asked,
    handle: axum_server::Handle<SocketAddr>,
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

impl Hooks {
    /// Serves with a certificate for the loopback address and for a Service `hooks` in namespace `ns`.
    async fn serve() -> Self {
        let names = vec!["127.0.0.1".to_owned(), "hooks.ns.svc".to_owned()];
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(names).expect("a certificate");
        let tls = RustlsConfig::from_pem(cert.pem().into_bytes(), signing_key.serialize_pem().into_bytes())
            .await
            .expect("TLS");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("non-blocking");
        let address = listener.local_addr().expect("an address");
        let (asked, handle) = (Asked::default(), axum_server::Handle::new());
        let router = Router::new()
            .route("/{behaviour}", post(answer))
            .with_state(asked.clone());
        let server = axum_server::from_tcp_rustls(listener, tls)
            .expect("a server")
            .handle(handle.clone());
        tokio::spawn(server.serve(router.into_make_service()));
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(cert.pem());
        Self {
            address,
            ca_bundle,
            asked,
            handle,
        }
    }

    fn asked(&self, behaviour: &str) -> Vec<Value> {
        self.asked
            .lock()
            .expect("no panic")
            .get(behaviour)
            .cloned()
            .unwrap_or_default()
    }

    fn url(&self, behaviour: &str) -> Value {
        json!({"url": format!("https://{}/{behaviour}", self.address), "caBundle": self.ca_bundle})
    }
}

async fn answer(State(asked): State<Asked>, Path(behaviour): Path<String>, Json(review): Json<Value>) -> Json<Value> {
    let request = review["request"].clone();
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let data = |key: &str| !request["object"]["data"][key].is_null();
    let mut patch = Vec::new();
    match behaviour.as_str() {
        "deny" => {
            response = json!({"uid": request["uid"], "allowed": false, "status": {"message": "no way", "code": 403, "reason": "Forbidden"}});
        }
        "warn" => response["warnings"] = json!(["careful"]),
        "first" if data("second") => patch.push(json!({"op": "add", "path": "/data/again", "value": "yes"})),
        "first" => patch.push(json!({"op": "add", "path": "/data/first", "value": "yes"})),
        "second" => patch.push(json!({"op": "add", "path": "/data/second", "value": "yes"})),
        _ => {}
    }
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(json!(patch).to_string()));
    }
    asked
        .lock()
        .expect("no panic")
        .entry(behaviour)
        .or_default()
        .push(request);
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// A webhook for config maps of the test's namespace.
fn webhook(cluster: &Cluster, name: &str, client: Value, more: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.test.dev"), "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE", "DELETE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}},
    });
    for (field, value) in more.as_object().expect("an object") {
        webhook[field] = value.clone();
    }
    webhook
}

/// Stores a configuration of the test's own and waits until `in_effect` says so of a dry-run creation; a real server
/// reads configurations with some delay.
async fn configure(cluster: &Cluster, kind: &str, webhooks: &[Value], in_effect: impl Fn(&Answer) -> bool) {
    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
        kind.to_lowercase()
    );
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": cluster.namespace}, "webhooks": webhooks,
    });
    cluster.post(&path, &configuration).await.ok();
    eventually("the webhooks come into effect", async || {
        in_effect(&create(cluster, "probe", "?dryRun=All").await).then_some(())
    })
    .await;
}

async fn create(cluster: &Cluster, name: &str, query: &str) -> Answer {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"given": "1"}});
    cluster
        .post(&format!("{}{query}", cluster.core("configmaps")), &body)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_has_the_webhooks_message() {
    on_each(async |cluster| {
        let hooks = Hooks::serve().await;
        let webhooks = [webhook(cluster, "deny", hooks.url("deny"), json!({}))];
        configure(cluster, "Validating", &webhooks, |answer| answer.code == 403).await;
        let denied = create(cluster, "c", "").await;
        let message = "admission webhook \"deny.test.dev\" denied the request: no way";
        assert_eq!(denied.refusal(), (403, "Forbidden", message));
        let request = &hooks.asked("deny")[0];
        assert_eq!(
            (&request["operation"], &request["dryRun"]),
            (&json!("CREATE"), &json!(true))
        );
        assert_eq!(
            request["resource"],
            json!({"group": "", "version": "v1", "resource": "configmaps"})
        );
        assert_eq!(request["namespace"], json!(cluster.namespace));
        assert_eq!(request["options"]["kind"], "CreateOptions");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutating_webhooks_patch_and_see_earlier_patches() {
    on_each(async |cluster| {
        let hooks = Hooks::serve().await;
        let webhooks = [
            webhook(
                cluster,
                "first",
                hooks.url("first"),
                json!({"reinvocationPolicy": "IfNeeded"}),
            ),
            webhook(cluster, "second", hooks.url("second"), json!({})),
        ];
        configure(cluster, "Mutating", &webhooks, |answer| {
            answer.body["data"]["first"] == "yes"
        })
        .await;
        let created = create(cluster, "c", "").await.ok();
        assert_eq!(
            created["data"],
            json!({"given": "1", "first": "yes", "second": "yes", "again": "yes"})
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_reach_the_client_and_deletes_show_the_old_object() {
    on_each(async |cluster| {
        let hooks = Hooks::serve().await;
        let webhooks = [webhook(cluster, "warn", hooks.url("warn"), json!({}))];
        configure(cluster, "Validating", &webhooks, |answer| {
            answer.warnings == ["299 - \"careful\""]
        })
        .await;
        create(cluster, "c", "").await.ok();
        cluster.delete(&format!("{}/c", cluster.core("configmaps"))).await.ok();
        let last = hooks.asked("warn").pop().expect("asked");
        assert_eq!((&last["operation"], &last["object"]), (&json!("DELETE"), &Value::Null));
        assert_eq!(last["oldObject"]["data"], json!({"given": "1"}));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_cannot_be_reached_fails_or_is_ignored() {
    on_each(async |cluster| {
        let closed = format!("127.0.0.1:{}", free_port());
        let client = json!({"url": format!("https://{closed}/x")});
        let webhooks = [
            webhook(cluster, "ignored", client.clone(), json!({"failurePolicy": "Ignore"})),
            webhook(cluster, "gone", client, json!({"objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]}})),
        ];
        configure(cluster, "Validating", &webhooks, |answer| answer.code == 500).await;
        let failed = create(cluster, "c", "").await;
        let expected = format!("Internal error occurred: failed calling webhook \"gone.test.dev\": failed to call webhook: Post \"https://{closed}/x?timeout=10s\": ");
        assert_eq!(failed.body["reason"], "InternalError");
        assert!(failed.message().starts_with(&expected), "{failed:?}");
        let free = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "free", "labels": {"free": "yes"}}});
        cluster.post(&cluster.core("configmaps"), &free).await.ok();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn match_conditions_select_the_requests_of_a_webhook() {
    on_each(async |cluster| {
        let hooks = Hooks::serve().await;
        let only = |expression: &str| json!({"matchConditions": [{"name": "only", "expression": expression}]});
        let chosen = "object != null && object.metadata.name == 'chosen' || object.metadata.name == 'probe'";
        let webhooks = [
            webhook(cluster, "deny", hooks.url("deny"), only(chosen)),
            webhook(cluster, "broken", hooks.url("ok"), only("object.metadata.name != 'broken' ? false : object.data.nothing == 'x'")),
        ];
        configure(cluster, "Validating", &webhooks, |answer| answer.code == 403).await;
        assert_eq!(create(cluster, "chosen", "").await.code, 403);
        create(cluster, "other", "").await.ok();
        let broken = create(cluster, "broken", "").await;
        assert_eq!(broken.code, 403);
        assert!(broken.message().ends_with("resulted in error: no such key: nothing"), "{broken:?}");
        assert!(hooks.asked("ok").is_empty());
        let refused = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": format!("{}-bad", cluster.namespace)}, "webhooks": [webhook(cluster, "bad", hooks.url("ok"), only("foo == 1"))],
        });
        let refused = cluster.post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", &refused).await;
        assert_eq!(refused.body["details"]["causes"][0]["field"], "webhooks[0].matchConditions[0].expression");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_resolve_to_configured_addresses() {
    let server = ApiServer::start(Options::default()).await.expect("starts");
    let client = client_of(&server.kubeconfig(&Identity::admin())).await;
    let hooks = Hooks::serve().await;
    let service =
        json!({"service": {"namespace": "ns", "name": "hooks", "path": "/deny"}, "caBundle": hooks.ca_bundle});
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "v"},
        "webhooks": [{
            "name": "deny.test.dev", "clientConfig": service, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        }],
    });
    let post = async |path: &str, body: &Value| {
        send(
            &client,
            "POST",
            path,
            "application/json",
            "application/json",
            body.to_string().into_bytes(),
        )
        .await
    };
    post(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        &configuration,
    )
    .await
    .ok();
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let unknown = post("/api/v1/namespaces/default/configmaps", &config_map).await;
    assert!(
        unknown
            .message()
            .ends_with("Post \"https://hooks.ns.svc:443/deny?timeout=10s\": service \"hooks\" not found"),
        "{unknown:?}"
    );
    server.map_service("ns", "hooks", 443, hooks.address);
    let denied = post("/api/v1/namespaces/default/configmaps", &config_map).await;
    assert_eq!(
        denied.refusal(),
        (
            403,
            "Forbidden",
            "admission webhook \"deny.test.dev\" denied the request: no way"
        )
    );
}
