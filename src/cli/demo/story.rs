//! The steps.

use super::picture::Picture;

/// A step.
pub(super) struct Step {
    /// What happens, and why.
    pub sentence: &'static str,
    /// The objects that are created for it.
    pub manifests: &'static str,
    /// Whether it has ended.
    pub done: fn(&Picture) -> bool,
}

/// All of them.
pub(super) const STEPS: [Step; 4] = [
    Step {
        sentence: "Two teams share 16 GPUs: the queues red and blue have a quota of 8 each, and each may use GPUs that the other does not need.",
        manifests: include_str!("queues.yaml"),
        done: |seen| seen.holds("red", 0.0) && seen.holds("blue", 0.0),
    },
    Step {
        sentence: "Shared GPU: blue starts two notebooks that need half a GPU each, and both get the same one.",
        manifests: include_str!("notebooks.yaml"),
        done: |seen| seen.holds("blue", 1.0) && seen.users_of_shared_gpus() == [2],
    },
    Step {
        sentence: "Fair share: red starts a Job of four workers with 4 GPUs each, and since blue does not need the rest, three run, with 4 GPUs over red's quota.",
        manifests: include_str!("workers.yaml"),
        done: |seen| {
            seen.holds("red", 12.0) && seen.holds("blue", 1.0) && seen.requests("red", 16.0) && seen.explains("workers")
        },
    },
    Step {
        sentence: "Reclaim: blue starts a gang of two pods with 3 GPUs each, and since its quota covers both, one of red's workers is evicted for it.",
        manifests: include_str!("gang.yaml"),
        done: |seen| {
            seen.holds("red", 8.0) && seen.holds("blue", 7.0) && seen.requests("red", 16.0) && seen.explains("workers")
        },
    },
];
