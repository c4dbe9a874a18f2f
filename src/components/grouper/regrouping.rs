//! Pod groups of which a pod is grouped again though it has not changed, since its owners may have. Pure: no clock, no client.
//!
//! - A pod leaves a gang: a second later, once for all that leave until then.
//! - Pods wait for a node: once a minute, or more rarely if very many groups wait; namespaces take turns.

use std::time::Duration;

use tokio::time::Instant;

use crate::components::agenda::Agenda;
use crate::components::bus::GroupKey;
use crate::components::fair::Fair;

/// Wait after a pod has left: others usually leave with it.
const AFTER_LEAVING: Duration = Duration::from_secs(1);
/// Time from one round through the groups that wait to the next.
const ROUND: Duration = Duration::from_secs(60);
/// Minimum time between two groups of a round.
const BETWEEN: Duration = Duration::from_millis(50);

/// See the module.
pub struct Regrouping {
    left: Agenda<GroupKey>,
    /// Groups that are left of the round.
    round: Fair<GroupKey>,
    next_round: Instant,
    next_of_round: Instant,
}

impl Regrouping {
    /// Nothing to group yet.
    pub fn new(now: Instant) -> Self {
        Self {
            left: Agenda::default(),
            round: Fair::default(),
            next_round: now + ROUND,
            next_of_round: now,
        }
    }

    /// A pod of a gang has left, or begins to.
    pub fn left(&mut self, group: &GroupKey, now: Instant) {
        self.left.plan(group, now + AFTER_LEAVING);
    }

    /// When the next group is due, or the next round.
    pub fn next(&self) -> Instant {
        let of_round = if self.round.is_empty() {
            self.next_round
        } else {
            self.next_of_round
        };
        self.left.next().map_or(of_round, |left| left.min(of_round))
    }

    /// The groups that are due. `waiting`: those with pods that wait.
    pub fn due<'a, W: Iterator<Item = &'a GroupKey>>(
        &mut self,
        now: Instant,
        waiting: impl FnOnce() -> W,
    ) -> Vec<GroupKey> {
        let mut due = self.left.start_due(now);
        for group in &due {
            self.left.finish(group);
        }
        if self.round.is_empty() && self.next_round <= now {
            self.next_round = now + ROUND;
            waiting().for_each(|group| self.round.push(group.clone()));
        }
        if self.next_of_round <= now
            && let Some(group) = self.round.pop()
        {
            self.next_of_round = now + BETWEEN;
            due.push(group);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(namespace: &str, number: usize) -> GroupKey {
        GroupKey::new(namespace, &format!("g{number}"))
    }

    #[test]
    fn pods_that_leave_together_cause_one_grouping_a_second() {
        let start = Instant::now();
        let mut regrouping = Regrouping::new(start);
        let gang = group("team", 1);
        let mut times = Vec::new();
        // A pod leaves every hundredth of a second.
        for hundredth in 0..300 {
            let now = start + Duration::from_millis(10) * hundredth;
            for due in regrouping.due(now, std::iter::empty) {
                assert_eq!(due, gang);
                times.push((now - start).as_millis());
            }
            regrouping.left(&gang, now);
        }
        assert_eq!(times, [1_000, 2_000]);
        let last = start + Duration::from_millis(3_000);
        assert_eq!(regrouping.next(), last);
        assert_eq!(regrouping.due(last, std::iter::empty), [gang]);
        assert_eq!(regrouping.next(), start + ROUND, "nothing else is due");
    }

    #[test]
    fn groups_that_wait_take_turns_within_a_rate() {
        let start = Instant::now();
        let mut regrouping = Regrouping::new(start);
        let loud: Vec<_> = (0..2_000).map(|number| group("loud", number)).collect();
        let quiet = group("quiet", 1);
        let waiting = || loud.iter().chain([&quiet]);
        let mut found = Vec::new();
        let mut now = start;
        while now < start + 2 * ROUND {
            found.extend(
                regrouping
                    .due(now, waiting)
                    .into_iter()
                    .map(|group| (now - start, group)),
            );
            now = regrouping.next();
        }
        assert_eq!(found[0], (ROUND, loud[0].clone()));
        assert_eq!(found[1], (ROUND + BETWEEN, quiet.clone()), "it is the next one's turn");
        assert_eq!(found.len(), 1_200, "as many as the rate allows");
        let of_quiet = found.iter().filter(|(_, group)| *group == quiet);
        assert_eq!(of_quiet.count(), 1, "once in the round");
    }

    #[test]
    fn a_round_without_groups_is_followed_by_the_next_a_minute_later() {
        let start = Instant::now();
        let mut regrouping = Regrouping::new(start);
        assert!(regrouping.due(start + ROUND, std::iter::empty).is_empty());
        assert_eq!(regrouping.next(), start + 2 * ROUND);
    }
}
