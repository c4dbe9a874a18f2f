//! A multi-step bind: [`STAGES`] in order. Each stage reads the current state and does what is missing, so that a bind
//! that was interrupted anywhere is resumed by running all of them again.
//!
//! | stage | writes |
//! |---|---|
//! | bind request | the bind request, unless one is being resumed |
//! | volumes | `claimRef` of volumes, the selected node of claims |
//! | devices | none: the manager of GPU groups has the reservation pods created, and the pod recorded on them as a user |
//! | config maps | both, with their final content |
//! | labels | the pod's groups |
//! | pod group | none: if `always_bind_requests` is set, waits for the PodGroup object |
//! | same devices | as for devices: a reservation pod that was deleted meanwhile is created again, and may hold another device |
//! | binding | allocation and reservation of resource claims, then the Binding |
//!
//! The bind request is deleted when the watch shows the pod on its node: not before, or the scheduler could see neither.
//! A bind that fails is undone before the request goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::attempt::{Attempt, Ending, OTHER_GROUP, Report};
use super::fraction::Variables;
use super::groups::{Answer, GroupId, NoDevice};
use super::open_binds::Open;
use super::requests::{Caller, RequestError};
use super::volumes::{Volumes, Written};
use super::{bind_request, fraction, reservation};
use crate::api::BindRequest;
use crate::api::limits::{GPU_GROUPS_PER_POD, GPU_SHARE_BYTES};
use crate::api::names::{annotation, label};
use crate::components::bus::{OrderedBind, StepLog};
use crate::components::fractions::is_fractional;
use crate::components::fractions::users::{self, Share, User};
use crate::components::pods;
use crate::components::retry::{Failure, LATE};
use crate::components::watches::Stores;
use crate::engine::input::GpuKind;

/// The steps of a bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    BindRequest,
    Volumes,
    Devices,
    ConfigMaps,
    Labels,
    PodGroup,
    SameDevices,
    Binding,
}

/// The stages in order: slow ones first.
const STAGES: [Stage; 8] = [
    Stage::BindRequest,
    Stage::Volumes,
    Stage::Devices,
    Stage::ConfigMaps,
    Stage::Labels,
    Stage::PodGroup,
    Stage::SameDevices,
    Stage::Binding,
];

impl Stage {
    /// The cause of failures at this stage, for metrics; the stage `binding` reports its own.
    fn cause(self) -> Option<&'static str> {
        match self {
            Self::BindRequest | Self::ConfigMaps | Self::Labels => Some("objects"),
            Self::Volumes => Some("volumes"),
            Self::Devices | Self::SameDevices => Some("device"),
            Self::PodGroup => Some("pod_group"),
            Self::Binding => None,
        }
    }
}

/// Why a bind fails whose reservation pod was replaced.
const OTHER_DEVICE: &str =
    "the pod's GPU group got another GPU while the pod was being bound, as its reservation pod was deleted";
/// For how long after its devices were reserved a bind takes them as reserved if the watch shows nothing else. A bind that takes longer asks the API server, too:
/// the watch may be behind.
const SURELY_RESERVED: Duration = Duration::from_secs(1);
/// How often a conflicting object is read again.
const LOOKS: usize = 4;
/// How often to look for a bind request whose creation was not answered.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for the PodGroup object.
const GROUP_TIMEOUT: Duration = Duration::from_secs(20);

/// A bind's request to the manager of GPU groups.
pub struct GroupRequest {
    /// The group whose device it needs.
    pub id: GroupId,
    /// The requesting pod.
    pub pod: Arc<Pod>,
    /// Its request, to be recorded on the reservation pod.
    pub user: User,
    /// Where the answer goes.
    pub answer: Answer,
}

/// Why a multi-step bind ends before its last stage.
#[derive(Debug)]
enum Stop {
    /// The bind is obsolete.
    Overtaken,
    /// The API server does not have something, and what: it is obsolete if that went with the pod, else it failed.
    Gone(String),
    /// It failed, and why.
    Failed(String),
    /// It failed because no device could be obtained on the node, and why.
    NoDevice(String),
}

impl Stop {
    fn of(error: RequestError, doing: &str) -> Self {
        let why = format!("{doing}: {}", error.why);
        match error.failure {
            Failure::Gone => Self::Gone(why),
            Failure::Conflict | Failure::Busy | Failure::Unknown | Failure::Refused => Self::Failed(why),
        }
    }
}

