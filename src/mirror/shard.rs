//! Which nodes, queues and pod groups belong to a shard: one label, by presence or by value.

use kube::ResourceExt;

use crate::api::names::{label, object};
use crate::engine::input::Pairs;

/// A shard's selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The node pool's label key. Empty: one shard sees everything.
    pub key: String,
    /// The value that this shard serves. Empty: the objects without the label.
    pub value: String,
}

impl Default for Shard {
    /// The shard of unlabelled objects.
    fn default() -> Self {
        Self {
            key: label::NODE_POOL.to_owned(),
            value: String::new(),
        }
    }
}

impl Shard {
    /// Whether an object belongs to this shard.
    pub fn selects(&self, object: &impl ResourceExt) -> bool {
        self.key.is_empty() || self.is_mine(object.labels().get(&self.key).map(String::as_str))
    }

    /// Whether an object with these labels belongs to this shard.
    #[must_use]
    pub fn takes(&self, labels: &Pairs) -> bool {
        self.key.is_empty() || self.is_mine(labels.get(&self.key))
    }

    fn is_mine(&self, label: Option<&str>) -> bool {
        match label {
            None => self.value.is_empty(),
            Some(value) => !self.value.is_empty() && value == self.value,
        }
    }

    /// The node pool that an object with these labels names, as conditions and messages call it.
    #[must_use]
    pub fn pool_of<'o>(&self, labels: &'o Pairs) -> &'o str {
        let label = labels.get(&self.key);
        label
            .filter(|value| !value.is_empty())
            .unwrap_or(object::DEFAULT_NODE_POOL)
    }

    /// This shard's own node pool, as conditions and messages call it.
    #[must_use]
    pub fn pool(&self) -> &str {
        if self.value.is_empty() {
            object::DEFAULT_NODE_POOL
        } else {
            &self.value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn labels(pool: Option<&str>) -> Pairs {
        pool.map(|pool| ("pool", pool)).into_iter().collect()
    }

    fn node(pool: Option<&str>) -> Node {
        let mut node = Node::default();
        node.metadata.labels = pool.map(|pool| [("pool".to_owned(), pool.to_owned())].into());
        node
    }

    #[test]
    fn a_shard_takes_its_value_and_the_default_shard_what_has_no_label() {
        let check = |key: &str, value: &str, pool: Option<&str>| {
            let shard = Shard {
                key: key.to_owned(),
                value: value.to_owned(),
            };
            let selected = shard.selects(&node(pool));
            assert_eq!(selected, shard.takes(&labels(pool)));
            selected
        };
        assert!(check("", "a", Some("b")) && check("", "", None));
        assert!(check("pool", "", None) && !check("pool", "", Some("a")) && !check("pool", "", Some("")));
        assert!(check("pool", "a", Some("a")) && !check("pool", "a", Some("b")) && !check("pool", "a", None));
    }

    #[test]
    fn a_pool_without_a_name_is_called_default() {
        let shard = Shard {
            key: "pool".to_owned(),
            value: String::new(),
        };
        assert_eq!(
            (
                shard.pool(),
                shard.pool_of(&labels(None)),
                shard.pool_of(&labels(Some("a")))
            ),
            ("default", "default", "a")
        );
    }
}
