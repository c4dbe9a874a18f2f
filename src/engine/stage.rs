//! The stages of a cycle, for an observer that is called after each. The engine has no clock; an observer may have one, and measure what took how long.

use super::decision::Work;
use super::policy::ActionKind;

/// Is called after each stage. Nothing that it does changes what is decided.
pub type Observer<'a> = &'a mut dyn FnMut(Stage);

/// Something that has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The model is up to date.
    Prepared,
    /// The cluster is divided among the queues.
    Divided,
    /// A pod group got its next places.
    Placed(ActionKind),
    /// A generator of victims, or the complete search, has looked for one pod group.
    Searched {
        /// For which action.
        action: ActionKind,
        /// Which one.
        searcher: Searcher,
        /// With success.
        solved: bool,
        /// What it cost.
        work: Work,
    },
    /// A pod group was taken up by an action that evicts.
    TakenUp {
        /// Which action.
        action: ActionKind,
        /// What came of it.
        end: SearchEnd,
    },
    /// An action is through.
    Ended(ActionKind),
    /// Reports and decisions are written.
    Finished,
}

/// The searches for victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Searcher {
    /// Empties one node.
    NodeLocalGreedy,
    /// Empties the smallest nodes that suffice, then more.
    MultiNodeGang,
    /// Looks through all sets of victims.
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

/// What came of a pod group that an action took up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// Victims were found.
    Solved,
    /// There are none that help.
    Exhausted,
    /// The steps of the cycle were used up.
    OutOfSteps,
    /// No generator is switched on.
    NoGenerator,
    /// It was certain from the start that none help.
    NotAttempted,
}
