//! Priority classes that pod groups name and that do not exist, so that the groups can be grouped again when such a class is created. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::components::bus::GroupKey;

/// Names that are kept of one group: each of its pods could name another one.
const NAMES_PER_GROUP: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct AbsentClasses {
    groups: HashMap<Arc<str>, BTreeSet<GroupKey>>,
    names: HashMap<GroupKey, BTreeSet<Arc<str>>>,
}

impl AbsentClasses {
    /// A group names a class that does not exist.
    pub fn add(&mut self, group: &GroupKey, class: &str) {
        let names = self.names.entry(group.clone()).or_default();
        if names.len() >= NAMES_PER_GROUP || names.contains(class) {
            return;
        }
        let known = self.groups.get_key_value(class).map(|(known, _)| Arc::clone(known));
        let class = known.unwrap_or_else(|| class.into());
        names.insert(Arc::clone(&class));
        self.groups.entry(class).or_default().insert(group.clone());
    }

    /// A class exists now. Returns the groups that name it.
    pub fn created(&mut self, class: &str) -> BTreeSet<GroupKey> {
        let groups = self.groups.remove(class).unwrap_or_default();
        for group in &groups {
            if let Some(names) = self.names.get_mut(group) {
                names.remove(class);
                if names.is_empty() {
                    self.names.remove(group);
                }
            }
        }
        groups
    }

    /// A group has no pods any more.
    pub fn forget(&mut self, group: &GroupKey) {
        for class in self.names.remove(group).into_iter().flatten() {
            if let Some(groups) = self.groups.get_mut(&class) {
                groups.remove(group);
                if groups.is_empty() {
                    self.groups.remove(&class);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_groups_and_classes_that_do_not_matter_any_more() {
        let mut absent = AbsentClasses::default();
        let [first, second] = ["a", "b"].map(|name| GroupKey::new("team", name));
        for group in [&first, &second] {
            for class in ["urgent", "urgent", "later"] {
                absent.add(group, class);
            }
        }
        assert_eq!(absent.created("other"), BTreeSet::new());
        let both = BTreeSet::from([first.clone(), second.clone()]);
        assert_eq!(absent.created("urgent"), both);
        assert_eq!(absent.created("urgent"), BTreeSet::new());
        absent.forget(&first);
        assert_eq!(absent.created("later"), BTreeSet::from([second]));
        assert!(absent.groups.is_empty() && absent.names.is_empty());

        for number in 0..2 * NAMES_PER_GROUP {
            absent.add(&first, &number.to_string());
        }
        assert_eq!(absent.groups.len(), NAMES_PER_GROUP);
        absent.forget(&first);
        assert!(absent.groups.is_empty() && absent.names.is_empty());
    }
}
