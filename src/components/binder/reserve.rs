//! Creates the reservation pod of a GPU group.
//!
//! A request may take effect late, when the pods that it was for are gone and the scheduler has given the GPU to others. So the scheduler gets the reservation
//! pod before the request is sent, counts the GPU as reserved from then on, and is told once no such request can take effect any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use tokio::time::sleep;
use tracing::debug;

use super::groups::GroupId;
use super::requests::{Caller, RequestError};
use super::reservation;
use crate::components::bus::{Schedulers, ToScheduler};
use crate::components::fractions::users::{User, Users};
use crate::components::retry::Failure;
use crate::components::watches::Stores;
use crate::random;

/// How often an object that blocks a creation is read again.
const LOOKS: usize = 4;
/// How late a request may take effect after it was given up.
const LATE: Duration = Duration::from_secs(10);

/// A request for a reservation pod that the scheduler knows of: the pod, with a uid of its own.
#[derive(Debug)]
pub struct Request(Arc<Pod>);

/// Creates reservation pods.
pub struct Reserver {
    /// Sends the requests.
    pub caller: Caller,
    /// To the schedulers.
    pub schedulers: Schedulers,
    /// The watched objects.
    pub stores: Arc<Stores>,
}

impl Reserver {
    /// Creates the reservation pod of a group for these pods. An existing one of the name is used: the name identifies node and group. Returns the request,
    /// too, if it is to be settled.
    pub async fn reserve(
        &self,
        id: &GroupId,
        tolerations: Vec<Toleration>,
        users: &Users,
    ) -> (Result<Pod, String>, Option<Request>) {
        let pod = self.pod(id, tolerations, users).await;
        let mut requested = pod.clone();
        requested.metadata.uid = Some(format!("requested-{}", random::uuid()));
        let requested = Arc::new(requested);
        // Before the request: the scheduler gets this message before a deletion that is not in the stores yet.
        self.tell(ToScheduler::Requested(Arc::clone(&requested))).await;
        let sent = AtomicU32::new(0);
        let created = self.create(&pod, users, &sent).await;
        let without_effect = match &created {
            Ok(Some(_)) => false,
            Ok(None) => sent.load(Ordering::Relaxed) == 0,
            Err(error) => error.failure == Failure::Refused && sent.load(Ordering::Relaxed) == 1,
        };
        let request = if without_effect {
            self.tell(ToScheduler::Settled(requested)).await;
            None
        } else {
            Some(Request(requested))
        };
        let made = match created {
            Ok(Some(pod)) => Ok(pod),
            Ok(None) => Err("the pods that were to use it are gone".to_owned()),
            Err(error) => Err(error.why),
        };
        (made.map_err(|why| self.failed(&pod, &why)), request)
    }

    /// Waits until a request has no effect any more that watches do not show, and tells the schedulers.
    pub async fn settle(&self, Request(pod): Request) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let reads: Api<Pod> = Api::namespaced(self.caller.context.reads.clone(), &namespace);
        loop {
            sleep(LATE).await;
            if self.stores.pods.contains(&namespace, &name) {
                break;
            }
            let look = || reads.get_opt(&name);
            if let Ok(None) = self.caller.call("look at a reservation pod", look).await {
                break;
            }
        }
        self.tell(ToScheduler::Settled(pod)).await;
    }

    async fn pod(&self, id: &GroupId, tolerations: Vec<Toleration>, users: &Users) -> Pod {
        let settings = &self.caller.context.settings;
        let account = &settings.own_pods.reservation;
        let mut pod = reservation::pod(&id.node, &id.group, tolerations, users, &settings.sharing, account);
        let spec = pod.spec.get_or_insert_default();
        // The API server refuses pods with unknown priority or runtime classes.
        if let Some(class) = &spec.runtime_class_name
            && !self.caller.runtime_classes.exists(class).await
        {
            spec.runtime_class_name = None;
        }
        spec.priority_class_name
            .take_if(|class| self.stores.priority_classes.get("", class).is_none());
        pod
    }

    /// Returns the pod as the API server has it; `None` if no pod is left that would use it. Counts how often the request is sent.
    async fn create(&self, pod: &Pod, users: &Users, sent: &AtomicU32) -> Result<Option<Pod>, RequestError> {
        let namespace = pod.namespace().unwrap_or_default();
        let (reads, writes): (Api<Pod>, Api<Pod>) = (
            Api::namespaced(self.caller.context.reads.clone(), &namespace),
            Api::namespaced(self.caller.context.writes.clone(), &namespace),
        );
        let exists = |(uid, user): (&String, &User)| self.stores.pods.has(&user.namespace, &user.name, uid);
        let params = PostParams::default();
        // Each time that it is sent: pods may have gone since.
        let create = || async {
            if users.is_empty() || users.iter().any(exists) {
                sent.fetch_add(1, Ordering::Relaxed);
                writes.create(&params, pod).await.map(Some)
            } else {
                Ok(None)
            }
        };
        let name = pod.name_any();
        let mut looks = 0;
        loop {
            let error = match self.caller.call("create a reservation pod", create).await {
                Err(error) if error.failure == Failure::Conflict => error,
                created => return created,
            };
            let look = || reads.get_opt(&name);
            let found = self.caller.call("look at a reservation pod", look).await?;
            looks += 1;
            if found.is_some() {
                return Ok(found);
            }
            if looks == LOOKS {
                return Err(error);
            }
        }
    }

    fn failed(&self, pod: &Pod, why: &str) -> String {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let missing = if self.stores.namespaces.get("", &namespace).is_some() {
            String::new()
        } else {
            format!(" (the namespace {namespace} is missing: kubectl apply -f manifests/gpu-sharing/)")
        };
        format!("failed to create GPU reservation pod {namespace}/{name}: {why}{missing}")
    }

    async fn tell(&self, message: ToScheduler) {
        if self.schedulers.send(message).await.is_err() {
            debug!("request for a reservation pod not told: the scheduler has ended");
        }
    }
}
