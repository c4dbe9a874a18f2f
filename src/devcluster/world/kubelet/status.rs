//! The pod status that a kubelet writes, as a strategic merge patch: one for each change of a pod's state.
//!
//! Conditions merge by type, so those of others stay. The uid in the patch makes the API server refuse it for another pod of the same name.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::lifetime::Lifetime;
use crate::devcluster::world::resources::is_sidecar;

/// A pod's state as people can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The kubelet did not take the pod.
    Refused { reason: String, message: String },
    /// The containers cannot be created yet.
    Waiting { reason: &'static str, message: String },
    /// All containers run.
    Running { since: Timestamp },
    /// Containers that ended wait to be started again.
    BackingOff { ended: Timestamp },
    /// An init container fails over and over.
    InitFailed { code: i32, at: Timestamp },
    /// An init container has failed, and the pod with it.
    InitFailedForGood { code: i32, at: Timestamp },
    /// All containers have ended, and the pod with them.
    Ended { at: Timestamp },
    /// All containers were killed.
    Killed { at: Timestamp },
}

/// What a status is made of.
pub(super) struct Report<'a> {
    pub pod: &'a Pod,
    pub life: &'a Lifetime,
    pub shown: &'a Shown,
    pub started: Timestamp,
    pub restarts: u32,
    pub host_ip: &'a str,
    pub pod_ip: &'a str,
}

/// The exit code of a container that SIGKILL ended.
const KILLED: i32 = 137;

