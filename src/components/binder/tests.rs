//! The parts of the binder that write, against an API server in this process, on virtual time.
#![expect(clippy::large_futures, reason = "a bind is awaited where the binder boxes it")]

mod attempts;
mod claims;
mod cleanups;
mod evictions;
mod kept;
mod limits;
mod requests;
mod running;
mod runs;
mod sharing;
mod steps;
mod stray_claims;
mod told;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::attempt::{Attempt, Ending, Report};
use super::bind_request;
use super::requests::Caller;
use crate::components::bus::{Evict, OrderedBind, PodRef, Step, StepLog};
use crate::components::fractions::users::Share;
use crate::components::tests::lab::{Lab, MOMENT, busy, read, refuse, seconds};
use crate::components::{Settings, pods};
use crate::devcluster::apiserver::{Effect, Match, Times};
use crate::engine::input::{GpuKind, WHOLE};
use crate::engine::policy::ActionKind;

impl Lab {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    /// An API server with the namespaces of pods and of reservation pods.
    async fn with(settings: Settings) -> Self {
        let own = settings.own_pods.reservation.clone();
        let lab = Self::start(settings, &["team", &own.namespace]).await;
        let account = json!({"namespace": own.namespace, "name": own.name});
        lab.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}))
            .await;
        lab
    }

    /// A pod of the namespace `team`, unbound.
    async fn pod(&self, name: &str) -> Pod {
        let containers = json!([{"name": "main", "image": "i"}]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "team", "name": name},
            "spec": {"schedulerName": "kai-scheduler", "containers": containers},
        });
        read(self.create(pod).await)
    }

    /// The bind of a pod to half of a GPU of the group `g`; `config_maps`: how the names of its ConfigMaps begin.
    async fn sharing(&self, name: &str, config_maps: &str) -> (Pod, OrderedBind) {
        let containers = json!([{"name": "main", "image": "i"}]);
        let annotations = json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": config_maps});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "team", "name": name, "annotations": annotations},
            "spec": {"schedulerName": "kai-scheduler", "containers": containers},
        });
        let pod: Pod = read(self.create(pod).await);
        let mut bind = bind(&pod, "n1");
        bind.steps = vec![Step::GpuShare];
        bind.share = Share::of_pod(&pod);
        bind.placement.received = GpuKind::Fraction;
        (bind.placement.gpu_count, bind.placement.gpu_portion) = (1, WHOLE / 2);
        bind.placement.gpu_groups = vec!["g".into()];
        (pod, bind)
    }

    /// The pod as it is stored.
    async fn seen(&self, name: &str) -> Option<Pod> {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), "team");
        api.get_opt(name).await.expect("an answer")
    }

    /// The node of a pod.
    async fn node_of(&self, name: &str) -> Option<String> {
        self.seen(name).await?.spec?.node_name
    }

    /// Binds a pod as the administrator.
    async fn bind_to(&self, name: &str, node: &str) {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), "team");
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        api.create_subresource::<Value, Value>("binding", name, &PostParams::default(), &binding)
            .await
            .expect("bound");
    }

    async fn delete_pod(&self, name: &str) {
        let metadata = json!({"namespace": "team", "name": name});
        self.delete(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
            .await;
    }

    fn caller(&self) -> Caller {
        Caller::new(self.context.clone(), 4)
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            context: self.context.clone(),
            stores: Arc::clone(&self.stores),
            claim_turns: Arc::default(),
            steps: StepLog::default(),
        }
    }
}

/// The bind of a pod to a node, without further steps.
fn bind(pod: &Pod, node: &str) -> OrderedBind {
    let name = pod.metadata.name.as_deref();
    let request = json!({"metadata": {"name": name}, "spec": {"podName": name, "selectedNode": node}});
    bind_request::bind(&read(request), pod, "", Some(Vec::new())).expect("a bind")
}

/// The eviction of a pod.
fn evict(pod: &Pod) -> Evict {
    Evict {
        pod: pods::pod_ref(pod),
        group: bind(pod, "n1").placement.group,
        pool: "".into(),
        action: ActionKind::Reclaim,
        for_group: None,
        overrules_budgets: false,
        message: String::new(),
        details: BTreeMap::new(),
    }
}

fn failed(report: &Report) -> bool {
    matches!(report.ending, Ending::Failed(_))
}
