//! A necessary condition for placement: enough free GPUs.

use crate::engine::model::Model;
use crate::engine::model::ids::PodId;

use crate::engine::actions::capacity::needed_gpus;

/// GPUs that must be free for a pending pod; requests by memory count as 0.
#[must_use]
pub fn asked_gpus(model: &Model, pod: PodId) -> i64 {
    needed_gpus(model, &model.shapes()[model.pods()[pod].shape])
}

/// Whether needs, largest first, fit one after the other into the largest capacities.
#[must_use]
pub fn first_fit(needs: &[i64], mut capacities: Vec<i64>) -> bool {
    let mut needs = needs.to_vec();
    needs.sort_unstable_by(|left, right| right.cmp(left));
    capacities.sort_unstable_by(|left, right| right.cmp(left));
    capacities.truncate(needs.len());
    let mut given = vec![0; capacities.len()];
    for need in needs {
        if need == 0 {
            return true;
        }
        let holder = (0..capacities.len())
            .take_while(|at| capacities[*at] >= need)
            .find(|at| capacities[*at] - given[*at] >= need);
        match holder {
            Some(at) => given[at] += need,
            None => return false,
        }
    }
    true
}
