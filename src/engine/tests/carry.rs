//! Carrying decisions out, as a cluster would.

use crate::engine::Engine;
use crate::engine::decision::Decisions;
use crate::engine::input::{Event, PodInput, PodStatus};
use crate::engine::policy::{ActionKind, Policy};

use super::scenario::NOW;

/// An engine with these actions that was told these events.
pub fn engine(events: &[Event], actions: &[ActionKind]) -> Engine {
    let mut engine = Engine::new(Policy {
        actions: actions.to_vec(),
        ..Policy::default()
    });
    for event in events {
        engine.apply(event.clone(), NOW);
    }
    engine
}

/// Bound pods run; evicted ones are gone, and others of their names wait. The engine is told, and `events` say how things are now.
pub fn carry_out(engine: &mut Engine, events: &mut [Event], decisions: &Decisions) {
    for event in events {
        match event {
            Event::Group(group) => {
                let Some(times) = decisions.times.iter().find(|times| times.group == group.key) else {
                    continue;
                };
                (group.stale_since, group.last_start, group.last_eviction) =
                    (times.stale_since, times.last_start, times.last_eviction);
            }
            Event::Pod(pod) => {
                if decisions.evict.iter().any(|eviction| eviction.pod.uid == pod.pod.uid) {
                    engine.apply(Event::PodGone(pod.pod.uid.clone()), NOW);
                    **pod = waiting(pod);
                } else if let Some(bind) = decisions.bind.iter().find(|bind| bind.pod.uid == pod.pod.uid) {
                    pod.status = PodStatus::Running;
                    pod.node = Some(bind.node.clone());
                    pod.gpu_groups.clone_from(&bind.gpu_groups);
                    pod.received = Some(bind.received);
                } else {
                    continue;
                }
            }
            _ => continue,
        }
        engine.apply(event.clone(), NOW);
    }
}

fn waiting(pod: &PodInput) -> PodInput {
    PodInput {
        status: PodStatus::Pending,
        node: None,
        gpu_groups: Vec::new(),
        received: None,
        ..pod.clone()
    }
}
