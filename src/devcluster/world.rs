//! The simulated world: kubelets with GPUs, workload controllers, garbage collection. An ordinary API client.
//!
//! It adds to any API server (it does not depend on the one in `apiserver`) nodes whose kubelets run pods
//! on a simulated clock and, if requested, the workload controllers, the garbage collector, the namespace controller and
//! a default scheduler. Everything is driven by one watch per kind; nothing happens, and nothing is written, while nothing changes.
//!
//! Absent: container images, networks, the content of volumes (ConfigMaps must exist, claims get a volume object), probes, DaemonSets, CronJobs, and the
//! Events of normal operation.

mod claims;
pub mod clock;
mod controllers;
mod default_scheduler;
mod deployment;
mod disruption;
mod fit;
mod gc;
mod heartbeat;
mod informer;
mod job;
pub mod kubelet;
mod namespaces;
pub mod node;
mod nodes;
mod pod_gc;
mod pods;
mod queue;
mod replica_set;
mod resources;
mod stateful_set;
mod volumes;
mod workload;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use informer::Informer;
use kubelet::KubeletRunner;

pub use clock::{Clock, ClockDriver};
pub use node::NodeSpec;

/// How long a start that failed waits for the pods on the nodes that it removes.
const PODS_END: Duration = Duration::from_secs(10);

/// What [`World::start`] simulates.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The nodes to register at the start.
    pub nodes: Vec<NodeSpec>,
    /// Whether the nodes have kubelets, which run the pods bound to them.
    pub kubelets: bool,
    /// Whether to run the workload controllers, the garbage collector, the namespace controller and the default scheduler:
    /// for an API server that has no controller manager and no kube-scheduler.
    pub controllers: bool,
    /// How long things take.
    pub timings: Timings,
    /// The clock of the simulation.
    pub clock: Clock,
}

impl Default for WorldOptions {
    /// No nodes, kubelets and controllers, on tokio's clock.
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            kubelets: true,
            controllers: true,
            timings: Timings::default(),
            clock: Clock::tokio(),
        }
    }
}

/// How long things take in the simulated world.
#[derive(Clone, Debug)]
pub struct Timings {
    /// From the binding of a pod to its containers running.
    pub pod_start: Duration,
    /// How long a container of a pod that is not restarted (`restartPolicy` Never or OnFailure) runs if neither its
    /// annotations nor its command define it; `None`: until the pod is deleted.
    pub run_to_completion: Option<Duration>,
    /// How long a container takes to end after SIGTERM; the pod's grace period cuts it short.
    pub termination: Duration,
    /// The first delay before a container that ended is started again; it doubles up to 30 times this.
    pub restart_backoff: Duration,
    /// The first delay before a Job replaces a failed pod; it doubles up to 60 times this.
    pub job_backoff: Duration,
    /// How often kubelets renew their Lease in `kube-node-lease`; `None`: never, which leaves an idle cluster silent.
    pub heartbeat: Option<Duration>,
}

impl Default for Timings {
    /// Pods start at once, end within a second of SIGTERM, and run until deleted.
    fn default() -> Self {
        Self {
            pod_start: Duration::ZERO,
            run_to_completion: None,
            termination: Duration::from_secs(1),
            restart_backoff: Duration::from_secs(10),
            job_backoff: Duration::from_secs(1),
            heartbeat: None,
        }
    }
}

/// The simulated world; see [`World::start`].
pub struct World;

/// A running world. Dropping it stops the world and leaves its objects where they are.
pub struct WorldHandle {
    shared: Arc<Shared>,
    kubelets: Option<Arc<KubeletRunner>>,
    tasks: JoinSet<&'static str>,
}

/// What every part of the world has: the client, the clock, and the watches that more than one part listens to.
struct Shared {
    client: Client,
    clock: Clock,
    pods: Arc<Informer<Pod>>,
    nodes: Arc<Informer<Node>>,
    config_maps: Arc<Informer<ConfigMap>>,
    /// The nodes that this world has registered, by name, each with its number.
    registered: Mutex<BTreeMap<String, usize>>,
}

impl World {
    /// Starts the world of `options` on the API server of `client`; returns when the nodes are registered and Ready.
    ///
    /// # Errors
    /// What the API server answered when it could not be read or a node could not be registered: then those before it are removed.
    pub async fn start(client: Client, options: WorldOptions) -> kube::Result<WorldHandle> {
        // Fail at once, and with the reason, where the watches would only retry.
        Api::<Node>::all(client.clone())
            .list(&ListParams::default().limit(1))
            .await?;
        let shared = Arc::new(Shared::new(client, options.clock.clone()));
        let mut tasks = JoinSet::new();
        let kubelets = options
            .kubelets
            .then(|| KubeletRunner::new(&shared, options.timings.clone()));
        pod_gc::spawn(&mut tasks, &shared, options.controllers);
        if options.controllers {
            controllers::spawn(&mut tasks, &shared, &options.timings);
        }
        spawn_watches(&mut tasks, &shared, options.kubelets || options.controllers);
        shared.pods.synced().await;
        shared.nodes.synced().await;
        if let Some(kubelets) = &kubelets {
            shared.config_maps.synced().await;
            spawn_kubelets(&mut tasks, kubelets);
        }
        if let Some(period) = options.timings.heartbeat {
            let shared = Arc::clone(&shared);
            let kubelets = kubelets.clone();
            tasks.spawn(async move {
                heartbeat::run(&shared, kubelets.as_deref(), period).await;
                "heartbeats"
            });
        }
        let handle = WorldHandle {
            shared,
            kubelets,
            tasks,
        };
        for spec in options.nodes {
            if let Err(error) = handle.add_node(spec).await {
                if let Err(left) = handle.remove_all_nodes(PODS_END).await {
                    tracing::warn!(error = %left, "simulated nodes could not be removed");
                }
                return Err(error);
            }
        }
        Ok(handle)
    }
}

