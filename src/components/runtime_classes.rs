//! Which RuntimeClasses exist: the API server refuses pods that name another.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

/// How long it is cached that a class exists.
const FOUND_FOR: Duration = Duration::from_secs(10);
/// How long it is cached that one does not exist. Short, as pods are usually created right after their class.
const MISSING_FOR: Duration = Duration::from_secs(1);
/// Timeout of the request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Cached look-ups of RuntimeClasses by name. Only names from the settings are looked up, so the cache stays small.
pub struct RuntimeClasses {
    reads: Client,
    known: Mutex<HashMap<String, (bool, Instant)>>,
}

impl RuntimeClasses {
    /// Looks them up through the client.
    #[must_use]
    pub fn new(reads: Client) -> Self {
        Self {
            reads,
            known: Mutex::default(),
        }
    }

    /// Whether a class of that name exists. Concurrent callers wait for the same answer. While the API server does not answer,
    /// its last answer counts; without one, or without the right to read classes, the class is assumed to exist.
    pub async fn exists(&self, name: &str) -> bool {
        let mut known = self.known.lock().await;
        let last = known.get(name).copied();
        if let Some((exists, at)) = last
            && at.elapsed() < if exists { FOUND_FOR } else { MISSING_FOR }
        {
            return exists;
        }
        let api: Api<RuntimeClass> = Api::all(self.reads.clone());
        let found = match tokio::time::timeout(TIMEOUT, api.get_opt(name)).await {
            Ok(Ok(found)) => Some(found.is_some()),
            Ok(Err(error)) => {
                debug!(%error, name, "the runtime class cannot be looked up");
                None
            }
            Err(_elapsed) => None,
        };
        let before = last.map(|(exists, _)| exists);
        let exists = found.or(before).unwrap_or(true);
        if !exists && before != Some(false) {
            info!(
                name,
                "there is no such runtime class: pods that share GPUs are left without it"
            );
        }
        known.insert(name.to_owned(), (exists, Instant::now()));
        exists
    }
}
