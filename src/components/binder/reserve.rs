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
use tracing::{debug, error};

use super::groups::{GroupId, NoDevice};
use super::requests::{Caller, RequestError};
use super::reservation;
use crate::api::names::node_label;
use crate::components::bus::{Schedulers, ToScheduler};
use crate::components::fractions::users::{User, Users};
use crate::components::retry::{Failure, LATE, failure};
use crate::components::watches::Stores;
use crate::components::{fractions, panics, pods};
use crate::random;

/// How often an object that blocks a creation is read again.
const LOOKS: usize = 4;
/// How often to look in the stores whether the watch has shown a reservation pod.
const LOOK: Duration = Duration::from_millis(250);
/// While the stores lack the pod, the API server is asked after 1, 2, 4, … looks, and after each of so many, which is every 8 s.
const LOOKS_PER_REQUEST: u32 = 32;

/// A request for a reservation pod that the scheduler knows of.
#[derive(Debug)]
pub struct Request {
    /// The pod as the scheduler got it, with a uid of its own.
    pod: Arc<Pod>,
    /// The uid of the reservation pod, once it is known.
    uid: Option<String>,
    /// A request was not answered, so that it may still take effect.
    unanswered: bool,
}

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
    ) -> (Result<Pod, NoDevice>, Option<Request>) {
        let pod = self.pod(id, tolerations, users).await;
        let mut requested = pod.clone();
        requested.metadata.uid = Some(format!("requested-{}", random::uuid()));
        let requested = Arc::new(requested);
        // Before the request: the scheduler gets this message before any change that is not in the stores yet.
        self.tell(ToScheduler::ReservationRequested(Arc::clone(&requested)))
            .await;
        let unanswered = AtomicU32::new(0);
        let created = panics::caught(Box::pin(self.create(&pod, users, &unanswered))).await;
        let created = created.unwrap_or_else(|panic| {
            error!(panic, "the creation of a reservation pod panicked");
            Err(RequestError {
                failure: Failure::Unknown,
                why: panic,
            })
        });
        let made = match created {
            Ok(Some(pod)) => Ok(pod),
            Ok(None) => Err(NoDevice {
                why: self.failed(&pod, "the pods that were to use it are gone or elsewhere"),
                of_node: false,
            }),
            Err(error) => Err(NoDevice {
                why: self.failed(&pod, &error.why),
                of_node: matches!(error.failure, Failure::Refused | Failure::Gone),
            }),
        };
        let request = Request {
            pod: requested,
            uid: made.as_ref().ok().and_then(ResourceExt::uid),
            unanswered: unanswered.into_inner() > 0,
        };
        if made.is_err() && !request.unanswered {
            self.tell(ToScheduler::ReservationSettled(request.pod)).await;
            return (made, None);
        }
        (made, Some(request))
    }

    /// Waits until a request can no longer take effect unseen by the watches, and tells the schedulers.
    pub async fn settle(&self, request: Request) {
        let shown = panics::caught(Box::pin(self.is_shown(&request)));
        if let Some(Err(panic)) = self.caller.context.shutdown.run_until_cancelled(shown).await {
            error!(panic, "waiting for a reservation pod panicked");
        }
        self.tell(ToScheduler::ReservationSettled(request.pod)).await;
    }

    async fn is_shown(&self, request: &Request) {
        let (namespace, name) = (request.pod.namespace().unwrap_or_default(), request.pod.name_any());
        let reads: Api<Pod> = Api::namespaced(self.caller.context.reads.clone(), &namespace);
        let mut uid = request.uid.clone();
        let (mut in_store, mut missed) = (false, 0_u32);
        if request.unanswered {
            sleep(LATE).await;
            uid = None;
        }
        loop {
            sleep(LOOK).await;
            let known = uid.as_deref();
            let shown = known.is_some_and(|uid| self.stores.pods.has(&namespace, &name, uid));
            // Twice: the scheduler gets a pod shortly after the stores do.
            if shown && in_store {
                return;
            }
            in_store = shown;
            missed += u32::from(!shown);
            // Soon at first, then rarely: while the watch is behind, there may be many such requests.
            if !shown && (missed.is_power_of_two() || missed.is_multiple_of(LOOKS_PER_REQUEST)) {
                let look = || reads.get_opt(&name);
                match self.caller.call("look at a reservation pod", look).await {
                    Ok(None) => return,
                    Ok(Some(found)) => uid = found.metadata.uid,
                    Err(_) => {}
                }
            }
        }
    }

    async fn pod(&self, id: &GroupId, tolerations: Vec<Toleration>, users: &Users) -> Pod {
        let settings = &self.caller.context.settings;
        // No bind has named any if the reservation pod is restored by another process than the one that created it.
        let tolerations = if tolerations.is_empty() {
            self.tolerations_of(users)
        } else {
            tolerations
        };
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
        let node = self.stores.nodes.get("", &id.node);
        let labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
        if labels
            .and_then(|labels| labels.get(node_label::FAKE_GPU))
            .is_some_and(|fake| fake == "true")
        {
            let args = spec.containers.iter_mut().flat_map(|container| &mut container.args);
            args.for_each(|args| args.push("--fake-gpu".to_owned()));
        }
        pod
    }

    /// The tolerations of the first of these pods that has any. They are on one node, so each tolerates it.
    fn tolerations_of(&self, users: &Users) -> Vec<Toleration> {
        let mut known = users.iter().filter_map(|(uid, user)| {
            let pod = self.stores.pods.get_same(&user.namespace, &user.name, Some(uid))?;
            pod.spec.as_ref()?.tolerations.clone()
        });
        known.find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns the pod as the API server has it; `None` if no pod is left that would use it. Counts the requests that are not answered.
    async fn create(&self, pod: &Pod, users: &Users, unanswered: &AtomicU32) -> Result<Option<Pod>, RequestError> {
        let namespace = pod.namespace().unwrap_or_default();
        let (reads, writes): (Api<Pod>, Api<Pod>) = (
            Api::namespaced(self.caller.context.reads.clone(), &namespace),
            Api::namespaced(self.caller.context.writes.clone(), &namespace),
        );
        let (params, node) = (PostParams::default(), pods::node(pod).unwrap_or_default());
        // Each time that it is sent: pods may have gone since.
        let create = || async {
            if !users.is_empty() && !users.iter().any(|user| self.stays(user, node)) {
                return Ok(None);
            }
            unanswered.fetch_add(1, Ordering::Relaxed);
            let answer = writes.create(&params, pod).await;
            if !answer.as_ref().is_err_and(|error| failure(error) == Failure::Unknown) {
                unanswered.fetch_sub(1, Ordering::Relaxed);
            }
            answer.map(Some)
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

    /// Whether a pod holds what it was given on a node: it exists, is not bound to another node, and neither ends nor has ended.
    fn stays(&self, (uid, user): (&String, &User), node: &str) -> bool {
        let known = self.stores.pods.get_same(&user.namespace, &user.name, Some(uid));
        let ends = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() || pods::is_finished(pod);
        known.is_some_and(|pod| !ends(&pod) && !pods::is_bound_elsewhere(&pod, node))
    }

    fn failed(&self, pod: &Pod, why: &str) -> String {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let missing = if self.stores.namespaces.get("", &namespace).is_some() {
            String::new()
        } else {
            let command = fractions::installation(&namespace);
            format!(" (the namespace {namespace} is missing: {command})")
        };
        format!("failed to create GPU reservation pod {namespace}/{name}: {why}{missing}")
    }

    async fn tell(&self, message: ToScheduler) {
        if self.schedulers.send(message).await.is_err() {
            debug!("request for a reservation pod not told: the scheduler has ended");
        }
    }
}
