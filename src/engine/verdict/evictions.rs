//! Why a pod was evicted, in a sentence that names for whom and by which right.

use crate::engine::decision::{Eviction, EvictionCause, Side, Sides, Wording};
use crate::engine::model::resources::{CPU, GPUS, MEMORY};

use super::words::{count, list, shared, shared_number, workload};

impl Eviction {
    /// The message of the event and of the pod's condition.
    #[must_use]
    pub fn text(&self, words: Wording) -> String {
        match words {
            Wording::Plain => self.sentence(),
            Wording::Kai => self.message(),
        }
    }

    /// The cause in one sentence; budgets that were overruled in another.
    #[must_use]
    pub fn sentence(&self) -> String {
        let namespace = &self.pod.namespace;
        let by = self.for_group.as_ref().map(|group| workload(group, namespace));
        let by = by.unwrap_or_else(|| "another workload".to_owned());
        let cause = match &self.why {
            EvictionCause::Preempted => format!("Preempted for {by}, which has a higher priority in the same queue"),
            EvictionCause::Moved => format!("Moved to make room for {by}; it starts again elsewhere"),
            EvictionCause::Reclaimed(None) => format!("Reclaimed for {by}, whose queue takes back what it may have"),
            EvictionCause::Reclaimed(Some(sides)) => format!("Reclaimed for {by}: {}", between(sides)),
            EvictionCause::Broken {
                min,
                sub_group,
                lacking,
            } => {
                // The pod's own sub-group may be complete.
                let lacking = lacking.as_ref().map(|(name, min)| (name, *min));
                let lacking = lacking.or_else(|| sub_group.as_ref().map(|name| (name, *min)));
                let (of, min) = match lacking {
                    Some((name, min)) => (format!("sub-group {name} of {}", workload(&self.group, namespace)), min),
                    None => (workload(&self.group, namespace), *min),
                };
                let pods = count(min, "pod", "pods");
                format!("Its gang is broken: {of} needs {pods} at once and has had fewer for too long")
            }
        };
        let budgets: Vec<String> = self.exceeds.iter().map(ToString::to_string).collect();
        match &*budgets {
            [] => cause,
            [only] => format!("{cause}. PodDisruptionBudget {only} does not allow it and was overruled"),
            several => {
                let names = list(several, several.len());
                format!("{cause}. PodDisruptionBudgets {names} do not allow it and were overruled")
            }
        }
    }
}

/// The figures of both queues, of the resource of which the one that lost held too much.
fn between(Sides { theirs, ours }: &Sides) -> String {
    let over = |bound: &dyn Fn(usize) -> Option<i64>| {
        let beyond = |resource: &usize| bound(*resource).is_some_and(|bound| theirs.used[*resource] > bound);
        [GPUS, CPU, MEMORY].into_iter().find(beyond)
    };
    let resource = over(&|resource| Some(theirs.fair[resource]))
        .or_else(|| over(&|resource| theirs.quota[resource]))
        .or_else(|| over(&|_| Some(0)))
        .unwrap_or(GPUS);
    format!(
        "queue {} held {} ({}), queue {} {} ({})",
        theirs.queue,
        shared(resource, theirs.used[resource]),
        bounds(theirs, resource),
        ours.queue,
        shared_number(resource, ours.used[resource]),
        bounds(ours, resource),
    )
}

fn bounds(side: &Side, resource: usize) -> String {
    let quota = side.quota[resource].map_or_else(|| "unlimited".to_owned(), |quota| shared_number(resource, quota));
    format!(
        "fair share {}, quota {quota}",
        shared_number(resource, side.fair[resource])
    )
}

#[cfg(test)]
mod tests;
