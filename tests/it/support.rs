//! A small cluster for tests of the operator: the embedded API server with the product's namespaces and CRDs, and operators in
//! this process.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use unikai::api::Queue;
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};
use unikai::operator::settings::Settings;
use unikai::operator::{Operator, Running};

pub use crate::free_port::free_port;
use crate::polling::MAX_WAIT;
pub use crate::polling::eventually;

/// An embedded API server with the CRDs, and an administrator.
pub struct Cluster {
    pub server: RunningServer,
    pub admin: Client,
}

impl Cluster {
    /// Starts it; CRDs are served when this returns.
    pub async fn start() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let admin = server.client(&Identity::admin()).await.unwrap();
        let cluster = Self { server, admin };
        for name in ["kai-scheduler", "team"] {
            cluster.namespace(name, json!({})).await;
        }
        install_crds(&cluster.admin).await;
        cluster
    }

    /// How a client of this identity connects.
    pub async fn config(&self, identity: &Identity) -> Config {
        let kubeconfig = Kubeconfig::from_yaml(&self.server.kubeconfig(identity)).unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap()
    }

    /// Starts an operator under its own service account.
    pub async fn operator(&self, settings: Settings) -> Running {
        Operator::start(&self.config(&Identity::operator()).await, settings)
            .await
            .unwrap()
    }

    /// Starts an operator and waits until it is ready.
    pub async fn ready_operator(&self, settings: Settings) -> Running {
        let running = self.operator(settings).await;
        ready(&running).await;
        running
    }

    pub async fn namespace(&self, name: &str, labels: Value) {
        let object = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        Api::<Namespace>::all(self.admin.clone())
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    /// A queue without limits.
    pub async fn queue(&self, name: &str, parent: Option<&str>) {
        open_queue(&self.admin, name, parent).await;
    }

    /// A node with 8 GPUs that is ready.
    pub async fn node(&self, name: &str) {
        let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
        let object: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81920"}},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let mut node = nodes.create(&PostParams::default(), &object).await.unwrap();
        // The API server taints a new node until someone finds it ready.
        node.spec.get_or_insert_default().taints = None;
        let mut node = nodes.replace(name, &PostParams::default(), &node).await.unwrap();
        node.status = object.status;
        nodes.replace_status(name, &PostParams::default(), &node).await.unwrap();
    }

    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// Creates a pod of our scheduler with these fields of its metadata beside.
    pub async fn pod(&self, namespace: &str, name: &str, metadata: Value) -> kube::Result<Pod> {
        let mut object = json!({
            "metadata": metadata,
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "image": "ubuntu", "resources": {"requests": {"cpu": "10m"}}}],
            },
        });
        object["metadata"]["name"] = json!(name);
        self.pods(namespace)
            .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
    }

    /// Waits until the pod has a node, and says which.
    pub async fn bound(&self, namespace: &str, name: &str) -> String {
        let pods = self.pods(namespace);
        eventually(&format!("{namespace}/{name} is bound"), async || {
            pods.get(name).await.ok()?.spec?.node_name
        })
        .await
    }
}

/// Makes the product's kinds known; they are served when this returns.
pub async fn install_crds(admin: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for crd in unikai::api::crds::all() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    let queues = Api::<Queue>::all(admin.clone());
    eventually("queues are served", async || {
        queues.list(&ListParams::default()).await.ok()
    })
    .await;
}

/// Creates an object of any kind.
pub async fn create(client: &Client, object: Value) -> kube::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let types = object.types.clone().expect("apiVersion and kind");
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).expect("a kind"));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await
}

/// Makes a queue without limits.
pub async fn open_queue(admin: &Client, name: &str, parent: Option<&str>) {
    let share = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let spec = json!({"parentQueue": parent, "resources": {"gpu": share, "cpu": share, "memory": share}});
    let queue: Queue = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    Api::all(admin.clone())
        .create(&PostParams::default(), &queue)
        .await
        .unwrap();
}

/// Waits for an operator to be ready, or says what it waits for.
pub async fn ready(running: &Running) {
    if tokio::time::timeout(MAX_WAIT, running.ready()).await.is_err() {
        panic!("not ready: {:?}", running.waiting());
    }
}

/// What a refusal says.
pub fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> String {
    match answer {
        Err(kube::Error::Api(status)) => status.message,
        other => panic!("not refused: {other:?}"),
    }
}
