//! The recent history of queues, in memory: a limited number of samples of each queue. When the limit is reached, every other sample is dropped and the
//! interval doubles, up to [`SPARSEST`]; from then on the oldest sample is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::api::views::{Amounts, QueueSample};
use crate::components::bus::QueueSeen;

/// Samples of a queue: eight hours at the longest interval.
const SAMPLES: usize = 360;
/// The interval of samples at the beginning, and at most.
const DENSEST: Duration = Duration::from_secs(10);
const SPARSEST: Duration = Duration::from_secs(80);
/// Limit on queues with a history, 30 KB each; the first by name have one.
const QUEUES: usize = 500;

/// A queue at one time: fair share, allocated, requested, each of cpu, memory and GPUs in the engine's units.
type Sample = [[i64; 3]; 3];

/// See the module.
#[derive(Debug)]
pub struct QueueHistory(Mutex<Past>);

#[derive(Debug)]
struct Past {
    every: Duration,
    /// When the samples were taken.
    times: VecDeque<Timestamp>,
    /// One sample for each of `times`; `None` for times before the queue existed, or while another replica scheduled it.
    queues: BTreeMap<String, VecDeque<Option<Sample>>>,
}

impl Default for QueueHistory {
    fn default() -> Self {
        Self(Mutex::new(Past {
            every: DENSEST,
            times: VecDeque::new(),
            queues: BTreeMap::new(),
        }))
    }
}

impl QueueHistory {
    /// Adds a sample of the queues that this process schedules (`led`), and returns the interval to the next. The history of `others`, which another
    /// replica schedules, is kept without a sample, and that of deleted queues is dropped.
    pub fn add(&self, now: Timestamp, led: &[QueueSeen], others: &[QueueSeen]) -> Duration {
        let mut past = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        past.free_space();
        past.times.push_back(now);
        let length = past.times.len();
        let mut all: Vec<&QueueSeen> = led.iter().collect();
        all.sort_by(|left, right| left.name.cmp(&right.name));
        all.truncate(QUEUES);
        for queue in &all {
            let samples = past.queues.entry(queue.name.to_string()).or_default();
            samples.resize(length - 1, None);
            samples.push_back(Some([queue.fair, queue.allocated, queue.wanted]));
        }
        let others = others.iter().filter(|queue| past.queues.contains_key(&*queue.name));
        let others: Vec<&QueueSeen> = others.take(QUEUES - all.len()).collect();
        for queue in others {
            if let Some(samples) = past.queues.get_mut(&*queue.name) {
                samples.resize(length, None);
            }
        }
        let is_kept =
            |samples: &VecDeque<Option<Sample>>| samples.len() == length && samples.iter().any(Option::is_some);
        past.queues.retain(|_, samples| is_kept(samples));
        past.every
    }

    /// The samples of a queue, and the seconds from one to the next.
    #[must_use]
    pub fn of(&self, queue: &str) -> (u64, Vec<QueueSample>) {
        let past = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = past.queues.get(queue).into_iter().flatten();
        let samples = past.times.iter().zip(samples).filter_map(|(at, sample)| {
            let [fair_share, allocated, requested] = sample.as_ref()?.map(Amounts::of);
            Some(QueueSample {
                at: *at,
                fair_share,
                allocated,
                requested,
            })
        });
        (past.every.as_secs(), samples.collect())
    }
}

impl Past {
    fn free_space(&mut self) {
        if self.times.len() < SAMPLES {
            return;
        }
        if self.every < SPARSEST {
            self.every *= 2;
            every_other(&mut self.times);
            self.queues.values_mut().for_each(every_other);
        } else {
            self.times.pop_front();
            for samples in self.queues.values_mut() {
                samples.pop_front();
            }
        }
    }
}

