//! An API server in this process, and the context of a process that writes to it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::idle_context;
use crate::api::{BindRequest, PodGroup, crds};
use crate::components::leadership::{Scope, Term, Terms};
use crate::components::watches::Stores;
use crate::components::write_slots::Background;
use crate::components::{Context, Settings};
use crate::devcluster::apiserver::in_process::InProcess;
use crate::devcluster::apiserver::{Effect, Identity, Match, Options, RuleId, Times};

/// An API server, and the context of a process that leads.
pub struct Lab {
    pub server: InProcess,
    pub admin: Client,
    pub context: Context,
    pub stores: Arc<Stores>,
    pub leading: watch::Sender<Terms>,
}

/// An object of its JSON.
pub fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// Longer than requests take, shorter than any wait of a component.
pub const MOMENT: Duration = Duration::from_millis(10);

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A refusal with this code.
pub fn refuse(code: u16) -> Effect {
    Effect::Refuse {
        code,
        retry_after: None,
    }
}

/// A refusal of an API server that is busy for so many seconds.
pub fn busy(seconds: u32) -> Effect {
    Effect::Refuse {
        code: 429,
        retry_after: Some(seconds),
    }
}

impl Lab {
    /// An API server with these namespaces.
    pub async fn start(settings: Settings, namespaces: &[&str]) -> Self {
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
        let lab = Self {
            admin: server.client(&Identity::admin()),
            server,
            context,
            stores: Arc::default(),
            leading,
        };
        lab.lead(1);
        for name in namespaces {
            lab.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .await;
        }
        lab
    }

    /// Installs the definitions of our kinds, and waits until they are served.
    pub async fn install_definitions(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        for definition in crds::all() {
            let made = definitions.create(&PostParams::default(), &definition).await;
            made.expect("created");
        }
        let (groups, requests): (Api<PodGroup>, Api<BindRequest>) =
            (Api::all(self.admin.clone()), Api::all(self.admin.clone()));
        let all = ListParams::default();
        while groups.list(&all).await.is_err() || requests.list(&all).await.is_err() {
            sleep(MOMENT).await;
        }
    }

    /// The resource of an object, as the administrator sees it.
    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        let types: DynamicObject = read(object.clone());
        let kind = GroupVersionKind::try_from(types.types.expect("apiVersion and kind")).expect("a kind");
        let resource = ApiResource::from_gvk(&kind);
        match types.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), &namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        }
    }

    /// Creates an object as the administrator, with its status.
    pub async fn create(&self, object: Value) -> Value {
        let api = self.api(&object);
        let made = api.create(&PostParams::default(), &read(object.clone())).await;
        let made = made.expect("created");
        let Some(status) = object.get("status").filter(|status| !status.is_null()) else {
            return json!(made);
        };
        self.set_status(&json!(made), status.clone()).await
    }

    /// The object as it is stored, or null.
    pub async fn see(&self, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().expect("a name");
        json!(self.api(object).get_opt(name).await.expect("an answer"))
    }

    /// Changes an object as the administrator.
    pub async fn patch(&self, object: &Value, patch: Value) -> Value {
        let (api, name) = (self.api(object), object["metadata"]["name"].as_str().expect("a name"));
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        json!(api.patch(name, &params, &patch).await.expect("patched"))
    }

    /// Deletes an object as the administrator, without a grace period.
    pub async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().expect("a name");
        let now = DeleteParams::default().grace_period(0);
        self.api(object).delete(name, &now).await.expect("deleted");
    }

    /// Sets the status of an object as the administrator.
    pub async fn set_status(&self, object: &Value, status: Value) -> Value {
        let name = object["metadata"]["name"].as_str().expect("a name");
        let patch = Patch::Merge(json!({"status": status}));
        json!(
            self.api(object)
                .patch_status(name, &PatchParams::default(), &patch)
                .await
                .expect("patched")
        )
    }

    /// Injects a fault.
    pub fn fault(&self, matching: Match, effect: Effect, times: Times) -> RuleId {
        self.server.faults().add(matching, effect, times)
    }

    /// How often a fault has applied.
    pub fn struck(&self, rule: RuleId) -> u32 {
        self.server.faults().struck(rule)
    }

    /// This process leads, in a term of that number.
    pub fn lead(&self, number: u64) {
        let term = Term {
            number,
            writes: self.context.writes.clone(),
        };
        self.leading.send_modify(|terms| terms.begin(&Scope::Cluster, term));
    }

    /// This process leads no more.
    pub fn lose(&self) {
        let number = self.context.term().expect("it leads");
        self.leading.send_modify(|terms| terms.end(&Scope::Cluster, number));
    }

    /// What the operator wrote, as `verb resource/subresource code`.
    pub fn writes(&self) -> Vec<String> {
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
}
