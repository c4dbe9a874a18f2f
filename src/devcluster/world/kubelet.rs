//! The kubelets of the simulated nodes: watch events go into `state`, its writes go to the API server.
//!
//! One write per change of a pod's state, a bounded number at once, never two at once for the same pod.

mod devices;
pub mod lifetime;
mod state;
mod status;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Notify;

use self::state::{Kubelets, PodWrite, Reserved};
use super::node::NodeSpec;
use super::pods::{self, node_of};
use super::queue::{Again, WorkQueue, sleep_until};
use super::{Shared, Timings};
use crate::devcluster::world::clock::Clock;
use crate::devcluster::world::informer::Key;

/// How many pod writes are under way at once.
const WRITES_AT_ONCE: usize = 32;

/// The kubelets and what they have to write.
pub(super) struct KubeletRunner {
    client: Client,
    clock: Clock,
    state: Mutex<Kubelets>,
    writes: WorkQueue<Key>,
    timers_changed: Notify,
}

impl KubeletRunner {
    /// Kubelets without nodes, listening to the shared watches.
    pub fn new(shared: &Shared, timings: Timings) -> Arc<Self> {
        let config_maps = Arc::clone(&shared.config_maps);
        let exists = move |key: &Key| config_maps.get(key).is_some();
        let runner = Arc::new(Self {
            client: shared.client.clone(),
            clock: shared.clock.clone(),
            state: Mutex::new(Kubelets::new(timings, Box::new(exists))),
            writes: WorkQueue::new(),
            timers_changed: Notify::new(),
        });
        let listener = Arc::downgrade(&runner);
        shared.pods.on_change(move |change| {
            // Most pods that change have no node yet.
            let bound = [change.old, change.new]
                .into_iter()
                .flatten()
                .any(|pod| node_of(pod).is_some());
            if let Some(kubelets) = listener.upgrade().filter(|_| bound) {
                kubelets.update(|state| state.pod_changed(change.key, change.new, kubelets.clock.now()));
            }
        });
        let listener = Arc::downgrade(&runner);
        shared.config_maps.on_change(move |change| {
            if let Some(kubelets) = listener.upgrade().filter(|_| change.old.is_none()) {
                kubelets.update(|state| state.config_map_changed(change.key, kubelets.clock.now()));
            }
        });
        let listener = Arc::downgrade(&runner);
        shared
            .nodes
            .on_change(move |change| match (listener.upgrade(), change.new) {
                (Some(kubelets), Some(node)) => kubelets.update(|state| state.node_changed(node)),
                // Deleting the Node object removes the machine.
                (Some(kubelets), None) => kubelets.stop(&change.key.name),
                (None, _) => {}
            });
        runner
    }

    /// Starts the kubelet of a registered node with the pods that it already has.
    pub fn start(&self, shared: &Shared, spec: &NodeSpec, object: Node, index: usize) {
        self.update(|state| {
            let on_node: Vec<Arc<Pod>> = shared
                .pods
                .list()
                .into_iter()
                .filter(|pod| node_of(pod) == Some(&spec.name))
                .collect();
            state.start(spec, object, index, on_node, self.clock.now());
        });
    }

    /// Ends the kubelet of a node.
    pub fn stop(&self, node: &str) {
        self.update(|state| state.stop(node));
    }

    /// Whether the node has a live kubelet.
    pub fn has_node(&self, node: &str) -> bool {
        self.state().has_node(node)
    }

    /// Pods refused so far: all, and those refused for want of GPUs.
    pub fn refusals(&self) -> (u64, u64) {
        let refusals = self.state().refusals();
        (refusals.all, refusals.gpu)
    }

    /// Advances the pods in time.
    pub async fn run_timers(&self) {
        loop {
            let next = self.state().next_wakeup();
            tokio::select! {
                () = sleep_until(&self.clock, next) => self.update(|state| state.tick(self.clock.now())),
                () = self.timers_changed.notified() => {}
            }
        }
    }

    /// Sends the pending writes.
    pub async fn run_writes(&self) {
        self.writes
            .run(&self.clock, WRITES_AT_ONCE, |key| self.write(key))
            .await;
    }

    async fn write(&self, key: Key) -> kube::Result<Again> {
        let Some(write) = self.state().take_write(&key, self.clock.now()) else {
            return Ok(Again::OnChange);
        };
        match self.send(&key, &write).await {
            Ok(()) => Ok(Again::OnChange),
            // The pod is gone: nothing is left to be said about it. (Another of its name answers with a conflict until the watch shows it.)
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Again::OnChange),
            Err(error) => {
                self.state().write_failed(&key, &write.uid);
                Err(error)
            }
        }
    }

    async fn send(&self, key: &Key, write: &PodWrite) -> kube::Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.ns);
        if let Some(status) = &write.status {
            api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(status))
                .await?;
        }
        if let Some(reserved) = &write.reserved {
            self.write_down(key, &write.uid, reserved).await?;
        }
        if write.delete {
            pods::delete_now(&self.client, key, &write.uid).await?;
        }
        Ok(())
    }

    /// A write by a container, with the rights of its pod's service account.
    async fn write_down(&self, key: &Key, uid: &str, Reserved { device, account }: &Reserved) -> kube::Result<()> {
        let patch = json!({"metadata": {"uid": uid, "annotations": {devices::RESERVED: device}}});
        let request = http::Request::patch(format!("/api/v1/namespaces/{}/pods/{}", key.ns, key.name))
            .header("content-type", "application/merge-patch+json")
            .header(
                "impersonate-user",
                format!("system:serviceaccount:{}:{account}", key.ns),
            )
            .body(patch.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request::<Pod>(request).await.map(drop)
    }

    /// Changes the state and queues the resulting writes.
    fn update(&self, change: impl FnOnce(&mut Kubelets)) {
        let (unwritten, timers_moved) = {
            let mut state = self.state();
            let before = state.next_wakeup();
            change(&mut state);
            (state.take_unwritten(), state.next_wakeup() != before)
        };
        for key in unwritten {
            self.writes.add(key);
        }
        if timers_moved {
            self.timers_changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, Kubelets> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
