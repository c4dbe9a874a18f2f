//! What the API server stores, as watches show it. Each kind is as it was at one resource version, if not all at the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::invariants::{self, State};
use crate::network::NodeOfPod;
use crate::plan::TEAMS;

/// A kind that the rules are about.
struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    put: fn(&mut State, &Value),
    remove: fn(&mut State, &Value),
    clear: fn(&mut State),
}

const KINDS: &[Kind] = &[
    Kind {
        group: "",
        version: "v1",
        kind: "Pod",
        put: |state, stored| {
            let pod = invariants::pod(stored);
            state.pods.insert(pod.uid.clone(), pod);
        },
        remove: |state, stored| {
            state.pods.remove(&text(&stored["metadata"]["uid"]));
        },
        clear: |state| state.pods.clear(),
    },
    Kind {
        group: "",
        version: "v1",
        kind: "Node",
        put: |state, stored| {
            state.nodes.insert(name(stored), invariants::node(stored));
        },
        remove: |state, stored| {
            state.nodes.remove(&name(stored));
        },
        clear: |state| state.nodes.clear(),
    },
    Kind {
        group: "scheduling.run.ai",
        version: "v2alpha2",
        kind: "PodGroup",
        put: |state, stored| {
            state.groups.insert(key(stored), invariants::group(stored));
        },
        remove: |state, stored| {
            state.groups.remove(&key(stored));
        },
        clear: |state| state.groups.clear(),
    },
    Kind {
        group: "scheduling.run.ai",
        version: "v2",
        kind: "Queue",
        put: |state, stored| {
            state.queues.insert(name(stored), invariants::queue(stored));
        },
        remove: |state, stored| {
            state.queues.remove(&name(stored));
        },
        clear: |state| state.queues.clear(),
    },
    Kind {
        group: "scheduling.run.ai",
        version: "v1alpha2",
        kind: "BindRequest",
        put: |state, stored| {
            let name = full_name(stored);
            if !state.bind_requests.contains(&name) {
                state.bind_requests.push(name);
            }
        },
        remove: |state, stored| {
            let name = full_name(stored);
            state.bind_requests.retain(|known| *known != name);
        },
        clear: |state| state.bind_requests.clear(),
    },
    Kind {
        group: "",
        version: "v1",
        kind: "ConfigMap",
        put: |state, stored| {
            let (namespace, name) = key(stored);
            let of_team = TEAMS.contains(&&*namespace) && name != "kube-root-ca.crt";
            if of_team && !state.config_maps.contains(&name) {
                state.config_maps.push(name);
            }
        },
        remove: |state, stored| {
            let name = name(stored);
            state.config_maps.retain(|known| *known != name);
        },
        clear: |state| state.config_maps.clear(),
    },
    Kind {
        group: "coordination.k8s.io",
        version: "v1",
        kind: "Lease",
        put: |state, stored| {
            let of_shard = stored["metadata"]["namespace"] == "kai-scheduler"
                && stored["metadata"]["labels"]["unikai.dev/replica-of"].is_null();
            if of_shard {
                let renewal = stored["spec"]["renewTime"].to_string();
                state.renewals.insert(name(stored), renewal);
            }
        },
        remove: |state, stored| {
            state.renewals.remove(&name(stored));
        },
        clear: |state| state.renewals.clear(),
    },
];

/// Watches all that the rules are about, until dropped.
pub struct Observer {
    state: Arc<Mutex<State>>,
    _watches: JoinSet<()>,
}

impl Observer {
    pub fn start(client: &Client) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let mut watches = JoinSet::new();
        for kind in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group, kind.version, kind.kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            watches.spawn(follow(kind, api, Arc::clone(&state)));
        }
        Self {
            state,
            _watches: watches,
        }
    }

    /// What is stored now; `at` is the time of the run in ms.
    pub fn state(&self, at: u64) -> State {
        State {
            at,
            ..locked(&self.state).clone()
        }
    }

    pub fn node_of_pod(&self) -> NodeOfPod {
        let state = Arc::clone(&self.state);
        Arc::new(move |namespace, name| {
            let state = locked(&state);
            let mut pods = state.pods.values();
            let pod = pods.find(|pod| pod.namespace == namespace && pod.name == name)?;
            (!pod.node.is_empty()).then(|| pod.node.clone())
        })
    }
}

/// Applies what the watch of a kind shows. A new list takes effect when it is complete.
async fn follow(kind: &Kind, api: Api<DynamicObject>, state: Arc<Mutex<State>>) {
    let mut events = watch(api, watcher::Config::default()).default_backoff().boxed();
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.push(stored(object)),
            Ok(Event::InitDone) => {
                let mut state = locked(&state);
                (kind.clear)(&mut state);
                listed.drain(..).for_each(|object| (kind.put)(&mut state, &object));
            }
            Ok(Event::Apply(object)) => (kind.put)(&mut locked(&state), &stored(object)),
            Ok(Event::Delete(object)) => (kind.remove)(&mut locked(&state), &stored(object)),
            // The API server is away; the watch begins again.
            Err(_) => {}
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stored(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn name(stored: &Value) -> String {
    text(&stored["metadata"]["name"])
}

fn key(stored: &Value) -> (String, String) {
    (text(&stored["metadata"]["namespace"]), name(stored))
}

fn full_name(stored: &Value) -> String {
    let (namespace, name) = key(stored);
    format!("{namespace}/{name}")
}
