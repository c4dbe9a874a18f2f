//! All sets of victims, one after the other, without any shortcut: what the complete search is compared with.

use crate::engine::actions::victims::search::{SearchState, VictimSearch};
use crate::engine::actions::victims::{Answer, Case};
use crate::engine::policy::VictimGenerator;

/// Searches with more victims than this are passed over: there are twice as many sets with each.
const VICTIMS_MAX: usize = 10;

/// What [`find`](crate::engine::actions::victims::find::find) answers. Panics if some set of victims works although none is found, or if the complete search
/// takes a victim that could stay.
pub fn find_and_check(victims: &mut VictimSearch, case: Case, generators: &[VictimGenerator]) -> Option<Answer> {
    let mut search = victims.begin(case)?;
    let by_generators = generators
        .iter()
        .find_map(|&generator| victims.run_probes(&mut search, generator));
    let found = by_generators.or_else(|| {
        let set = victims.smallest_set(&mut search)?;
        victims.assert_needed(&search, &set);
        victims.evict_set(&search, &set)
    });
    if found.is_none() {
        victims.assert_no_set_works(&mut search);
        victims.look_for_budgets(&mut search);
    }
    found.map(|(mark, victims)| Answer {
        case: search.case,
        mark,
        victims,
    })
}

impl VictimSearch<'_> {
    /// Panics if some set of victims works although none was found.
    fn assert_no_set_works(&mut self, search: &mut SearchState) {
        for set in self.all_sets(search) {
            if let Some(mark) = self.works(search, &set) {
                self.rollback(mark);
                panic!(
                    "no victims were found for {:?}, but {set:?} would do",
                    search.case.chunk
                );
            }
        }
    }

    fn all_sets(&mut self, search: &mut SearchState) -> Vec<Vec<usize>> {
        let mut all = 0;
        while self.gathered(search, all) {
            all += 1;
        }
        if all > VICTIMS_MAX {
            return Vec::new();
        }
        let set = |bits: usize| (0..all).filter(|at| bits & (1 << at) != 0).collect();
        (1..1 << all).map(set).collect()
    }

    /// Panics if a victim could have stayed: if what is found works with a batch less that loses a pod.
    fn assert_needed(&mut self, search: &SearchState, found: &[usize]) {
        for at in 0..found.len() {
            let fewer: Vec<usize> = found.iter().copied().filter(|other| *other != found[at]).collect();
            if let Some(mark) = self.works(search, &fewer) {
                self.rollback(mark);
                panic!("{found:?} works without {}", found[at]);
            }
        }
    }
}
