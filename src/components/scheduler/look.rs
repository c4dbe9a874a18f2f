//! Answers to requests for the scheduler's state. The receiver of an answer may be dropped.

use super::reports::{complete_details, complete_seen};
use crate::components::bus::Look;
use crate::components::watches::Stores;
use crate::engine::Engine;
use crate::engine::input::Time;
use crate::mirror::Shard;

/// Answers a request.
pub fn answer(look: Look, engine: &mut Engine, stores: &Stores, shard: &Shard, now: Time) {
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
