//! Whether containers get GPUs by the container device interface (CDI), from the ClusterPolicy of NVIDIA's GPU operator.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use crate::api::names::label;

/// How long an answer is cached.
const CACHED_FOR: Duration = Duration::from_secs(60);
/// Timeout of the request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The first version of the GPU operator that uses CDI names by default where CDI is enabled.
const CDI_FROM: [u64; 3] = [25, 10, 0];

/// Whether containers get GPUs by their CDI names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cdi {
    /// As in the GPU operator's ClusterPolicy; no if there is none.
    Auto,
    /// Yes.
    True,
    /// No.
    False,
}

/// Reads the GPU operator's ClusterPolicy when it is needed, and caches the answer.
pub struct GpuOperator {
    reads: Client,
    cdi: Mutex<Option<(bool, Instant)>>,
}

impl GpuOperator {
    /// Reads through the client.
    #[must_use]
    pub fn new(reads: Client) -> Self {
        Self {
            reads,
            cdi: Mutex::default(),
        }
    }

    /// Whether containers get GPUs by CDI. While the API server does not answer, its last answer counts.
    ///
    /// # Errors
    /// If it has not answered yet. No answer is assumed, as containers keep the names that they are given.
    pub async fn cdi(&self, setting: Cdi) -> Result<bool, kube::Error> {
        match setting {
            Cdi::True => return Ok(true),
            Cdi::False => return Ok(false),
            Cdi::Auto => {}
        }
        // Concurrent callers wait here for the same answer.
        let mut known = self.cdi.lock().await;
        if let Some((cdi, at)) = *known
            && at.elapsed() < CACHED_FOR
        {
            return Ok(cdi);
        }
        let before = known.map(|(cdi, _)| cdi);
        let cdi = match (self.read_policies().await, before) {
            (Ok(cdi), _) | (Err(_), Some(cdi)) => cdi,
            // Without the right to read it there will be no other answer.
            (Err(kube::Error::Api(status)), None) if status.code == 403 => false,
            (Err(error), None) => return Err(error),
        };
        if before != Some(cdi) {
            info!(
                cdi,
                "whether containers get GPUs by CDI, as the GPU operator configures"
            );
        }
        *known = Some((cdi, Instant::now()));
        Ok(cdi)
    }

    /// Reads the ClusterPolicies.
    async fn read_policies(&self) -> Result<bool, kube::Error> {
        let resource = ApiResource {
            group: "nvidia.com".to_owned(),
            version: "v1".to_owned(),
            api_version: "nvidia.com/v1".to_owned(),
            kind: "ClusterPolicy".to_owned(),
            plural: "clusterpolicies".to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(self.reads.clone(), &resource);
        let first = ListParams::default().limit(1);
        let late = |elapsed: Elapsed| Err(kube::Error::Service(elapsed.into()));
        match timeout(TIMEOUT, api.list(&first)).await.unwrap_or_else(late) {
            Ok(policies) => Ok(policies.items.first().is_some_and(is_by_cdi)),
            // Without the GPU operator there is no such kind.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => {
                debug!(%error, "the GPU operator's ClusterPolicy cannot be read");
                Err(error)
            }
        }
    }
}

/// Whether a ClusterPolicy enables CDI and its names for devices, explicitly or by the default of its version.
fn is_by_cdi(policy: &DynamicObject) -> bool {
    let says = |field: &str| policy.data.pointer(field).and_then(Value::as_bool).unwrap_or(false);
    let labels = policy.metadata.labels.as_ref();
    let version = labels.and_then(|labels| labels.get(label::APP_VERSION));
    says("/spec/cdi/enabled")
        && (version.is_some_and(|version| is_from(version, CDI_FROM)) || says("/spec/cdi/default"))
}

/// Whether a version such as `v25.10.1` is `first` or later, in the order of semantic versions.
fn is_from(version: &str, first: [u64; 3]) -> bool {
    let version = version.strip_prefix('v').unwrap_or(version);
    let version = version.split('+').next().unwrap_or_default();
    let (numbers, preview) = version
        .split_once('-')
        .map_or((version, false), |(numbers, _)| (numbers, true));
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let own = [(); 3].map(|()| parts.next().flatten());
    let [Some(major), Some(minor), Some(patch)] = own else {
        return false;
    };
    let own = [major, minor, patch];
    own > first || (own == first && !preview)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cdi_counts_where_devices_are_named_by_it() {
        let policy = |version: &str, cdi: Value| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
                "metadata": {"name": "cluster-policy", "labels": {label::APP_VERSION: version}},
                "spec": {"cdi": cdi},
            }))
            .unwrap()
        };
        let on = json!({"enabled": true});
        for version in ["v25.10.0", "25.10.0", "v25.10.1-rc.1", "v25.11.0", "v26.3.0+build"] {
            assert!(is_by_cdi(&policy(version, on.clone())), "{version}");
        }
        for version in ["v25.9.2", "v25.10.0-rc.1", "v24.9.0", "devel", "v25.10", ""] {
            assert!(!is_by_cdi(&policy(version, on.clone())), "{version}");
            let default = json!({"enabled": true, "default": true});
            assert!(is_by_cdi(&policy(version, default)), "{version}");
        }
        assert!(!is_by_cdi(&policy(
            "v25.10.0",
            json!({"enabled": false, "default": true})
        )));
        assert!(!is_by_cdi(&policy("v25.10.0", Value::Null)));
    }
}
