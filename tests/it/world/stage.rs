//! What every scenario of the simulated world plays on: an API server with two GPU nodes and a CPU node, a namespace of its own, and a
//! clock that only the scenario moves.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use unikai::devcluster::world::{Clock, ClockDriver, NodeSpec, Timings, World, WorldHandle, WorldOptions};

pub use crate::polling::eventually;

/// The stage of one scenario.
pub struct Stage {
    pub client: Client,
    pub world: WorldHandle,
    pub ns: String,
    prefix: String,
    driver: ClockDriver,
}

/// What all kinds that scenarios use have in common.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + 'static
{
}

impl Stage {
    /// A world on the API server of `client`, for the scenario `name`. Nothing takes time but what a scenario says.
    pub async fn set(client: Client, name: &str) -> Self {
        let (clock, driver) = Clock::manual(Timestamp::now());
        let prefix = name.replace('_', "-");
        let nodes = vec![
            NodeSpec::gpu(format!("{prefix}-gpu-1"), 8),
            NodeSpec::gpu(format!("{prefix}-gpu-2"), 8),
            NodeSpec::cpu(format!("{prefix}-cpu-1")),
        ];
        let timings = Timings {
            pod_start: Duration::from_secs(1),
            job_backoff: Duration::ZERO,
            termination: Duration::from_secs(2),
            ..Timings::default()
        };
        let options = WorldOptions {
            nodes,
            clock,
            timings,
            ..WorldOptions::default()
        };
        let world = World::start(client.clone(), options).await.expect("the world starts");
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": prefix}})).expect("a namespace");
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .expect("the namespace is created");
        let stage = Self {
            client,
            world,
            ns: prefix.clone(),
            prefix,
            driver,
        };
        eventually("the default service account", async || {
            stage
                .find::<k8s_openapi::api::core::v1::ServiceAccount>("default")
                .await
        })
        .await;
        stage
    }

    /// Removes the scenario's nodes and ends the world.
    pub async fn strike(self) {
        for node in self.world.registered_nodes() {
            self.world.remove_node(&node).await.expect("the node is removed");
        }
        self.world.shutdown().await;
    }

    /// The full name of one of the stage's nodes, `gpu-1`, `gpu-2` or `cpu-1`.
    pub fn node(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Lets the world's time pass.
    pub fn pass(&self, seconds: u64) {
        self.driver.advance(Duration::from_secs(seconds));
    }

    pub fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    /// Creates an object from JSON.
    pub async fn create<K: Kind>(&self, object: Value) -> K {
        let shown = object.to_string();
        let object: K = serde_json::from_value(object).expect("an object of this kind");
        match self.api().create(&PostParams::default(), &object).await {
            Ok(created) => created,
            Err(error) => panic!("{shown} is not created: {error}"),
        }
    }

    pub async fn find<K: Kind>(&self, name: &str) -> Option<K> {
        self.api().get_opt(name).await.expect("the object can be read")
    }

    pub async fn get<K: Kind>(&self, name: &str) -> K {
        self.find(name).await.unwrap_or_else(|| panic!("{name} does not exist"))
    }

    pub async fn list<K: Kind>(&self) -> Vec<K> {
        self.api()
            .list(&ListParams::default())
            .await
            .expect("the objects can be listed")
            .items
    }

    pub async fn patch<K: Kind>(&self, name: &str, patch: Value) -> K {
        self.api()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("the object is patched")
    }

    pub async fn delete<K: Kind>(&self, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        self.api::<K>()
            .delete(name, &params)
            .await
            .expect("the object is deleted");
    }

    /// Evicts a pod, as the drain of a node does.
    pub async fn evict(&self, pod: &str) -> kube::Result<()> {
        self.api::<Pod>().evict(pod, &EvictParams::default()).await.map(drop)
    }

    /// Waits until the object satisfies `holds`.
    pub async fn until<K: Kind>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K {
        let found = eventually(what, async || self.find::<K>(name).await.filter(|object| holds(object)));
        found.await
    }

    /// Waits until no such object is left.
    pub async fn until_gone<K: Kind>(&self, name: &str) {
        eventually(&format!("{name} to be gone"), async || {
            self.find::<K>(name).await.is_none().then_some(())
        })
        .await;
    }

    /// Waits until the pods of the namespace, as `name phase`, are these.
    pub async fn until_pods(&self, expected: &[&str]) {
        eventually(&format!("the pods are {expected:?}"), async || {
            let mut pods: Vec<String> = self.list::<Pod>().await.iter().map(shown).collect();
            pods.sort();
            if pods == expected {
                Ok(())
            } else {
                Err(format!("they are {pods:?}"))
            }
        })
        .await;
    }
}

/// A client of the cluster that a kubeconfig file names.
pub async fn connect(kubeconfig: &Path) -> Client {
    client_of(Kubeconfig::read_from(kubeconfig).expect("a kubeconfig file")).await
}

/// The same of a kubeconfig. Evictions that are refused are not tried again, as the library would.
pub async fn client_of(kubeconfig: Kubeconfig) -> Client {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

fn shown(pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let deleting = if pod.metadata.deletion_timestamp.is_some() {
        " deleting"
    } else {
        ""
    };
    format!("{name} {}{deleting}", phase(pod))
}

pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some("True") && pod.metadata.deletion_timestamp.is_none()
}

/// The status of one of a pod's conditions.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == kind)
        .map(|condition| condition.status.as_str())
}
