//! Answers to requests for the scheduler's state. The receiver of an answer may be dropped.

use super::reports::{complete_details, complete_seen};
use crate::components::bus::Look;
use crate::components::watches::Stores;
use crate::engine::Engine;
use crate::engine::input::Time;
use crate::mirror::Shard;

/// Answers a request. One that was given up while it was in the inbox costs nothing.
pub fn answer(look: Look, engine: &mut Engine, stores: &Stores, shard: &Shard, now: Time) {
    if is_given_up(&look) {
        return;
    }
    let _ = match look {
        Look::JobOrder(reply) => reply.try_send(engine.waiting_in_order(now)).is_ok(),
        Look::Queues(reply) => reply.try_send(engine.see_queues()).is_ok(),
        Look::Nodes(from, reply) => reply.try_send(engine.see_nodes(from)).is_ok(),
        Look::Groups(from, reply) => {
            let mut page = engine.see_groups(from);
            for group in &mut page.seen {
                complete_seen(group, stores, shard);
            }
            reply.try_send(page).is_ok()
        }
        Look::Group(key, reply) => {
            let mut details = engine.see_details(&key, now).map(Box::new);
            if let Some(details) = &mut details {
                complete_details(details, stores, shard);
            }
            reply.try_send(details).is_ok()
        }
        Look::GroupOf(pod, reply) => reply.try_send(engine.see_group_of(&pod)).is_ok(),
    };
}

/// Whether the receiver of the answer was dropped.
fn is_given_up(look: &Look) -> bool {
    match look {
        Look::JobOrder(reply) => reply.is_closed(),
        Look::Queues(reply) => reply.is_closed(),
        Look::Nodes(_, reply) => reply.is_closed(),
        Look::Groups(_, reply) => reply.is_closed(),
        Look::Group(_, reply) => reply.is_closed(),
        Look::GroupOf(_, reply) => reply.is_closed(),
    }
}

#[cfg(test)]
mod tests;
