//! Structural schemas of custom resources, compiled once per CRD version: pruning, defaulting and validation with the
//! field errors of the real API server. Absent: the cost budget of CEL rules and ratcheting (an update validates the
//! whole object, also where it did not change).

mod compile;
pub mod errors;
mod formats;
mod node;
mod rules;
mod shape;
#[cfg(test)]
pub(super) mod tests;
mod validate;

use std::sync::Arc;

use serde_json::Value;

pub use errors::{ErrorKind, FieldError, invalid_status};
use node::Node;

/// A compiled structural schema.
#[derive(Debug, Clone)]
pub struct Schema {
    source: Value,
    root: Arc<Node>,
}

impl Schema {
    /// Compiles `openAPIV3Schema`; the errors name what is not structural, with paths below `at`.
    pub fn compile(source: &Value, at: &str) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let root = compile::root(source, at, &mut errors);
        if errors.is_empty() {
            Ok(Self {
                source: source.clone(),
                root: Arc::new(root),
            })
        } else {
            Err(errors)
        }
    }

    /// The schema as its author wrote it.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Removes fields that the schema does not know and returns their paths (`spec.foo`), sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut pruned = Vec::new();
        shape::prune_object(&self.root, object, "", &mut pruned);
        pruned.sort();
        pruned
    }

    /// Fills in default values where a field is absent, or null and not nullable; other nulls of fields that are not
    /// nullable are dropped.
    pub fn default(&self, object: &mut Value) {
        shape::default(&self.root, object);
    }

    /// Validates `object`; `old` is the stored object on an update, for transition rules. Rules are evaluated only where
    /// types and required fields are right.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate::object(&self.root, object, "", &mut errors);
        validate::list_types(&self.root, object, "", &mut errors);
        if !self.root.has_rules {
            return errors;
        }
        if errors.iter().any(|error| error.kind.blocks_rules()) {
            errors.push(FieldError::rules_not_checked());
        } else {
            rules::check(&self.root, object, old, "", &mut errors);
        }
        errors
    }
}