/// One multi-step bind.
pub struct MultiStepBind {
    /// Sends the requests.
    pub caller: Caller,
    /// The watched objects.
    pub stores: Arc<Stores>,
    /// To the manager of GPU groups.
    pub group_requests: mpsc::Sender<GroupRequest>,
    /// The ordered bind.
    pub bind: OrderedBind,
    /// The request by which it is resumed; `None` for a new bind.
    pub resumes: Option<Arc<BindRequest>>,
    /// The steps, for traces.
    pub steps: StepLog,
}

/// What a multi-step bind has written and must undo on failure.
#[derive(Default)]
struct Done {
    request: Option<BindRequest>,
    devices: Vec<String>,
    /// When the devices were reserved.
    reserved: Option<Instant>,
    /// The bind among those that wait for its volume claims.
    waits_for: Option<Open>,
    volumes: Written,
    config_maps: Vec<ConfigMap>,
    labels: Vec<String>,
}

impl MultiStepBind {
    /// Runs the stages. On failure everything but the bind request is undone, unless the pod may be bound; the request is returned with the report. Of a bind that
    /// is obsolete only what it wrote for volumes is undone.
    pub async fn run(&self) -> (Report, Option<BindRequest>) {
        let mut done = Done::default();
        let mut report = Report::new(Ending::Done);
        for stage in STAGES {
            if let Err(stop) = self.perform(stage, &mut done, &mut report).await {
                debug!(?stage, ?stop, "bind stopped");
                report.no_device = matches!(stop, Stop::NoDevice(_));
                report.ending = self.ending(stop).await;
                if matches!(report.ending, Ending::Failed(_)) {
                    report.cause = stage.cause().unwrap_or(report.cause);
                }
                break;
            }
        }
        // At shutdown the bind request and all writes stay: the next leader resumes.
        if !self.caller.context.shutdown.is_cancelled() {
            // This bind no longer counts as one that waits for the claims.
            drop(done.waits_for.take());
            match report.ending {
                // Claims outlive their pod; all else goes with it.
                Ending::Overtaken if !report.uncertain => Box::pin(self.volumes().undo(&done.volumes)).await,
                Ending::Failed(_) if !report.uncertain => Box::pin(self.undo(&done)).await,
                // The claims have their volumes. All writes stay, also if the pod only may be bound.
                Ending::Done | Ending::Overtaken | Ending::Failed(_) => self.volumes().keep(),
            }
        }
        (report, done.request)
    }

    /// How a bind ends that stops before its last stage.
    async fn ending(&self, stop: Stop) -> Ending {
        match stop {
            Stop::Overtaken => Ending::Overtaken,
            // The scheduler waits for news of a pod that still has no node: no watch will show any.
            Stop::Gone(why) if self.pod_waits().await => Ending::Failed(why),
            Stop::Gone(_) => Ending::Overtaken,
            Stop::Failed(why) | Stop::NoDevice(why) => Ending::Failed(why),
        }
    }

    /// Whether the pod is still to be bound. Where the watch says so, the API server is asked, too, as the watch may be behind.
    async fn pod_waits(&self) -> bool {
        let wanted = &self.bind.placement.pod;
        let shown = self
            .stores
            .pods
            .get_same(&wanted.namespace, &wanted.name, Some(&wanted.uid));
        if !shown.is_some_and(|pod| waits(&pod)) {
            return false;
        }
        let api: Api<Pod> = Api::namespaced(self.caller.context.reads.clone(), &wanted.namespace);
        let found = self.caller.call("look at the pod", || api.get_opt(&wanted.name)).await;
        let is_it = |pod: &Pod| pod.metadata.uid.as_deref() == Some(&*wanted.uid);
        found.map_or(true, |found| found.is_some_and(|pod| is_it(&pod) && waits(&pod)))
    }