/// Keeps the second, the fourth, and so on: the latest is among them.
fn every_other<T>(samples: &mut VecDeque<T>) {
    let mut number = 0;
    samples.retain(|_| {
        number += 1;
        number % 2 == 0
    });
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn queue(name: &str, gpus: i64) -> QueueSeen {
        QueueSeen {
            name: name.into(),
            display: name.into(),
            parent: None,
            valid: true,
            priority: 0,
            quota: [None; 3],
            limit: [None; 3],
            weight: [0; 3],
            fair: [0; 3],
            allocated: [0, 0, gpus * 1_000_000],
            non_preemptible: [0; 3],
            wanted: [0; 3],
            usage: [0; 3],
            schedule_until: None,
        }
    }

    fn at(second: usize) -> Timestamp {
        Timestamp::from_second(second as i64).unwrap()
    }

    #[test]
    fn samples_become_sparser_and_then_the_oldest_goes() {
        let history = QueueHistory::default();
        let mut now = 0;
        for number in 0..10 * SAMPLES {
            let pause = history.add(at(now), &[queue("team", number as i64)], &[]);
            now += pause.as_secs() as usize;
        }
        let (every, samples) = history.of("team");
        assert_eq!(every, SPARSEST.as_secs());
        assert_eq!(samples.len(), SAMPLES);
        assert_eq!(samples.last().unwrap().allocated.gpu, (10 * SAMPLES - 1) as f64);
        let steps = samples
            .windows(2)
            .map(|pair| pair[1].at.duration_since(pair[0].at).as_secs());
        assert!(steps.clone().all(|step| step == 80), "{:?}", steps.collect::<Vec<_>>());
    }

    #[test]
    fn a_queue_has_samples_from_its_creation_to_its_deletion() {
        let history = QueueHistory::default();
        history.add(at(1), &[queue("old", 1)], &[]);
        history.add(at(2), &[queue("old", 2), queue("new", 3)], &[]);
        assert_eq!(history.of("old").1.len(), 2);
        let new = history.of("new").1;
        assert_eq!((new.len(), new[0].at, new[0].allocated.gpu), (1, at(2), 3.0));
        history.add(at(3), &[queue("new", 3)], &[]);
        assert!(history.of("old").1.is_empty());
        assert_eq!(history.of("new").1.len(), 2);
    }

    #[test]
    fn a_queue_that_another_replica_schedules_for_a_while_keeps_its_samples() {
        let history = QueueHistory::default();
        let (blue, red) = (queue("blue", 1), queue("red", 2));
        history.add(at(1), &[blue.clone(), red.clone()], &[]);
        history.add(at(2), std::slice::from_ref(&blue), &[red.clone(), queue("unknown", 3)]);
        history.add(at(3), &[blue.clone(), red], &[]);
        let times = |name: &str| history.of(name).1.iter().map(|sample| sample.at).collect::<Vec<_>>();
        assert_eq!(times("blue"), [at(1), at(2), at(3)]);
        assert_eq!(times("red"), [at(1), at(3)]);
        assert!(times("unknown").is_empty());
        history.add(at(4), &[blue], &[]);
        assert!(times("red").is_empty(), "it is deleted");
    }

    #[test]
    fn no_more_queues_are_kept_than_there_is_room_for() {
        let history = QueueHistory::default();
        let all: Vec<_> = (0..QUEUES + 5)
            .map(|number| queue(&format!("q{number:04}"), 1))
            .collect();
        history.add(at(1), &all, &[]);
        let past = history.0.lock().unwrap();
        assert_eq!(past.queues.len(), QUEUES);
        assert!(past.queues.contains_key("q0000") && !past.queues.contains_key("q0504"));
    }

    #[test]
    fn all_queues_with_a_history_keep_it_however_many_others_another_replica_schedules() {
        let history = QueueHistory::default();
        let mut all: Vec<_> = (0..QUEUES + 100)
            .map(|number| queue(&format!("q{number:04}"), 1))
            .collect();
        history.add(at(1), &all, &[]);
        let led = all.remove(0);
        all.reverse();
        history.add(at(2), &[led], &all);
        let past = history.0.lock().unwrap();
        assert_eq!(past.queues.len(), QUEUES);
        assert!(past.queues.contains_key("q0001") && past.queues.contains_key("q0499"));
    }
}
