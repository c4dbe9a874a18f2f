//! Priority classes → the priority and preemptibility of pod groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;

use super::{Entry, Mirror, Output};
use crate::api::names::preemptibility;

/// The priority of a pod group without a class, if no class is the cluster's default.
pub const DEFAULT_PRIORITY: i64 = 50;
/// From this priority on a pod group without `preemptibility` is non-preemptible.
pub const NON_PREEMPTIBLE_FROM: i64 = 100;

impl Entry for PriorityClass {
    type Packed = Self;
    fn changed(class: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        mirror.with_groups(
            out,
            |_| true,
            |mirror| {
                let classes = &mut mirror.lookups.classes;
                if there {
                    classes.put(class);
                } else {
                    classes.remove(&class.name_any());
                }
            },
        );
    }
}

/// The priority classes of the cluster.
#[derive(Default)]
pub struct Classes {
    by_name: BTreeMap<Box<str>, (i64, bool)>,
}

impl Classes {
    /// Adds or changes a class.
    pub fn put(&mut self, class: &PriorityClass) {
        let value = (i64::from(class.value), class.global_default == Some(true));
        self.by_name.insert(class.name_any().into(), value);
    }

    /// Removes a class.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// The priority of a class name; without such a class, that of the cluster's default class (the first by name), else
    /// [`DEFAULT_PRIORITY`].
    #[must_use]
    pub fn resolve(&self, name: Option<&str>) -> i64 {
        let named = name.and_then(|name| self.by_name.get(name));
        let found = named.or_else(|| self.by_name.values().find(|(_, default)| *default));
        found.map_or(DEFAULT_PRIORITY, |(value, _)| *value)
    }
}

/// Whether a pod group is preemptible: by its `preemptibility`, else by its priority.
#[must_use]
pub fn preemptible(says: Option<&str>, priority: i64) -> bool {
    match says {
        Some(preemptibility::PREEMPTIBLE) => true,
        Some(preemptibility::NON_PREEMPTIBLE) => false,
        Some(_) | None => priority < NON_PREEMPTIBLE_FROM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, value: i32, default: bool) -> PriorityClass {
        let metadata = kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        };
        PriorityClass {
            metadata,
            value,
            global_default: Some(default),
            ..Default::default()
        }
    }

    #[test]
    fn a_class_that_is_missing_means_the_default_class_else_fifty() {
        let mut classes = Classes::default();
        classes.put(&class("train", 70, false));
        assert_eq!(
            [Some("train"), Some("gone"), None].map(|name| classes.resolve(name)),
            [70, 50, 50]
        );
        classes.put(&class("usual", 200, true));
        assert_eq!(
            [Some("train"), Some("gone"), None].map(|name| classes.resolve(name)),
            [70, 200, 200]
        );
        classes.remove("usual");
        assert_eq!(classes.resolve(None), 50);
    }

    #[test]
    fn preemptibility_is_explicit_or_follows_from_the_priority() {
        assert!(preemptible(Some("preemptible"), 1000) && !preemptible(Some("non-preemptible"), 50));
        assert!(preemptible(None, 99) && preemptible(Some("odd"), -5) && !preemptible(None, 100));
    }
}
