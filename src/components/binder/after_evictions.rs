//! Binds of pod groups for which pods are evicted in the same cycle. They start when the API server has accepted these evictions, and fail if it refuses
//! one: although their nodes may have room already, their queue may be within its limit only without the evicted pods.

use std::collections::HashMap;

use crate::components::bus::OrderedBind;
use crate::engine::input::GroupKey;

/// Binds that wait for evictions, by pod group.
#[derive(Debug, Default)]
pub struct AfterEvictions(HashMap<GroupKey, Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Evictions that have not ended.
    open: usize,
    refused: bool,
    /// With the term of leadership in which each was ordered.
    binds: Vec<(OrderedBind, u64)>,
}

/// Binds that need not wait any longer.
#[derive(Debug, Default, PartialEq)]
pub struct Released {
    /// They may start, each in its term.
    pub start: Vec<(OrderedBind, u64)>,
    /// They fail: an eviction was refused.
    pub fail: Vec<OrderedBind>,
}

impl AfterEvictions {
    /// A pod is to be evicted for the group.
    pub fn eviction(&mut self, group: &GroupKey) {
        self.0.entry(group.clone()).or_default().open += 1;
    }

    /// Keeps a bind back if evictions for its group are open; returns it otherwise.
    pub fn hold(&mut self, bind: OrderedBind, term: u64) -> Option<OrderedBind> {
        match self.0.get_mut(&bind.placement.group) {
            Some(waiting) => {
                waiting.binds.push((bind, term));
                None
            }
            None => Some(bind),
        }
    }

    /// An eviction for the group has ended. After the last one, its binds are released.
    pub fn ended(&mut self, group: &GroupKey, refused: bool) -> Released {
        let Some(waiting) = self.0.get_mut(group) else {
            return Released::default();
        };
        waiting.refused |= refused;
        waiting.open -= 1;
        if waiting.open > 0 {
            return Released::default();
        }
        let waiting = self.0.remove(group).unwrap_or_default();
        if waiting.refused {
            Released {
                start: Vec::new(),
                fail: waiting.binds.into_iter().map(|(bind, _)| bind).collect(),
            }
        } else {
            Released {
                start: waiting.binds,
                fail: Vec::new(),
            }
        }
    }
}
