//! The stages of a cycle, for an observer that is called after each. The engine has no clock; the observer can measure the time of each stage.

use super::decision::Work;
use super::policy::ActionKind;

/// Called after each stage. It cannot change decisions.
pub type Observer<'a> = &'a mut dyn FnMut(Stage);

/// A stage that has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The model is up to date.
    Prepared,
    /// Fair shares are computed.
    Divided,
    /// A pod group was tried and has no place, or why it has none was found. There may be very many in a cycle.
    Tried,
    /// Pods of a pod group were placed.
    Placed(ActionKind),
    /// One search for victims for one pod group ended.
    Searched {
        /// The action.
        action: ActionKind,
        /// The search.
        searcher: Searcher,
        /// Whether it found victims.
        solved: bool,
        /// Its counted steps.
        work: Work,
    },
    /// An evicting action has processed a pod group.
    TakenUp {
        /// The action.
        action: ActionKind,
        /// The result.
        end: SearchEnd,
    },
    /// An action ended.
    Ended(ActionKind),
    /// Reports and decisions are complete.
    Finished,
}

/// The searches for victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Searcher {
    /// Empties one node.
    NodeLocalGreedy,
    /// Empties the smallest nodes that suffice, then more.
    MultiNodeGang,
    /// Searches all sets of victims.
    Complete,
}

impl Searcher {
    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeLocalGreedy => "NodeLocalGreedy",
            Self::MultiNodeGang => "MultiNodeGang",
            Self::Complete => "Complete",
        }
    }
}

/// How an evicting action ended for a pod group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// Victims were found.
    Solved,
    /// No victims help.
    Exhausted,
    /// The steps of the cycle were used up.
    OutOfSteps,
    /// No generator is switched on.
    NoGenerator,
    /// The action had used up its steps before the search, and ends.
    NotAttempted,
    /// Checks of the pod group showed that no victims help; there was no search.
    RuledOut,
    /// It was not considered: one that is no harder to place failed, or no eviction gives it what it lacks.
    Skipped,
}
