//! Which RuntimeClasses there are: the API server refuses pods that name another.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

/// How long it is believed that a class is there.
const BELIEVED: Duration = Duration::from_secs(10);
/// How long it is believed that one is not: who has just made it creates pods next.
const DOUBTED: Duration = Duration::from_secs(1);
/// How long the API server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Look-ups of RuntimeClasses by name, with a short memory. Only names from the settings are looked up, so it stays small.
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

    /// Whether there is a class of the name. Who asks at the same time waits for the same answer. While the API server does not answer,
    /// what it said last counts; if it never did, or may not say, the class is taken to be there.
    pub async fn exists(&self, name: &str) -> bool {
        let mut known = self.known.lock().await;
        let last = known.get(name).copied();
        if let Some((exists, at)) = last
            && at.elapsed() < if exists { BELIEVED } else { DOUBTED }
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