    async fn perform(&self, stage: Stage, done: &mut Done, report: &mut Report) -> Result<(), Stop> {
        let shares = self.bind.placement.received == GpuKind::Fraction;
        match stage {
            Stage::BindRequest => {
                let written = Box::pin(self.write_bind_request());
                let written = self.steps.step("write bind request", written);
                done.request = Some(written.await?);
                self.pod_is_as_decided()?;
            }
            Stage::Volumes if !self.bind.placement.volumes.is_empty() => {
                let promises = self.bind.placement.volumes.iter();
                let claims = promises.map(|promise| Arc::clone(&promise.claim));
                done.waits_for = Some(self.caller.open_claims.begin(claims));
                let volumes = self.volumes();
                let provided = Box::pin(volumes.provide(&mut done.volumes));
                let provided = self.steps.step("bind volumes", provided);
                provided
                    .await
                    .map_err(|error| Stop::of(error, "the pod's volumes cannot be bound"))?;
            }
            Stage::Devices if shares => {
                done.devices = self.steps.step("reserve devices", self.devices()).await?;
                done.reserved = Some(Instant::now());
            }
            Stage::ConfigMaps if shares => self.write_config_maps(done).await?,
            Stage::Labels if shares => self.write_labels(done).await?,
            Stage::PodGroup if self.caller.context.settings.sharing.always_bind_requests => {
                self.steps.step("wait for pod group", self.pod_group()).await?;
            }
            // Nobody else may have got the device since the config maps were written.
            Stage::SameDevices if shares => {
                let same = Box::pin(self.has_same_devices(done));
                if !self.steps.step("look at devices again", same).await? {
                    return Err(Stop::Failed(OTHER_DEVICE.to_owned()));
                }
            }
            Stage::Binding => {
                self.pod()?;
                let attempt = Attempt {
                    context: self.caller.context.clone(),
                    stores: Arc::clone(&self.stores),
                    claim_turns: Arc::clone(&self.caller.claim_turns),
                    steps: self.steps.clone(),
                };
                *report = attempt.bind(&self.bind).await;
                match &report.ending {
                    Ending::Done => {}
                    Ending::Overtaken => return Err(Stop::Overtaken),
                    Ending::Failed(why) => return Err(Stop::Failed(why.clone())),
                }
            }
            Stage::Volumes
            | Stage::Devices
            | Stage::ConfigMaps
            | Stage::Labels
            | Stage::PodGroup
            | Stage::SameDevices => {}
        }
        Ok(())
    }

    /// The pod as the watch shows it. One that another replica has bound to another node needs no bind.
    fn pod(&self) -> Result<Arc<Pod>, Stop> {
        let (wanted, node) = (&self.bind.placement.pod, &*self.bind.placement.node);
        let pods = &self.stores.pods;
        let pod = pods.get_same(&wanted.namespace, &wanted.name, Some(&wanted.uid));
        pod.filter(|pod| !pods::is_finished(pod) && !pods::is_bound_elsewhere(pod, node))
            .ok_or(Stop::Overtaken)
    }

    /// Fails the bind if the pod has changed since the decision: it is scheduled again. Before anything is taken for it, because the scheduler may have
    /// given that away meanwhile: the bind request may have taken long to write.
    fn pod_is_as_decided(&self) -> Result<(), Stop> {
        if !self.bind.names_its_group(&*self.pod()?) {
            return Err(Stop::Failed(OTHER_GROUP.to_owned()));
        }
        if self.bind.placement.received != GpuKind::Fraction {
            return Ok(());
        }
        let pod = self.pod()?;
        let groups: BTreeSet<&Arc<str>> = self.bind.placement.gpu_groups.iter().collect();
        let share = &self.bind.share;
        // Where the bind names no group, the step that shares GPUs fails, with its own message.
        let matches = groups.is_empty()
            || (is_fractional(&pod) && groups.len() == share.devices() && groups.len() <= GPU_GROUPS_PER_POD);
        let why = if Share::of_pod(&pod) != *share {
            "the pod's GPU sharing request has changed since its bind was decided"
        } else if !matches {
            "the pod requests no part of so many GPUs as its bind is for"
        } else if share.len() > GPU_SHARE_BYTES {
            "the pod's annotations for a part of a GPU are too long"
        } else {
            return Ok(());
        };
        Err(Stop::Failed(why.to_owned()))
    }

