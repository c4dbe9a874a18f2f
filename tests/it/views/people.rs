//! Users of the API, each with rights of its own.

use std::net::SocketAddr;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use unikai::devcluster::apiserver::Identity;
use unikai::operator::Running;

use crate::support::Cluster;

/// A user, and the operator that gets the requests.
pub struct Person {
    /// The token that is sent.
    pub token: String,
    /// The operator's HTTP address.
    pub http: SocketAddr,
}

impl Person {
    /// May list what the role `unikai-viewer` of the manifests lets it.
    pub async fn who_sees_all(cluster: &Cluster, running: &Running) -> Self {
        let rules = json!([
            {"apiGroups": ["scheduling.run.ai"], "resources": ["queues", "podgroups"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
        ]);
        bind(cluster, "viewer", rules, None).await;
        Self::called(cluster, running, "viewer")
    }

    /// May list pods of one namespace.
    pub async fn of_namespace(cluster: &Cluster, running: &Running, namespace: &str) -> Self {
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
        bind(cluster, "tenant", rules, Some(namespace)).await;
        Self::called(cluster, running, "tenant")
    }

    /// May list nodes, and pod groups of one namespace.
    pub async fn of_nodes_and_namespace(cluster: &Cluster, running: &Running, namespace: &str) -> Self {
        let nodes = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]);
        bind(cluster, "keeper", nodes, None).await;
        let groups = json!([{"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups"], "verbs": ["list"]}]);
        bind_in(cluster, "keeper-of-groups", "keeper", groups, Some(namespace)).await;
        Self::called(cluster, running, "keeper")
    }

    /// Is known, and may do nothing.
    pub fn without_rights(cluster: &Cluster, running: &Running) -> Self {
        Self::called(cluster, running, "nobody")
    }

    /// Has a token that the API server does not know.
    pub fn unknown(running: &Running) -> Self {
        Self {
            token: "made-up".to_owned(),
            http: running.http,
        }
    }

    fn called(cluster: &Cluster, running: &Running, name: &str) -> Self {
        let identity = Identity::service_account("team", name);
        cluster.server.rbac().hold(&identity);
        Self {
            token: cluster.server.token(&identity),
            http: running.http,
        }
    }

    /// The status and the answer to a GET.
    pub async fn ask(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "").await
    }

    /// The status and the answer to a request.
    pub async fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.send_as(method, path, "application/json", body).await
    }

    /// The same, with a body of some kind.
    pub async fn send_as(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, Value) {
        let headers = format!("Content-Type: {kind}\r\n");
        let (status, _, body) = self.exchange(method, path, &headers, body).await;
        (status, serde_json::from_str(&body).unwrap_or_else(|_| json!(body)))
    }

    /// The entity tag of an answer.
    pub async fn tag_of(&self, path: &str) -> Option<String> {
        let (_, head, _) = self.exchange("GET", path, "", "").await;
        let mut lines = head.lines();
        lines.find_map(|line| Some(line.strip_prefix("etag: ")?.trim().to_owned()))
    }

    /// The status of an answer for who has one with that entity tag.
    pub async fn status_with_tag(&self, path: &str, tag: &str) -> u16 {
        let headers = format!("If-None-Match: {tag}\r\n");
        self.exchange("GET", path, &headers, "").await.0
    }

    /// Status, head and body of an answer.
    async fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
        let mut stream = tokio::net::TcpStream::connect(self.http).await.unwrap();
        let (token, length) = (&self.token, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, head.to_owned(), body.to_owned())
    }
}

/// The answer, which must be one.
pub async fn get(person: &Person, path: &str) -> Value {
    let (status, answer) = person.ask(path).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

async fn bind(cluster: &Cluster, name: &str, rules: Value, namespace: Option<&str>) {
    bind_in(cluster, name, name, rules, namespace).await;
}

/// Gives the service account `team/who` these rights, in a namespace or in the cluster.
async fn bind_in(cluster: &Cluster, role: &str, who: &str, rules: Value, namespace: Option<&str>) {
    let params = PostParams::default();
    let made: ClusterRole = serde_json::from_value(json!({"metadata": {"name": role}, "rules": rules})).unwrap();
    Api::all(cluster.admin.clone()).create(&params, &made).await.unwrap();
    let binding = json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": "team", "name": who}],
    });
    match namespace {
        Some(namespace) => {
            let binding: RoleBinding = serde_json::from_value(binding).unwrap();
            let api = Api::namespaced(cluster.admin.clone(), namespace);
            api.create(&params, &binding).await.unwrap();
        }
        None => {
            let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
            Api::all(cluster.admin.clone()).create(&params, &binding).await.unwrap();
        }
    }
}
