//! The sums of what queues hold, over a window.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::window::Window;
use crate::engine::input::{Millis, Name, Time};

/// Number of buckets of a sliding window. Usage expires bucket by bucket, and is averaged within one.
const BUCKETS: i64 = 128;
/// Minimum number of buckets in a saved ledger.
const COARSEST: i64 = 2;
/// Billionths.
const WHOLE: f64 = 1e9;
/// Largest share that is reported. Queues can hold more than the capacity after nodes were removed.
const MOST: f64 = 1_000.0 * WHOLE;

/// Milli-cores, bytes and millionths of a GPU.
type Held = [i64; 3];

/// The sums of what queues hold, over a window.
///
/// The cost of a change does not depend on the length of the history.
#[derive(Clone, Debug)]
pub struct Ledger {
    window: Window,
    half_life: Option<Millis>,
    /// Length of a bucket; [`Millis::MAX`] for windows that reset, which have one bucket.
    length: Millis,
    /// Start of the current window and its end; `None` for sliding windows.
    period: Option<(Time, Option<Time>)>,
    capacity: Track,
    queues: BTreeMap<Name, Track>,
}

/// The current and past amounts of a queue, or of the cluster.
#[derive(Clone, Debug, Default)]
struct Track {
    /// The current amount, since `since`.
    held: Held,
    since: Time,
    /// The past before `since`, oldest first.
    buckets: VecDeque<Bucket>,
}

/// A bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    from: Time,
    to: Time,
    /// Amount times milliseconds, weighted as at `to`.
    sums: [f64; 3],
}

/// A saved ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// When it was taken, in milliseconds since the Unix epoch.
    at: i64,
    capacity: TrackState,
    queues: BTreeMap<String, TrackState>,
}

/// A saved [`Track`]: the current amount, and for each bucket its bounds, in milliseconds before `at`, and mean amounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TrackState {
    held: Held,
    #[serde(rename = "pieces")]
    buckets: Vec<(i64, i64, [f32; 3])>,
}

impl Ledger {
    /// An empty ledger. Without a half-life the whole window has equal weight.
    #[must_use]
    pub fn new(window: Window, half_life: Option<Millis>) -> Self {
        Self::with_buckets(window, half_life, BUCKETS)
    }

    fn with_buckets(window: Window, half_life: Option<Millis>, buckets: i64) -> Self {
        let length = match window {
            Window::Sliding(size) => (size / buckets).max(1),
            Window::Tumbling { .. } | Window::Cron(_) => Millis::MAX,
        };
        Self {
            window,
            half_life: half_life.filter(|half_life| *half_life > 0),
            length,
            period: None,
            capacity: Track::default(),
            queues: BTreeMap::new(),
        }
    }

    /// Sets the capacity of the cluster from now on.
    pub fn capacity(&mut self, amounts: Held, now: Time) {
        let start = self.start(now);
        let mut capacity = std::mem::take(&mut self.capacity);
        self.settle(&mut capacity, start, now);
        capacity.held = amounts;
        self.capacity = capacity;
    }

    /// Sets what a queue, including its descendants, holds from now on.
    pub fn hold(&mut self, queue: &Name, amounts: Held, now: Time) {
        if amounts == [0; 3] && !self.queues.contains_key(queue) {
            return;
        }
        let start = self.start(now);
        let mut track = self.queues.remove(queue).unwrap_or_default();
        self.settle(&mut track, start, now);
        track.held = amounts;
        self.queues.insert(queue.clone(), track);
    }

