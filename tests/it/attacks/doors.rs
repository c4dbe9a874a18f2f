//! Webhooks that authenticate the API server by its certificate (`--webhook-client-ca`), over TLS: its reviews are answered, those of others are not.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use unikai::api::names::webhook;
use unikai::devcluster::apiserver::{ApiServer, Options};

use super::arena::Arena;
use crate::apiserver::harness::{client_of, try_send};

/// A certificate and its key, PEM.
struct Shown {
    certificate: String,
    key: String,
}

/// An authority that signs the certificate of the API server and nothing else.
struct Authority {
    certificate: String,
    client: Shown,
}

impl Authority {
    fn new() -> Self {
        let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let mut client = CertificateParams::new(vec!["kube-apiserver".to_owned()]).unwrap();
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client = client
            .signed_by(&key, &Issuer::from_params(&authority, &authority_key))
            .unwrap();
        Self {
            certificate: authority.self_signed(&authority_key).unwrap().pem(),
            client: Shown {
                certificate: client.pem(),
                key: key.serialize_pem(),
            },
        }
    }
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// Posts a review to a webhook, as a client that accepts any certificate. Returns the status, if there is an answer.
async fn post(arena: &Arena, shown: Option<&Shown>) -> Result<u16, String> {
    let user = shown.map_or_else(
        || json!({}),
        |shown| json!({"client-certificate-data": BASE64.encode(&shown.certificate), "client-key-data": BASE64.encode(&shown.key)}),
    );
    let server = json!({"server": format!("https://127.0.0.1:{}", arena.webhooks), "insecure-skip-tls-verify": true});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [{"name": "x", "cluster": server}],
        "users": [{"name": "x", "user": user}], "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    });
    let client = client_of(&kubeconfig.to_string()).await;
    let request = json!({
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "x", "namespace": "team", "operation": "CREATE", "userInfo": {},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": []}},
    });
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string();
    let json = "application/json";
    let answer = try_send(
        &client,
        "POST",
        webhook::VALIDATE_POD_PATH,
        json,
        json,
        review.into_bytes(),
    )
    .await;
    answer.map(|answer| answer.code).map_err(|error| error.to_string())
}

/// Reviews of the API server are answered, those of other clients are not.
async fn only_the_api_server_is_answered(arena: &Arena, authority: &Authority) {
    arena.innocent().await;
    let metrics = arena.http_get("/metrics").await.expect("metrics");
    let reviewed = metrics
        .lines()
        .any(|line| line.starts_with("unikai_admission_reviews_total") && line.contains("\"mutate-pod\""));
    assert!(reviewed, "no pod was reviewed");

    let stranger = Authority::new();
    post(arena, None).await.expect_err("a client without a certificate");
    post(arena, Some(&stranger.client))
        .await
        .expect_err("a client with the certificate of another authority");
    assert_eq!(post(arena, Some(&authority.client)).await, Ok(200));
    arena.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_devcluster() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let file = written(folder.path(), "clients.pem", &authority.certificate);
    let server = ApiServer::start(Options::default())
        .await
        .expect("the API server starts");
    server
        .identify_to_webhooks(&authority.client.certificate, &authority.client.key)
        .expect("an identity");
    let arena = Arena::embedded_in(server, &["--webhook-client-ca", file.to_str().expect("a path")]).await;
    only_the_api_server_is_answered(&arena, &authority).await;
}

/// The API server shows its certificate as `docs/access.md` says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_api_server() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let file = written(folder.path(), "clients.pem", &authority.certificate);
    let user = json!({
        "client-certificate": written(folder.path(), "client.pem", &authority.client.certificate),
        "client-key": written(folder.path(), "client.key", &authority.client.key),
    });
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]});
    let kubeconfig = written(folder.path(), "webhooks.kubeconfig", &kubeconfig.to_string());
    let plugin = |name: &str| {
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": kubeconfig,
        });
        json!({"name": name, "configuration": configuration})
    };
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    let configuration = written(folder.path(), "admission.yaml", &configuration.to_string());
    let flag = format!("--admission-control-config-file={}", configuration.display());
    let Some(arena) = Arena::real_with(&flag, &["--webhook-client-ca", file.to_str().expect("a path")]).await else {
        return;
    };
    only_the_api_server_is_answered(&arena, &authority).await;
}
