//! Answers to requests for the scheduler's state. The receiver of an answer may be dropped.

use crate::components::bus::Look;
use crate::engine::Engine;
use crate::engine::input::Time;

/// Answers a request.
pub fn answer(look: Look, engine: &mut Engine, now: Time) {
    let _ = match look {
        Look::JobOrder(reply) => reply.try_send(engine.waiting_in_order(now)).is_ok(),
        Look::Queues(reply) => reply.try_send(engine.see_queues()).is_ok(),
        Look::Nodes(from, reply) => reply.try_send(engine.see_nodes(from)).is_ok(),
        Look::Groups(from, reply) => reply.try_send(engine.see_groups(from)).is_ok(),
        Look::Group(key, reply) => reply.try_send(engine.see_details(&key, now).map(Box::new)).is_ok(),
        Look::GroupOf(pod, reply) => reply.try_send(engine.see_group_of(&pod)).is_ok(),
    };
}