    /// Sets the existing queues: others hold nothing from now on. Their past usage still counts if they come back.
    pub fn only(&mut self, there: impl Fn(&str) -> bool, now: Time) {
        let gone = |(name, track): &(&Name, &Track)| track.held != [0; 3] && !there(name);
        let gone: Vec<Name> = self.queues.iter().filter(gone).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.hold(&name, [0; 3], now);
        }
    }

    /// Usage of each queue: parts per billion of the cluster's capacity over the window, cpu, memory and GPUs. Absent queues have used nothing.
    pub fn usage(&mut self, now: Time) -> Vec<(Name, [i64; 3])> {
        let start = self.start(now);
        let mut capacity = std::mem::take(&mut self.capacity);
        self.settle(&mut capacity, start, now);
        let whole = self.value(&capacity, start, now);
        self.capacity = capacity;
        let mut all = Vec::with_capacity(self.queues.len());
        for (name, mut track) in std::mem::take(&mut self.queues) {
            self.settle(&mut track, start, now);
            if track.held == [0; 3] && track.buckets.is_empty() {
                continue;
            }
            let used = self.value(&track, start, now);
            let mut shares = [0; 3];
            for ((share, used), whole) in shares.iter_mut().zip(used).zip(whole) {
                *share = billionths(used, whole);
            }
            if shares != [0; 3] {
                all.push((name.clone(), shares));
            }
            self.queues.insert(name, track);
        }
        all
    }

    /// Saves the ledger in at most so many bytes of JSON: with larger buckets, then without the queues that used least.
    #[must_use]
    pub fn state(&self, now: Time, most: usize) -> String {
        let mut buckets = if self.length == Millis::MAX { 1 } else { BUCKETS };
        loop {
            let text = self.text(now, buckets);
            if text.len() <= most {
                return text;
            }
            if buckets <= COARSEST {
                return self.of_the_largest(now, buckets, most);
            }
            buckets /= 2;
        }
    }

    fn of_the_largest(&self, now: Time, buckets: i64, most: usize) -> String {
        let mut kept = self.clone();
        let mut usage = kept.usage(now);
        usage.sort_by_key(|(_, shares)| std::cmp::Reverse(shares.iter().copied().max()));
        loop {
            usage.truncate(usage.len() * 3 / 4);
            let queues = usage.iter().filter_map(|(name, _)| kept.queues.remove_entry(name));
            kept.queues = queues.collect();
            let text = kept.text(now, buckets);
            if text.len() <= most || usage.is_empty() {
                return text;
            }
        }
    }

    fn text(&self, now: Time, buckets: i64) -> String {
        let mut coarse = self.clone();
        if buckets < BUCKETS && self.length != Millis::MAX {
            coarse = Self::with_buckets(self.window.clone(), self.half_life, buckets);
            coarse.take_over(&self.kept(now), 0, now);
        }
        serde_json::to_string(&coarse.kept(now)).unwrap_or_default()
    }

    fn kept(&self, now: Time) -> State {
        let mut ledger = self.clone();
        ledger.usage(now);
        let track = |track: &Track| TrackState {
            held: track.held,
            buckets: track.buckets.iter().map(|bucket| ledger.mean(bucket, now)).collect(),
        };
        State {
            at: now.0,
            capacity: track(&ledger.capacity),
            queues: ledger
                .queues
                .iter()
                .map(|(name, kept)| (name.to_string(), track(kept)))
                .collect(),
        }
    }

    fn mean(&self, bucket: &Bucket, now: Time) -> (i64, i64, [f32; 3]) {
        let weight = self.weight(bucket.from, bucket.to);
        #[expect(clippy::cast_possible_truncation, reason = "seven digits are enough")]
        let means = bucket
            .sums
            .map(|sum| if weight > 0.0 { (sum / weight) as f32 } else { 0.0 });
        (now.0 - bucket.from.0, now.0 - bucket.to.0, means)
    }

    /// Restores a saved ledger. The amounts at its end count as held for `for_long` after it. The rest of the time until now is unknown, so it
    /// counts neither as usage nor as capacity.
    pub fn take_over(&mut self, kept: &State, for_long: Millis, now: Time) {
        let start = self.start(now);
        let at = Time(kept.at.min(now.0));
        let until = Time(at.0.saturating_add(for_long.max(0)).min(now.0));
        let read = |kept: &TrackState| {
            let mut track = Track::default();
            for (from, to, means) in &kept.buckets {
                let (from, to) = (at.0.saturating_sub(*from), at.0.saturating_sub((*to).max(0)));
                let means = means
                    .map(f64::from)
                    .map(|mean| if mean.is_finite() { mean.max(0.0) } else { 0.0 });
                self.add(&mut track, (Time(from.max(start.0)), Time(to)), means);
            }
            track.since = at;
            track.held = kept.held.map(|held| held.max(0));
            self.settle(&mut track, start, until);
            if until < now {
                track.held = [0; 3];
                self.settle(&mut track, start, now);
            }
            track
        };
        let capacity = read(&kept.capacity);
        let queues = kept
            .queues
            .iter()
            .map(|(name, kept)| (Name::from(&**name), read(kept)))
            .collect();
        (self.capacity, self.queues) = (capacity, queues);
    }

    /// The start of the window, cached.
    fn start(&mut self, now: Time) -> Time {
        if matches!(self.window, Window::Sliding(_)) {
            return self.window.start(now);
        }
        match self.period {
            Some((start, end)) if now > start && end.is_none_or(|end| now <= end) => start,
            _ => {
                let start = self.window.start(now);
                self.period = Some((start, self.window.next_reset(now)));
                start
            }
        }
    }

    /// Adds the current amount up to now, and drops what has left the window.
    fn settle(&self, track: &mut Track, start: Time, now: Time) {
        while track.buckets.front().is_some_and(|oldest| oldest.to <= start) {
            track.buckets.pop_front();
        }
        // The clock was set back: buckets that begin now or later are dropped, and one that reaches beyond now ends now and keeps its sums, for the cluster as
        // for the queues.
        if now < track.since {
            track.buckets.retain(|bucket| bucket.from < now);
            for bucket in &mut track.buckets {
                bucket.to = bucket.to.min(now);
            }
            track.since = now;
        }
        if now > track.since {
            let held = track.held.map(|held| held as f64);
            let from = track.since.max(start);
            if held != [0.0; 3] {
                self.add(track, (from, now), held);
            }
            track.since = now;
        }
    }

    /// Adds an amount over a time.
    fn add(&self, track: &mut Track, (mut from, to): (Time, Time), held: [f64; 3]) {
        while from < to {
            let number = from.0.div_euclid(self.length);
            let end = Time(number.saturating_add(1).saturating_mul(self.length)).min(to);
            let weight = self.weight(from, end);
            let sums = held.map(|held| held * weight);
            match track.buckets.back_mut() {
                Some(last) if last.from.0.div_euclid(self.length) == number && last.to <= from => {
                    let left = self.left(last.to, end);
                    for (sum, more) in last.sums.iter_mut().zip(sums) {
                        *sum = *sum * left + more;
                    }
                    last.to = end;
                }
                _ => track.buckets.push_back(Bucket { from, to: end, sums }),
            }
            from = end;
        }
    }

    /// The weighted sum of a track at an instant.
    fn value(&self, track: &Track, start: Time, now: Time) -> [f64; 3] {
        let mut sums = [0.0; 3];
        for bucket in &track.buckets {
            let inside = if bucket.from < start {
                self.weight(start, bucket.to) / self.weight(bucket.from, bucket.to)
            } else {
                1.0
            };
            let left = self.left(bucket.to, now) * inside;
            for (sum, more) in sums.iter_mut().zip(bucket.sums) {
                *sum += more * left;
            }
        }
        sums
    }

    /// The decay factor between two instants.
    fn left(&self, earlier: Time, later: Time) -> f64 {
        self.half_life.map_or(1.0, |half_life| {
            (-((later.0 - earlier.0) as f64) / half_life as f64).exp2()
        })
    }

    /// The weighted integral of an amount of 1 over a time, at its end.
    fn weight(&self, from: Time, to: Time) -> f64 {
        let span = (to.0 - from.0) as f64;
        self.half_life.map_or(span, |half_life| {
            let constant = half_life as f64 / std::f64::consts::LN_2;
            -constant * (-span / constant).exp_m1()
        })
    }
}

fn billionths(part: f64, whole: f64) -> i64 {
    if whole > 0.0 {
        #[expect(clippy::cast_possible_truncation, reason = "within bounds; not a number becomes 0")]
        let share = (part / whole * WHOLE).clamp(0.0, MOST).round() as i64;
        share
    } else {
        0
    }
}

#[cfg(test)]
mod tests;
