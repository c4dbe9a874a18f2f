//! Which nodes, queues and pod groups belong to a shard: one label, by presence or by value.

use kube::ResourceExt;

use crate::api::names::{label, object};

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
        if self.key.is_empty() {
            return true;
        }
        match object.meta().labels.as_ref().and_then(|labels| labels.get(&self.key)) {
            None => self.value.is_empty(),
            Some(value) => !self.value.is_empty() && *value == self.value,
        }
    }

    /// The node pool that an object names, as conditions and messages call it.
    pub fn pool_of<'o>(&self, object: &'o impl ResourceExt) -> &'o str {
        let label = object.meta().labels.as_ref().and_then(|labels| labels.get(&self.key));
        label
            .map(String::as_str)
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

    fn node(pool: Option<&str>) -> Node {
        let mut node = Node::default();
        node.metadata.labels = pool.map(|pool| [("pool".to_owned(), pool.to_owned())].into());
        node
    }

    #[test]
    fn a_shard_takes_its_value_and_the_default_shard_what_has_no_label() {
        let check = |key: &str, value: &str, pool: Option<&str>| {
            Shard {
                key: key.to_owned(),
                value: value.to_owned(),
            }
            .selects(&node(pool))
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
                shard.pool_of(&node(None)),
                shard.pool_of(&node(Some("a")))
            ),
            ("default", "default", "a")
        );
    }
}
