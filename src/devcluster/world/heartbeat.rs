//! The Leases that kubelets renew as heartbeats, for API servers whose node life-cycle controller requires them.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::Shared;
use super::clock::later;
use super::kubelet::KubeletRunner;

/// Renews the Lease of every node with a live kubelet, once a `period`, for ever.
pub(super) async fn run(shared: &Shared, kubelets: Option<&KubeletRunner>, period: Duration) {
    loop {
        let next = later(shared.clock.now(), period);
        for node in shared.registered() {
            if kubelets.is_some_and(|kubelets| kubelets.has_node(&node))
                && let Err(error) = renew(shared, &node).await
            {
                tracing::warn!(%error, node, "lease of a simulated node could not be renewed");
            }
        }
        shared.clock.sleep_until(next).await;
    }
}

async fn renew(shared: &Shared, node: &str) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(shared.client.clone(), "kube-node-lease");
    let now = MicroTime(shared.clock.now());
    let renewed = leases
        .patch(
            node,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"renewTime": now}})),
        )
        .await;
    match renewed {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(node.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(node.to_owned()),
                    lease_duration_seconds: Some(40),
                    renew_time: Some(now),
                    ..LeaseSpec::default()
                }),
            };
            leases.create(&PostParams::default(), &lease).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}
