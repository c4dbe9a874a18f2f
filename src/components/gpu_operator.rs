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
/// How long the API server must keep answering that it does not know the kind until that counts: one that starts may not know it yet.
const ABSENT: Duration = Duration::from_secs(10);
/// Time between two reads until then, so that many binds cost few reads.
const DOUBTED_FOR: Duration = Duration::from_secs(1);
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
    known: Mutex<Known>,
}

/// What is known of the ClusterPolicy.
#[derive(Default)]
struct Known {
    /// The last answer.
    answer: Option<bool>,
    /// Until when nothing is read again.
    until: Option<Instant>,
    /// Since when nothing else was read than that there is no such kind.
    absent_since: Option<Instant>,
}

impl GpuOperator {
    /// Reads through the client.
    #[must_use]
    pub fn new(reads: Client) -> Self {
        Self {
            reads,
            known: Mutex::default(),
        }
    }

    /// Whether containers get GPUs by CDI. While the API server does not answer, or has not known the kind for only a moment, its last answer counts. If it
    /// does not know the kind and there is no last answer, containers do not, so that binds need not wait in clusters without the GPU operator.
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
        let mut known = self.known.lock().await;
        let before = known.answer;
        if known.until.is_some_and(|until| Instant::now() < until) {
            return Ok(before.unwrap_or(false));
        }
        let read = self.read_policies().await;
        let absent_since = known.absent_since.unwrap_or_else(Instant::now);
        known.absent_since = matches!(read, Ok(None)).then_some(absent_since);
        let cdi = match (read, before) {
            (Ok(Some(cdi)), _) | (Err(_), Some(cdi)) => cdi,
            (Ok(None), _) if absent_since.elapsed() < ABSENT => {
                known.until = Some(Instant::now() + DOUBTED_FOR);
                return Ok(before.unwrap_or(false));
            }
            (Ok(None), _) => false,
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
        (known.answer, known.until) = (Some(cdi), Some(Instant::now() + CACHED_FOR));
        Ok(cdi)
    }

    /// Reads the ClusterPolicies. `None`: the API server does not know the kind, as without the GPU operator.
    async fn read_policies(&self) -> Result<Option<bool>, kube::Error> {
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
            Ok(policies) => Ok(Some(policies.items.first().is_some_and(is_by_cdi))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
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
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    /// A ClusterPolicy of that version of the GPU operator.
    fn cluster_policy(version: &str, cdi: &Value) -> Value {
        json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy", "labels": {label::APP_VERSION: version}},
            "spec": {"cdi": cdi},
        })
    }

    /// Asks an API server that has a ClusterPolicy which enables CDI. It does not know the kind while the switch is off.
    fn reader(is_known: bool) -> (GpuOperator, Arc<AtomicBool>) {
        let switch = Arc::new(AtomicBool::new(is_known));
        let is_known = Arc::clone(&switch);
        let service = tower::service_fn(move |_: Request<Body>| {
            let policy = cluster_policy("v25.10.0", &json!({"enabled": true}));
            let (code, body) = if is_known.load(Ordering::SeqCst) {
                let list = json!({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicyList", "metadata": {}, "items": [policy]});
                (200, list)
            } else {
                let reason = "NotFound";
                let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": 404});
                (404, status)
            };
            async move {
                let response = Response::builder()
                    .status(code)
                    .header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap())
            }
        });
        (GpuOperator::new(Client::new(service, "default")), switch)
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_counts_until_its_kind_has_not_been_known_for_a_while() {
        let (operator, is_known) = reader(true);
        let expect = async |cdi: bool| assert_eq!(Box::pin(operator.cdi(Cdi::Auto)).await.unwrap(), cdi);
        expect(true).await;
        for _ in 0..2 {
            // As while an API server starts.
            advance(CACHED_FOR).await;
            is_known.store(false, Ordering::SeqCst);
            expect(true).await;
            advance(DOUBTED_FOR).await;
            is_known.store(true, Ordering::SeqCst);
            expect(true).await;
        }

        advance(CACHED_FOR).await;
        is_known.store(false, Ordering::SeqCst);
        expect(true).await;
        advance(ABSENT).await;
        expect(false).await;
        advance(CACHED_FOR).await;
        expect(false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_policy_binds_do_not_wait_and_a_wrong_first_answer_is_not_kept() {
        let (operator, is_known) = reader(false);
        let expect = async |cdi: bool| assert_eq!(Box::pin(operator.cdi(Cdi::Auto)).await.unwrap(), cdi);
        expect(false).await;
        advance(DOUBTED_FOR).await;
        is_known.store(true, Ordering::SeqCst);
        expect(true).await;

        let (operator, is_known) = reader(false);
        let expect = async |cdi: bool| assert_eq!(Box::pin(operator.cdi(Cdi::Auto)).await.unwrap(), cdi);
        expect(false).await;
        advance(ABSENT).await;
        expect(false).await;
        // Then it is read as rarely as any other answer.
        is_known.store(true, Ordering::SeqCst);
        expect(false).await;
        advance(CACHED_FOR).await;
        expect(true).await;
    }

    #[test]
    fn cdi_counts_where_devices_are_named_by_it() {
        let policy = |version: &str, cdi: Value| -> DynamicObject {
            serde_json::from_value(cluster_policy(version, &cdi)).unwrap()
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
