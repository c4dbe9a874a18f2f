//! Authentication: bearer tokens, their identities, and kubeconfig files.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User name, such as `system:serviceaccount:kai-scheduler:unikai`.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// The pod of the token, which distinguishes replicas with one service account.
    pub pod: Option<String>,
}

impl Identity {
    /// The cluster administrator.
    #[must_use]
    pub fn admin() -> Self {
        Self::user("admin", &["system:masters"])
    }

    /// The operator's service account, `kai-scheduler/unikai`.
    #[must_use]
    pub fn operator() -> Self {
        Self::service_account("kai-scheduler", "unikai")
    }

    /// A service account.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::user(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
        )
    }

    /// Any user, besides `system:authenticated` with these groups.
    #[must_use]
    pub fn user(name: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        groups.push("system:authenticated".to_owned());
        Identity {
            user: name.to_owned(),
            groups,
            pod: None,
        }
    }

    /// The same user in a pod of this name.
    #[must_use]
    pub fn in_pod(mut self, pod: &str) -> Self {
        self.pod = Some(pod.to_owned());
        self
    }

    /// `UserInfo`, as reviews and admission requests carry it.
    pub(crate) fn user_info(&self) -> Value {
        let mut info = json!({"username": self.user, "groups": self.groups});
        if let Some(pod) = &self.pod {
            info["extra"] = json!({"authentication.kubernetes.io/pod-name": [pod]});
        }
        info
    }
}

/// The tokens of a running server, created on first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    by_token: Arc<RwLock<HashMap<String, Arc<Identity>>>>,
}

impl Tokens {
    /// The token of this identity.
    pub fn issue(&self, identity: &Identity) -> String {
        let mut tokens = self.by_token.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((token, _)) = tokens.iter().find(|(_, known)| ***known == *identity) {
            return token.clone();
        }
        let token = crate::random::uuid().simple().to_string();
        tokens.insert(token.clone(), Arc::new(identity.clone()));
        token
    }

    /// The identity of a token.
    pub fn identify(&self, token: &str) -> Option<Arc<Identity>> {
        self.by_token
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .get(token)
            .cloned()
    }
}

/// A kubeconfig file with one cluster, one user and one context.
pub(crate) fn kubeconfig(url: &str, ca_pem: &str, user: &str, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "unikai", "cluster": {"server": url, "certificate-authority-data": STANDARD.encode(ca_pem)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "unikai", "context": {"cluster": "unikai", "user": user, "namespace": "default"}}],
        "current-context": "unikai",
    });
    serde_yaml_ng::to_string(&config).unwrap_or_else(|error| unreachable!("a JSON value is always YAML: {error}"))
}