    /// Writes the bind request. When resuming, it must still exist; one left from a bind that is over
    /// is deleted.
    async fn write_bind_request(&self) -> Result<BindRequest, Stop> {
        let doing = "the bind request cannot be written";
        let ns = &self.bind.placement.pod.namespace;
        let (reads, writes): (Api<BindRequest>, Api<BindRequest>) = (
            Api::namespaced(self.caller.context.reads.clone(), ns),
            Api::namespaced(self.caller.context.writes.clone(), ns),
        );
        if let Some(resumed) = &self.resumes {
            let name = resumed.name_any();
            let found = self
                .caller
                .call("look for the bind request", || reads.get_opt(&name))
                .await;
            let found = found.map_err(|error| Stop::of(error, doing))?;
            return found
                .filter(|found| found.uid() == resumed.uid() && found.metadata.deletion_timestamp.is_none())
                .ok_or(Stop::Overtaken);
        }
        let wanted = bind_request::request(&self.bind, &self.caller.context.settings);
        let name = wanted.name_any();
        let mut last = None;
        for _ in 0..LOOKS {
            let params = PostParams::default();
            let error = match self
                .caller
                .call("create the bind request", || writes.create(&params, &wanted))
                .await
            {
                Ok(request) => return Ok(request),
                Err(error) if error.failure == Failure::Conflict => error,
                Err(error) if matches!(error.failure, Failure::Busy | Failure::Unknown) => {
                    let late = self.late_request(&reads, &wanted).await?;
                    return late.ok_or_else(|| Stop::of(error, doing));
                }
                Err(error) => return Err(Stop::of(error, doing)),
            };
            last = Some(error);
            let found = self
                .caller
                .call("look at the bind request", || reads.get_opt(&name))
                .await;
            match found.map_err(|error| Stop::of(error, doing))? {
                Some(found) if stands_for(&found, &wanted) => return Ok(found),
                Some(found) => drop_request(&self.caller, &found)
                    .await
                    .map_err(|error| Stop::of(error, doing))?,
                None => {}
            }
        }
        Err(last.map_or(Stop::Overtaken, |error| Stop::of(error, doing)))
    }

