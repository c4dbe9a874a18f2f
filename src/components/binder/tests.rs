//! The parts of the binder that write, against an API server in this process, on virtual time.
#![expect(clippy::large_futures, reason = "a bind is awaited where the binder boxes it")]

mod attempts;
mod claims;
mod cleanups;
mod kept;
mod requests;
mod runs;
mod steps;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::attempt::{Attempt, Ending, Report};
use super::intent;
use super::requests::Caller;
use crate::components::bus::{Evict, OrderedBind, PodRef, Step, StepLog};
use crate::components::fractions::users::Share;
use crate::components::leadership::{Scope, Term, Terms};
use crate::components::tests::idle_context;
use crate::components::watches::Stores;
use crate::components::write_slots::Background;
use crate::components::{Context, Settings, pods};
use crate::devcluster::apiserver::in_process::InProcess;
use crate::devcluster::apiserver::{Effect, Identity, Match, Options, RuleId, Times};
use crate::engine::input::{GpuKind, WHOLE};
use crate::engine::policy::ActionKind;

/// An API server with the namespace `team`, and the context of a process that leads.
struct Lab {
    server: InProcess,
    admin: Client,
    context: Context,
    stores: Arc<Stores>,
    leading: watch::Sender<Terms>,
}

fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

impl Lab {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let server = InProcess::start(Options::default()).await.expect("an API server");
        let (leading, is_leading) = watch::channel(Terms::default());
        let client = server.client(&Identity::operator());
        let context = Context {
            reads: client.clone(),
            watches: client.clone(),
            writes: client.clone(),
            leading: is_leading,
            background: Background::new(settings.background_delay),
            settings: Arc::new(settings),
            ..idle_context()
        };
        let term = Term {
            number: 1,
            writes: client,
        };
        leading.send_modify(|terms| terms.begin(&Scope::Cluster, term));
        let lab = Self {
            admin: server.client(&Identity::admin()),
            server,
            context,
            stores: Arc::default(),
            leading,
        };
        for name in ["team", "kai-resource-reservation"] {
            lab.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .await;
        }
        let account = json!({"namespace": "kai-resource-reservation", "name": "kai-resource-reservation"});
        lab.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}))
            .await;
        lab
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let types: DynamicObject = read(object.clone());
        let kind = GroupVersionKind::try_from(types.types.expect("apiVersion and kind")).expect("a kind");
        let resource = ApiResource::from_gvk(&kind);
        match types.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), &namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        }
    }

    /// Creates an object as the administrator, with its status.
    async fn create(&self, object: Value) -> Value {
        let api = self.api(&object);
        let made = api.create(&PostParams::default(), &read(object.clone())).await;
        let made = made.expect("created");
        let Some(status) = object.get("status").filter(|status| !status.is_null()) else {
            return json!(made);
        };
        self.set_status(&json!(made), status.clone()).await
    }

    /// The object as it is stored, or null.
    async fn see(&self, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().expect("a name");
        json!(self.api(object).get_opt(name).await.expect("an answer"))
    }

    /// Changes an object as the administrator.
    async fn patch(&self, object: &Value, patch: Value) -> Value {
        let (api, name) = (self.api(object), object["metadata"]["name"].as_str().expect("a name"));
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        json!(api.patch(name, &params, &patch).await.expect("patched"))
    }

    /// Sets the status of an object as the administrator.
    async fn set_status(&self, object: &Value, status: Value) -> Value {
        let name = object["metadata"]["name"].as_str().expect("a name");
        let patch = Patch::Merge(json!({"status": status}));
        json!(
            self.api(object)
                .patch_status(name, &PatchParams::default(), &patch)
                .await
                .expect("patched")
        )
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
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), "team");
        let now = kube::api::DeleteParams::default().grace_period(0);
        api.delete(name, &now).await.expect("deleted");
    }

    fn caller(&self) -> Caller {
        Caller::new(self.context.clone(), 4)
    }

    fn fault(&self, matching: Match, effect: Effect, times: Times) -> RuleId {
        self.server.faults().add(matching, effect, times)
    }

    /// This process leads no more.
    fn lose(&self) {
        self.leading.send_modify(|terms| terms.end(&Scope::Cluster, 1));
    }

    /// What the operator wrote, as `verb resource/subresource code`.
    fn writes(&self) -> Vec<String> {
        let writes = self.server.audit().writes_of(&Identity::operator());
        let shown = writes.iter().map(|write| {
            let slash = if write.subresource.is_empty() { "" } else { "/" };
            format!(
                "{} {}{slash}{} {}",
                write.verb, write.resource, write.subresource, write.code
            )
        });
        shown.collect()
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            context: self.context.clone(),
            stores: Arc::clone(&self.stores),
            steps: StepLog::default(),
        }
    }
}

/// The bind of a pod to a node, without further steps.
fn bind(pod: &Pod, node: &str) -> OrderedBind {
    let name = pod.metadata.name.as_deref();
    let request = json!({"metadata": {"name": name}, "spec": {"podName": name, "selectedNode": node}});
    intent::bind(&read(request), pod, "", Some(Vec::new())).expect("a bind")
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

fn refuse(code: u16) -> Effect {
    Effect::Refuse {
        code,
        retry_after: None,
    }
}

fn failed(report: &Report) -> bool {
    matches!(report.ending, Ending::Failed(_))
}