impl Shared {
    fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            pods: Informer::new(),
            nodes: Informer::new(),
            config_maps: Informer::new(),
            registered: Mutex::new(BTreeMap::new()),
        }
    }

    fn is_registered(&self, node: &str) -> bool {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(node)
    }

    fn pods_on_registered_nodes(&self) -> usize {
        let pods = self.pods.list();
        pods.iter()
            .filter(|pod| pods::node_of(pod).is_some_and(|node| self.is_registered(node)))
            .count()
    }

    /// The number of a node, kept for its name until that is forgotten.
    fn number(&self, node: &str) -> usize {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let next = registered.values().max().map_or(0, |last| last + 1);
        *registered.entry(node.to_owned()).or_insert(next)
    }

    /// Frees the number of a node that was not registered, as the cluster has one of its name that is not simulated.
    fn forget(&self, node: &str) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.remove(node);
    }

    fn registered(&self) -> Vec<String> {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .cloned()
            .collect()
    }
}

fn spawn_watches(tasks: &mut JoinSet<&'static str>, shared: &Shared, config_maps: bool) {
    spawn_watch(tasks, "watch of pods", &shared.pods, &shared.client);
    spawn_watch(tasks, "watch of nodes", &shared.nodes, &shared.client);
    if config_maps {
        spawn_watch(tasks, "watch of config maps", &shared.config_maps, &shared.client);
    }
}

/// Feeds an informer from a watch of all namespaces.
fn spawn_watch<K>(tasks: &mut JoinSet<&'static str>, name: &'static str, informer: &Arc<Informer<K>>, client: &Client)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (informer, api) = (Arc::clone(informer), Api::<K>::all(client.clone()));
    tasks.spawn(async move {
        informer.run(watcher(api, watcher::Config::default())).await;
        name
    });
}

fn spawn_kubelets(tasks: &mut JoinSet<&'static str>, kubelets: &Arc<KubeletRunner>) {
    let timers = Arc::clone(kubelets);
    tasks.spawn(async move {
        timers.run_timers().await;
        "kubelet timers"
    });
    let writes = Arc::clone(kubelets);
    tasks.spawn(async move {
        writes.run_writes().await;
        "kubelet writes"
    });
}

impl WorldHandle {
    /// Registers one more node, or restores a removed or silenced one; returns when it is Ready.
    ///
    /// # Errors
    /// What the API server answered; also if a node that is not simulated has its name.
    pub async fn add_node(&self, spec: NodeSpec) -> kube::Result<()> {
        let index = self.shared.number(&spec.name);
        let registered = nodes::register(&self.shared, &spec, index).await;
        let object = registered.inspect_err(|error| {
            if nodes::is_taken(error) {
                self.shared.forget(&spec.name);
            }
        })?;
        if let Some(kubelets) = &self.kubelets {
            kubelets.start(&self.shared, &spec, object, index);
        }
        Ok(())
    }

    /// Removes a node: its kubelet stops, the Node object is deleted, its pods fail and are deleted.
    ///
    /// # Errors
    /// What the API server answered; a node that does not exist is no error.
    pub async fn remove_node(&self, name: &str) -> kube::Result<()> {
        if let Some(kubelets) = &self.kubelets {
            kubelets.stop(name);
        }
        nodes::delete(&self.shared, name).await
    }

    /// Stops a kubelet: its pods stay as they are, and the node becomes `NotReady` with the `unreachable` taint.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn stop_kubelet(&self, node: &str) -> kube::Result<()> {
        if let Some(kubelets) = &self.kubelets {
            kubelets.stop(node);
        }
        nodes::silence(&self.shared, node).await
    }

    /// Removes all nodes, like [`WorldHandle::remove_node`], and waits until their pods are gone, for `max_wait` at most.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn remove_all_nodes(&self, max_wait: Duration) -> kube::Result<()> {
        for node in self.shared.registered() {
            self.remove_node(&node).await?;
        }
        // A pod that is kept by a finalizer, say, does not keep the shutdown waiting.
        let deadline = tokio::time::Instant::now() + max_wait;
        while self.shared.pods_on_registered_nodes() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The names of all nodes that this world has registered, also of those that are gone since.
    pub fn registered_nodes(&self) -> Vec<String> {
        self.shared.registered()
    }

    /// How many pods kubelets have refused because their node lacked resources or did not match.
    pub fn refused_pods(&self) -> u64 {
        self.kubelets.as_ref().map_or(0, |kubelets| kubelets.refusals().0)
    }

    /// How many pods kubelets have refused for lack of GPUs. More than 0 means that a GPU was allocated twice.
    pub fn refused_gpu_pods(&self) -> u64 {
        self.kubelets.as_ref().map_or(0, |kubelets| kubelets.refusals().1)
    }

    /// Stops the world and waits for its tasks. Its nodes and pods stay in the API server.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }

    /// Waits until the world ends by itself, which it does only on a defect, and says which task ended.
    pub async fn wait(&mut self) -> String {
        match self.tasks.join_next().await {
            Some(Ok(task)) => format!("{task} ended"),
            Some(Err(error)) => format!("a task of the simulated world failed: {error}"),
            None => "the simulated world has no tasks".to_owned(),
        }
    }
}
