//! The rules that the operator never breaks, in one catalogue: each has an id, by which logs and tests name it, and a sentence. The predicates are where the
//! state is that they are about: the engine's model, the watched objects, or all that the API server stores.

use std::fmt::{self, Display, Formatter};

/// A rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// A letter and a number.
    pub id: &'static str,
    /// What holds.
    pub sentence: &'static str,
    /// When it holds.
    pub holds: Holds,
    /// What checks it.
    pub checked: &'static [Check],
}

/// When a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// At any time.
    Always,
    /// Some time after the last fault, in a cluster that does not change.
    AtRest,
    /// When all workloads are gone, too.
    Empty,
}

/// What checks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The self-check of the engine's model in each scheduler, and tests (`src/engine/model/check.rs`).
    Model,
    /// The binder, for each change of what it watches (`src/components/binder/audit.rs`).
    Binder,
    /// The simulation and soaks: predicates over all that the API server stores (`tests/simulation/invariants.rs`).
    Stored,
    /// The simulation and soaks: predicates over requests and logs (`tests/simulation/network.rs`, `run.rs`, `soak.rs`).
    Requests,
}

const MODEL: &[Check] = &[Check::Model];
const STORED: &[Check] = &[Check::Stored];
const STORED_AND_BINDER: &[Check] = &[Check::Stored, Check::Binder];
const REQUESTS: &[Check] = &[Check::Requests];

const fn rule(id: &'static str, sentence: &'static str, holds: Holds, checked: &'static [Check]) -> Rule {
    Rule {
        id,
        sentence,
        holds,
        checked,
    }
}

/// All rules.
#[rustfmt::skip]
pub const ALL: &[Rule] = &[
    rule("B-1", "a pod that is bound stays on its node", Holds::Always, STORED),
    rule("N-1", "no node is given more than its resources", Holds::Always, STORED),
    rule("N-2", "no NUMA zone is given more than its CPUs", Holds::Always, STORED),
    rule("N-3", "a pod that has CPUs for itself has them in one NUMA zone", Holds::Always, STORED),
    rule("G-1", "a GPU group has one device", Holds::Always, STORED_AND_BINDER),
    rule("G-2", "a device belongs to one GPU group", Holds::Always, STORED_AND_BINDER),
    rule("G-3", "the portions of a device add up to at most 1", Holds::Always, STORED_AND_BINDER),
    rule("G-4", "each pod that is bound to a shared GPU is recorded on its reservation pod", Holds::Always, STORED),
    rule("T-1", "pods of sub-groups that are to be in one rack are in one when one of them is bound", Holds::Always, STORED),
    rule("D-1", "a claimed device is of one claim", Holds::Always, STORED),
    rule("D-2", "a pod on a node has the devices that it claims", Holds::Always, STORED),
    rule("D-3", "a claim has the devices that it asks for", Holds::Always, STORED),
    rule("P-1", "a pod on a node has its volume there", Holds::Always, STORED),
    rule("P-2", "a volume is of one claim", Holds::Always, STORED),
    rule("Q-1", "the pods of a queue stay within its limit", Holds::Always, STORED),
    rule("Q-2", "the non-preemptible pods of a queue stay within its quota", Holds::Always, STORED),
    rule("R-1", "pods that stay apart are on different nodes", Holds::Always, STORED),
    rule("W-1", "no kubelet refuses a pod because it lacks a GPU", Holds::Always, STORED),
    rule("K-1", "no gang stays bound below its minimum", Holds::Always, STORED),
    rule("L-1", "only the holder of the Lease writes", Holds::Always, REQUESTS),
    rule("V-1", "no pod of a whole, non-preemptible pod group is evicted", Holds::Always, REQUESTS),
    rule("E-1", "no replica ends by itself, and none logs an ERROR", Holds::Always, REQUESTS),
    rule("A-1", "each pod that fits runs", Holds::AtRest, STORED),
    rule("A-2", "each pod that does not run has a reason in its condition", Holds::AtRest, STORED),
    rule("A-4", "the status of a queue shows what its pods hold", Holds::AtRest, STORED),
    rule("A-5", "each gang that fits runs", Holds::AtRest, STORED),
    rule("A-6", "no claimed device is kept for pods without a node", Holds::AtRest, STORED),
    rule("A-7", "no GPU is reserved for pods without a node", Holds::AtRest, STORED),
    rule("A-3", "nothing is left over", Holds::Empty, STORED),
    rule("M-1", "no ready node is overcommitted by pods that the engine placed", Holds::Always, MODEL),
    rule("M-2", "the pods of a shared GPU use no more than its memory", Holds::Always, MODEL),
    rule("M-3", "a pod group's counters are those of its pods", Holds::Always, MODEL),
    rule("M-4", "a queue's counters are the sum over its pods and the queues below", Holds::Always, MODEL),
    rule("M-5", "the set of pod groups with pending pods is complete and has no others", Holds::Always, MODEL),
    rule("M-6", "a node's used resources are the sum over the places on it", Holds::Always, MODEL),
    rule("M-7", "the counters of relations between pods equal a recount over their places", Holds::Always, MODEL),
    rule("M-8", "storage used and promised equals a recount over the places of pods", Holds::Always, MODEL),
    rule("M-9", "what is taken of each device equals a recount over pods and allocations", Holds::Always, MODEL),
    rule("M-10", "no published device is allocated twice, and no capacity or counter is exceeded", Holds::Always, MODEL),
];

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id, self.sentence)
    }
}

/// The rule with this id.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Rule> {
    ALL.iter().find(|rule| rule.id == id)
}

/// The rules that one of the checks is about.
pub fn of(check: Check) -> impl Iterator<Item = &'static Rule> {
    ALL.iter().filter(move |rule| rule.checked.contains(&check))
}

/// The catalogue as a page of the documentation.
#[must_use]
pub fn document() -> String {
    let mut page = "# Rules\n\n<!-- Generated from src/rules.rs by `cargo gen-docs`. -->\n\n\
        What unikai never breaks, whatever fails. Logs, the simulation and soaks ([simulation](../simulation.md)) name a broken rule by its id.\n\n\
        The engine's model is checked in tests and, every ten minutes, by the self-check of each scheduler; shared GPUs by the binder, with each change. All that the API server \
        stores is checked in the simulation, after each step, in soaks, every two seconds, and in the audit log of a soak, after each request.\n"
        .to_owned();
    for (holds, title) in [
        (Holds::Always, "At any time"),
        (Holds::AtRest, "After the last fault, in a cluster that does not change"),
        (Holds::Empty, "When all workloads are gone, too"),
    ] {
        page += &format!("\n## {title}\n\n| | rule | checked over |\n|---|---|---|\n");
        for rule in ALL.iter().filter(|rule| rule.holds == holds) {
            let checked: Vec<_> = rule.checked.iter().map(|check| check.over()).collect();
            page += &format!("| {} | {} | {} |\n", rule.id, rule.sentence, checked.join(", "));
        }
    }
    page
}

impl Check {
    fn over(self) -> &'static str {
        match self {
            Self::Model => "the engine's model",
            Self::Binder => "the objects that the binder watches",
            Self::Stored => "all that the API server stores",
            Self::Requests => "requests and logs",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_rule_has_an_id_of_its_own() {
        let ids: BTreeSet<_> = ALL.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), ALL.len());
        assert_eq!(
            by_id("G-3").unwrap().to_string(),
            "G-3 (the portions of a device add up to at most 1)"
        );
        assert_eq!(by_id("X-1"), None);
    }
}