    /// Looks for the bind request whose creation was not answered, until it is there or has not come for [`LATE`]: a bind that is given up must not be
    /// carried out later, when its places are others'.
    async fn late_request(&self, reads: &Api<BindRequest>, wanted: &BindRequest) -> Result<Option<BindRequest>, Stop> {
        let (name, sent) = (wanted.name_any(), Instant::now());
        while self.caller.context.is_leading() && !self.caller.context.shutdown.is_cancelled() {
            sleep(LOOK_EVERY).await;
            self.pod()?;
            let found = self
                .caller
                .call("look for the bind request", || reads.get_opt(&name))
                .await;
            match found {
                Ok(Some(found)) if stands_for(&found, wanted) => return Ok(Some(found)),
                Ok(_) if sent.elapsed() >= LATE => break,
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// The devices of all groups, requested concurrently.
    async fn devices(&self) -> Result<Vec<String>, Stop> {
        let pod = self.pod()?;
        let ids = group_ids(&self.bind);
        if ids.is_empty() {
            let name = &self.bind.placement.pod;
            let why = format!(
                "no SelectedGPUGroups for fractional pod {}/{}: invalid binding request",
                name.namespace, name.name
            );
            return Err(Stop::Failed(why));
        }
        let asked = ids.iter().map(|id| async {
            let (answer, device) = oneshot::channel();
            let ask = GroupRequest {
                id: id.clone(),
                pod: Arc::clone(&pod),
                user: User {
                    namespace: self.bind.placement.pod.namespace.to_string(),
                    name: self.bind.placement.pod.name.to_string(),
                    share: self.bind.share.clone(),
                },
                answer,
            };
            let lost = || Stop::Failed("the process is shutting down".to_owned());
            self.group_requests.send(ask).await.map_err(|_| lost())?;
            let name = &self.bind.placement.pod;
            device.await.map_err(|_| lost())?.map_err(|NoDevice { why, of_node }| {
                let why = format!(
                    "failed to reserve GPUs for pod {}/{} in gpu group {}: {why}",
                    name.namespace, name.name, id.group
                );
                if of_node {
                    Stop::NoDevice(why)
                } else {
                    Stop::Failed(why)
                }
            })
        });
        try_join_all(asked).await
    }

    /// Whether the devices are still reserved for the pod.
    async fn has_same_devices(&self, done: &Done) -> Result<bool, Stop> {
        if self.devices().await? != done.devices {
            return Ok(false);
        }
        if done.reserved.is_some_and(|at| at.elapsed() < SURELY_RESERVED) {
            return Ok(true);
        }
        let namespace = &self.caller.context.settings.own_pods.reservation.namespace;
        let api: Api<Pod> = Api::namespaced(self.caller.context.reads.clone(), namespace);
        let uid = &*self.bind.placement.pod.uid;
        let ids = group_ids(&self.bind);
        // KAI gives its reservation pods other names.
        let groups: Vec<&str> = ids.iter().map(|id| &*id.group).collect();
        let of_groups = ListParams::default().labels(&format!("{} in ({})", label::GPU_GROUP, groups.join(",")));
        let found = self.caller.call("look at reservation pods", || api.list(&of_groups));
        let found = found
            .await
            .map_err(|error| Stop::of(error, "the reservation pods of its GPU groups cannot be read"))?;
        let is_reserved = |(id, device): (&GroupId, &String)| {
            let reserves = |pod: &Pod| {
                let of_it = pod
                    .labels()
                    .get(label::GPU_GROUP)
                    .is_some_and(|group| **group == *id.group);
                let holds = pods::node(pod) == Some(&id.node) && reservation::error(pod).is_none();
                of_it && holds && reservation::device(pod) == Some(device) && users::of(pod).contains_key(uid)
            };
            found.items.iter().any(reserves)
        };
        Ok(ids.iter().zip(&done.devices).all(is_reserved))
    }

    async fn write_config_maps(&self, done: &mut Done) -> Result<(), Stop> {
        let pod = self.pod()?;
        let node = self.stores.nodes.get("", &self.bind.placement.node);
        let sharing = &self.caller.context.settings.sharing;
        let gpu_operator = &self.caller.gpu_operator;
        let read = self.caller.call("read the GPU operator's ClusterPolicy", || {
            gpu_operator.cdi(sharing.cdi)
        });
        let cdi = Box::pin(read)
            .await
            .map_err(|error| Stop::of(error, "the GPU operator's ClusterPolicy cannot be read"))?;
        let words = Variables {
            cdi,
            hami_core: sharing.hami_core,
        };
        let maps = fraction::config_maps(&self.bind, &pod, node.as_deref(), &done.devices, words);
        let maps = maps.map_err(Stop::Failed)?;
        let api: Api<ConfigMap> =
            Api::namespaced(self.caller.context.writes.clone(), &self.bind.placement.pod.namespace);
        for map in maps {
            let map = self.write_config_map(&api, &map).await?;
            done.config_maps.push(map);
        }
        Ok(())
    }

    /// Creates a ConfigMap. An existing one of the name is updated if an interrupted bind created it for this pod, which
    /// a precondition on its owner checks, so that no right to read ConfigMaps is needed. Any other is not touched.
    async fn write_config_map(&self, api: &Api<ConfigMap>, map: &ConfigMap) -> Result<ConfigMap, Stop> {
        let name = map.name_any();
        let doing = format!("config map {name} cannot be written");
        let content = json!([
            {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": &*self.bind.placement.pod.uid},
            {"op": "add", "path": "/data", "value": map.data},
        ]);
        let content: json_patch::Patch =
            serde_json::from_value(content).map_err(|error| Stop::Failed(format!("{doing}: {error}")))?;
        let mut last = None;
        for _ in 0..LOOKS {
            let params = PostParams::default();
            match self
                .caller
                .call("create a config map", || api.create(&params, map))
                .await
            {
                Ok(created) => return Ok(created),
                Err(error) if error.failure == Failure::Conflict => {}
                Err(error) => return Err(Stop::of(error, &doing)),
            }
            let params = PatchParams::default();
            let patch = Patch::Json::<ConfigMap>(content.clone());
            match self
                .caller
                .call("fill a config map", || api.patch(&name, &params, &patch))
                .await
            {
                Ok(patched) => return Ok(patched),
                // Deleted meanwhile, or written by another client.
                Err(error) if matches!(error.failure, Failure::Gone | Failure::Conflict) => last = Some(error),
                Err(error) if error.failure == Failure::Refused => {
                    return Err(Stop::Failed(taken(&name, &error)));
                }
                Err(error) => return Err(Stop::of(error, &doing)),
            }
        }
        Err(last.map_or(Stop::Overtaken, |error| Stop::Failed(format!("{doing}: {}", error.why))))
    }

    async fn write_labels(&self, done: &mut Done) -> Result<(), Stop> {
        let pod = self.pod()?;
        let groups: Vec<&str> = self.bind.placement.gpu_groups.iter().map(|group| &**group).collect();
        let changes = fraction::labels(&pod, &groups);
        let keys = changes.iter().filter(|(_, value)| value.is_some());
        done.labels = keys.map(|(key, _)| key.clone()).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let mut last = None;
        for _ in 0..LOOKS {
            match self.label(&changes).await {
                Ok(()) => return Ok(()),
                // A spurious conflict, or another pod of the name: the Binding will show it.
                Err(error) if error.failure == Failure::Conflict => last = Some(error),
                Err(error) => return Err(Stop::of(error, "the pod cannot be labelled with its GPU group")),
            }
            self.pod()?;
        }
        Err(last.map_or(Stop::Overtaken, |error| {
            Stop::of(error, "the pod cannot be labelled with its GPU group")
        }))
    }

    async fn label(&self, changes: &BTreeMap<String, Option<String>>) -> Result<(), RequestError> {
        let pod = &self.bind.placement.pod;
        let api: Api<Pod> = Api::namespaced(self.caller.context.writes.clone(), &pod.namespace);
        let patch = Patch::Merge(json!({"metadata": {"uid": &*pod.uid, "labels": changes}}));
        let params = PatchParams::default();
        let patched = self
            .caller
            .call("label the pod", || api.patch(&pod.name, &params, &patch))
            .await;
        patched.map(drop)
    }

    /// Waits until the PodGroup that the bound pod will name exists: clients of KAI read it as soon as they see the pod bound.
    async fn pod_group(&self) -> Result<(), Stop> {
        let pod = self.pod()?;
        let named = self.bind.annotations.get(annotation::POD_GROUP_NAME).cloned();
        let Some(name) = named.or_else(|| Some(pods::annotated_group(&pod)?.name().to_owned())) else {
            return Ok(());
        };
        let groups = &self.stores.pod_groups;
        let mut changes = groups.changes();
        let there = async {
            while !groups.contains(&self.bind.placement.pod.namespace, &name) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let late = |_| Stop::Failed(format!("its pod group {name} does not exist yet"));
        timeout(GROUP_TIMEOUT, there).await.map_err(late)
    }

    fn volumes(&self) -> Volumes<'_> {
        Volumes {
            caller: &self.caller,
            stores: &self.stores,
            bind: &self.bind,
        }
    }

    /// Undoes writes. What cannot be undone is overwritten by the pod's next bind, or deleted with the pod.
    async fn undo(&self, done: &Done) {
        self.volumes().undo(&done.volumes).await;
        if !done.labels.is_empty() {
            let changes = done.labels.iter().map(|key| (key.clone(), None)).collect();
            if let Err(error) = self.label(&changes).await {
                debug!(error = error.why, "labels not removed");
            }
        }
        let ns = &self.bind.placement.pod.namespace;
        let api: Api<ConfigMap> = Api::namespaced(self.caller.context.writes.clone(), ns);
        for map in &done.config_maps {
            let (name, params) = (map.name_any(), only(map.uid()));
            if let Err(error) = self
                .caller
                .delete("delete a config map", || api.delete(&name, &params))
                .await
            {
                debug!(error = error.why, name, "config map not deleted");
            }
        }
    }
}

/// The message for a name conflict of a pod's ConfigMap.
fn taken(name: &str, error: &RequestError) -> String {
    format!(
        "config map {name} is there already and was not made for this pod, so it is left as it is: delete it, or name another in the pod's annotation {} ({})",
        annotation::SHARED_GPU_CONFIG_MAP,
        error.why
    )
}

/// The groups of a bind, with its node.
#[must_use]
pub fn group_ids(bind: &OrderedBind) -> Vec<GroupId> {
    let placement = &bind.placement;
    let id = |group: &Arc<str>| GroupId {
        node: Arc::clone(&placement.node),
        group: Arc::clone(group),
    };
    placement.gpu_groups.iter().map(id).collect()
}

/// Whether a pod has no node, and neither ends nor has ended.
fn waits(pod: &Pod) -> bool {
    !pods::is_bound(pod) && !pods::is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a bind request is the one that was to be created.
fn stands_for(found: &BindRequest, wanted: &BindRequest) -> bool {
    bind_request::same(found, wanted) && bind_request::is_ours(found) && found.metadata.deletion_timestamp.is_none()
}

/// Deletes a bind request.
///
/// # Errors
/// If it may still exist.
pub async fn drop_request(caller: &Caller, request: &BindRequest) -> Result<(), RequestError> {
    let api: Api<BindRequest> = Api::namespaced(
        caller.context.writes.clone(),
        request.metadata.namespace.as_deref().unwrap_or_default(),
    );
    let (name, params) = (request.name_any(), only(request.uid()));
    caller
        .delete("delete the bind request", || api.delete(&name, &params))
        .await
}

/// Deletion by uid, without a grace period.
#[must_use]
pub fn only(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}
