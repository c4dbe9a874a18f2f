//! What the API server stores, as watches show it. Each kind is as it was at one resource version, if not all at the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::network::WithState;
use crate::state::{Kind, State};

/// Watches all that the rules are about, until dropped.
pub struct Observer {
    state: Arc<Mutex<State>>,
    _watches: JoinSet<()>,
}

impl Observer {
    pub fn start(client: &Client) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let resource = ApiResource::from_gvk(&kind.of_api());
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

    pub fn with_state(&self) -> WithState {
        let state = Arc::clone(&self.state);
        Arc::new(move |ask| ask(&locked(&state)))
    }
}

/// Applies what the watch of a kind shows. A new list takes effect when it is complete.
async fn follow(kind: Kind, api: Api<DynamicObject>, state: Arc<Mutex<State>>) {
    let mut events = watch(api, watcher::Config::default()).default_backoff().boxed();
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.push(stored(object)),
            Ok(Event::InitDone) => {
                let mut state = locked(&state);
                state.clear(kind);
                listed.drain(..).for_each(|object| state.put(kind, &object));
            }
            Ok(Event::Apply(object)) => locked(&state).put(kind, &stored(object)),
            Ok(Event::Delete(object)) => locked(&state).remove(kind, &stored(object)),
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
