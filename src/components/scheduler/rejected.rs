//! Logs and counts each invalid field once, though it is rejected again with each change of its object and each new model.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use tracing::warn;

use crate::mirror::Rejection;

/// Limit on the hashes.
const MAX: usize = 4_096;

/// Hashes of the rejections that were logged and counted.
#[derive(Default)]
pub struct Rejected(HashSet<u64>);

impl Rejected {
    /// Logs and counts a rejection, unless it was before.
    pub fn tell(&mut self, rejection: &Rejection) {
        let Rejection {
            kind,
            namespace,
            name,
            problem,
        } = rejection;
        let mut hasher = DefaultHasher::new();
        (kind, namespace, name, problem.to_string()).hash(&mut hasher);
        let hash = hasher.finish();
        if self.0.contains(&hash) {
            return;
        }
        if self.0.len() >= MAX {
            self.0.clear();
        }
        self.0.insert(hash);
        metrics::counter!("unikai_objects_rejected_total", "kind" => *kind).increment(1);
        warn!(kind, ns = namespace, name, error = %problem, "an object has an invalid field");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::tests::recorded::{Metrics, Warnings};
    use crate::mirror::Problem;

    fn rejection(value: &str) -> Rejection {
        Rejection {
            kind: "Node",
            namespace: String::new(),
            name: "odd".to_owned(),
            problem: Problem::Quantity {
                field: "status.allocatable",
                resource: "cpu".to_owned(),
                value: value.to_owned(),
            },
        }
    }

    #[test]
    fn a_field_that_each_new_model_rejects_again_is_counted_and_logged_once() {
        let (metrics, warnings) = (Metrics::from_now_on(), Warnings::from_now_on());
        let told = || {
            let counted = metrics.of("unikai_objects_rejected_total{kind=\"Node\"}");
            (counted, warnings.of("an object has an invalid field"))
        };
        let mut rejected = Rejected::default();
        for _ in 0..3 {
            rejected.tell(&rejection("lots"));
        }
        assert_eq!(told(), (Some(1.0), 1));
        rejected.tell(&rejection("many"));
        assert_eq!(told(), (Some(2.0), 2), "another value");
    }
}