impl Report<'_> {
    /// The patch of the status subresource at `now`.
    pub fn patch(&self, now: Timestamp) -> Value {
        let status = match self.shown {
            Shown::Refused { reason, message } => json!({
                "phase": "Failed", "reason": reason, "message": message, "startTime": Time(self.started),
            }),
            Shown::Waiting { .. } | Shown::InitFailed { .. } => self.status("Pending", now),
            Shown::Running { .. } | Shown::BackingOff { .. } => self.status("Running", now),
            Shown::InitFailedForGood { .. } | Shown::Killed { .. } => self.status("Failed", now),
            Shown::Ended { .. } if self.life.fails() => self.status("Failed", now),
            Shown::Ended { .. } => self.status("Succeeded", now),
        };
        json!({"metadata": {"uid": self.pod.metadata.uid}, "status": status})
    }

    fn status(&self, phase: &str, now: Timestamp) -> Value {
        let mut status = json!({
            "phase": phase,
            "conditions": self.conditions(now),
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "startTime": Time(self.started),
            "containerStatuses": self.main_containers(),
        });
        let init = self.init_containers();
        if !init.is_empty() {
            status["initContainerStatuses"] = Value::Array(init);
        }
        if !matches!(self.shown, Shown::Waiting { .. }) {
            status["podIP"] = json!(self.pod_ip);
            status["podIPs"] = json!([{"ip": self.pod_ip}]);
        }
        status
    }

    fn conditions(&self, now: Timestamp) -> Vec<Value> {
        let condition = |kind: &str, holds: bool, reason: Option<&str>, message: Option<&str>| {
            let status = if holds { "True" } else { "False" };
            // A null removes the field of an earlier status.
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastProbeTime": null, "lastTransitionTime": Time(now),
            })
        };
        let unready = format!("containers with unready status: [{}]", self.unready_names());
        let (sandbox, initialized, reason, message) = match self.shown {
            Shown::Running { .. } => (true, true, None, None),
            Shown::Ended { .. } if !self.life.fails() => (false, true, Some("PodCompleted"), None),
            Shown::Ended { .. } | Shown::Killed { .. } => (false, true, Some("PodFailed"), None),
            Shown::InitFailedForGood { .. } => (false, false, Some("PodFailed"), None),
            Shown::InitFailed { .. } => (true, false, Some("ContainersNotReady"), Some(unready.as_str())),
            Shown::BackingOff { .. } => (true, true, Some("ContainersNotReady"), Some(unready.as_str())),
            Shown::Waiting { .. } | Shown::Refused { .. } => {
                (false, true, Some("ContainersNotReady"), Some(unready.as_str()))
            }
        };
        vec![
            condition("PodReadyToStartContainers", sandbox, None, None),
            condition(
                "Initialized",
                initialized,
                (!initialized).then_some("ContainersNotInitialized"),
                None,
            ),
            condition("Ready", reason.is_none(), reason, message),
            condition("ContainersReady", reason.is_none(), reason, message),
        ]
    }

    fn unready_names(&self) -> String {
        let names: Vec<&str> = self
            .containers()
            .iter()
            .map(|container| container.name.as_str())
            .collect();
        names.join(" ")
    }

    fn main_containers(&self) -> Vec<Value> {
        let exits = &self.life.containers;
        self.containers()
            .iter()
            .zip(exits)
            .enumerate()
            .map(|(index, (container, exit))| {
                let restarts = if exit.after.is_some() { self.restarts } else { 0 };
                let id = self.container_id("main", index, restarts);
                let state = match self.shown {
                    Shown::Waiting { reason, message } => waiting(reason, message),
                    Shown::Refused { .. } | Shown::InitFailed { .. } | Shown::InitFailedForGood { .. } => {
                        waiting("PodInitializing", "")
                    }
                    Shown::BackingOff { .. } if exit.after.is_some() => waiting(
                        "CrashLoopBackOff",
                        &format!("back-off restarting failed container={}", container.name),
                    ),
                    Shown::BackingOff { .. } => running(self.started),
                    Shown::Running { since } => running(*since),
                    Shown::Ended { at } => terminated(exit.code, self.started, *at, &id),
                    Shown::Killed { at } => terminated(KILLED, self.started, *at, &id),
                };
                let last = match self.shown {
                    Shown::BackingOff { ended } if exit.after.is_some() => {
                        terminated(exit.code, self.started, *ended, &id)
                    }
                    _ => json!({}),
                };
                self.container_status(container, state, &last, restarts, id)
            })
            .collect()
    }

    fn init_containers(&self) -> Vec<Value> {
        let containers = self
            .pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .enumerate();
        containers
            .map(|(index, container)| {
                let id = self.container_id("init", index, 0);
                let state = match self.shown {
                    Shown::Refused { .. } | Shown::Waiting { .. } => waiting("PodInitializing", ""),
                    Shown::InitFailed { code, at } | Shown::InitFailedForGood { code, at } => {
                        terminated(*code, self.started, *at, &id)
                    }
                    Shown::Running { .. } | Shown::BackingOff { .. } if is_sidecar(container) => running(self.started),
                    Shown::Running { .. } | Shown::BackingOff { .. } => terminated(0, self.started, self.started, &id),
                    Shown::Ended { at } | Shown::Killed { at } => terminated(0, self.started, *at, &id),
                };
                self.container_status(container, state, &json!({}), 0, id)
            })
            .collect()
    }

    fn container_status(&self, container: &Container, state: Value, last: &Value, restarts: u32, id: String) -> Value {
        let runs = state.get("running").is_some();
        let init_done = !is_sidecar(container) && state.pointer("/terminated/exitCode") == Some(&json!(0));
        let exists = state.get("waiting").is_none();
        json!({
            "name": container.name,
            "image": container.image.as_deref().unwrap_or_default(),
            "imageID": if exists { "simulated" } else { "" },
            "containerID": if exists { id } else { String::new() },
            "ready": runs || (init_done && !matches!(self.shown, Shown::Ended { .. } | Shown::Killed { .. })),
            "started": runs,
            "restartCount": restarts,
            "state": state,
            "lastState": last,
        })
    }

    fn container_id(&self, kind: &str, index: usize, restarts: u32) -> String {
        format!(
            "simulated://{}/{kind}-{index}-{restarts}",
            self.pod.metadata.uid.as_deref().unwrap_or_default()
        )
    }

    fn containers(&self) -> &[Container] {
        self.pod
            .spec
            .as_ref()
            .map(|spec| spec.containers.as_slice())
            .unwrap_or_default()
    }
}

fn waiting(reason: &str, message: &str) -> Value {
    if message.is_empty() {
        json!({"waiting": {"reason": reason}})
    } else {
        json!({"waiting": {"reason": reason, "message": message}})
    }
}

fn running(since: Timestamp) -> Value {
    json!({"running": {"startedAt": Time(since)}})
}

fn terminated(code: i32, started: Timestamp, ended: Timestamp, id: &str) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": Time(started), "finishedAt": Time(ended), "containerID": id,
    }})
}
