//! Evaluates selectors on the devices of pools, up to the limit on steps at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::cel::{Subject, on_a_deep_stack};
use super::pools::{PoolKey, Slices};
use super::selectors::{Job, Selectors};
use crate::engine::input::Name;
use crate::engine::input::devices::{DeviceInput, PoolInput};

/// The pools as the engine has them, in the order of the last change of their devices.
#[derive(Default)]
pub struct Pools {
    inputs: BTreeMap<PoolKey, Input>,
    by_change: BTreeMap<u64, PoolKey>,
    /// The last change.
    last: u64,
}

struct Input {
    changed: u64,
    pool: PoolInput,
}

impl Pools {
    /// A pool.
    #[must_use]
    pub fn get(&self, key: &PoolKey) -> Option<&PoolInput> {
        self.inputs.get(key).map(|input| &input.pool)
    }

    /// Records a pool. `changed`: selectors are to be evaluated on it.
    pub fn put(&mut self, key: PoolKey, pool: PoolInput, changed: bool) {
        let before = self.inputs.get(&key).map(|input| input.changed);
        let at = match before {
            Some(at) if !changed => at,
            _ => {
                if let Some(at) = before {
                    self.by_change.remove(&at);
                }
                self.last += 1;
                self.by_change.insert(self.last, key.clone());
                self.last
            }
        };
        self.inputs.insert(key, Input { changed: at, pool });
    }

    /// Removes a pool. Returns whether it was there.
    pub fn remove(&mut self, key: &PoolKey) -> bool {
        let removed = self.inputs.remove(key);
        if let Some(input) = &removed {
            self.by_change.remove(&input.changed);
        }
        removed.is_some()
    }

    /// Evaluates waiting selectors, up to the limit on steps. Returns the pools with other results.
    pub fn evaluate(&mut self, slices: &Slices, selectors: &mut Selectors) -> BTreeSet<PoolKey> {
        let mut evaluation = Evaluation {
            pools: self,
            slices,
            subjects: None,
            errors: Errors::default(),
            touched: BTreeSet::new(),
        };
        if selectors.are_due() {
            // Without a thread they stay queued.
            let _ = on_a_deep_stack(|| evaluation.all(selectors));
        }
        evaluation.touched
    }
}

/// One evaluation of waiting selectors.
struct Evaluation<'a> {
    pools: &'a mut Pools,
    slices: &'a Slices,
    /// The devices of the last pool, which is often that of the next selector, too.
    subjects: Option<(PoolKey, Vec<Subject>)>,
    errors: Errors,
    touched: BTreeSet<PoolKey>,
}

impl Evaluation<'_> {
    fn all(&mut self, selectors: &mut Selectors) {
        while let Some(job) = selectors.next() {
            let mut left = selectors.left;
            // A selector whose evaluation panics meets nothing.
            let rest = catch_unwind(AssertUnwindSafe(|| self.one(&job, selectors, &mut left)));
            selectors.left = left;
            match rest.ok().flatten() {
                Some(through) => selectors.put_back(job.number, through),
                None => selectors.finish(job.number, self.pools.last),
            }
        }
    }

    /// Evaluates a selector on the pools that have changed since. Returns the change that it got to if pools are left.
    fn one(&mut self, job: &Job, selectors: &Selectors, left: &mut usize) -> Option<u64> {
        let Pools { inputs, by_change, .. } = &mut *self.pools;
        let Some(selector) = selectors.sound_one(job.number) else {
            // A former selector may have had its number.
            for (key, input) in inputs {
                for device in &mut input.pool.devices {
                    if record(device, job.number, Ok(false)) {
                        self.touched.insert(key.clone());
                    }
                }
            }
            return None;
        };
        let mut through = job.through;
        for (change, key) in by_change.range((Bound::Excluded(through), Bound::Unbounded)) {
            if *left == 0 {
                return Some(through);
            }
            let Some(Input { pool, .. }) = inputs.get_mut(key) else {
                continue;
            };
            let subjects = match &mut self.subjects {
                Some((of, subjects)) if of == key => subjects,
                other => &mut other.insert((key.clone(), self.slices.subjects(key))).1,
            };
            for (device, subject) in pool.devices.iter_mut().zip(subjects) {
                let result = selector.meets(subject);
                if record(device, job.number, result.map_err(|error| self.errors.share(error))) {
                    self.touched.insert(key.clone());
                }
            }
            *left = left.saturating_sub(selectors.cost(job.number, pool.devices.len()));
            through = *change;
        }
        None
    }
}

/// Records the result of a selector on a device. Returns whether it is another one than before.
fn record(device: &mut DeviceInput, number: u32, result: Result<bool, Name>) -> bool {
    let changed = match (device.meets.binary_search(&number), &result) {
        (Ok(_), Ok(true)) | (Err(_), Ok(false) | Err(_)) => false,
        (Ok(at), _) => {
            device.meets.remove(at);
            true
        }
        (Err(at), Ok(true)) => {
            device.meets.insert(at, number);
            true
        }
    };
    let failed = device.fails.binary_search_by_key(&number, |(other, _)| *other);
    match (failed, result.err()) {
        (Ok(at), Some(error)) => {
            let known = device.fails.get_mut(at);
            known.is_some_and(|(_, known)| std::mem::replace(known, error.clone()) != error) || changed
        }
        (Ok(at), None) => {
            device.fails.remove(at);
            true
        }
        (Err(at), Some(error)) => {
            device.fails.insert(at, (number, error));
            true
        }
        (Err(_), None) => changed,
    }
}

/// Texts of errors: most devices of a cluster have the same for one selector.
#[derive(Default)]
struct Errors(BTreeSet<Name>);

impl Errors {
    fn share(&mut self, error: String) -> Name {
        if let Some(known) = self.0.get(error.as_str()) {
            return known.clone();
        }
        let error = Name::from(error);
        self.0.insert(error.clone());
        error
    }
}
