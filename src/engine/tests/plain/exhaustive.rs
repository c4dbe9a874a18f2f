//! All sets of victims, one after the other, without any shortcut: what the last resort is held to.

use crate::engine::actions::session::Session;
use crate::engine::actions::victims::search::Search;

/// Searches with more victims than this are passed over: there are twice as many sets with each.
const VICTIMS_MAX: usize = 10;

impl Session<'_> {
    /// Panics if some set of victims works although none was found.
    pub fn assert_hopeless(&mut self, search: &mut Search) {
        for set in self.all_sets(search) {
            if let Some(mark) = self.works(search, &set) {
                self.rollback(mark);
                panic!("{:?} is called hopeless, but {set:?} would do", search.case.chunk);
            }
        }
    }

    fn all_sets(&self, search: &mut Search) -> Vec<Vec<usize>> {
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
    pub fn assert_needed(&mut self, search: &mut Search, found: &[usize]) {
        for at in 0..found.len() {
            let fewer: Vec<usize> = found.iter().copied().filter(|other| *other != found[at]).collect();
            if let Some(mark) = self.works(search, &fewer) {
                self.rollback(mark);
                panic!("{found:?} works without {}", found[at]);
            }
        }
    }
}
