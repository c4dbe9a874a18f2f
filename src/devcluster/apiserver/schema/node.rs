//! A compiled schema: a tree of nodes.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::super::cel::{Expression, Shape};
use super::super::json_type::JsonType;
use super::errors::ErrorKind;
use super::formats;

/// How the elements of a list are identified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) enum ListType {
    #[default]
    Atomic,
    Set,
    /// By these fields of its elements.
    Map(Vec<String>),
}

/// One place of a schema.
#[derive(Debug, Default)]
pub(in super::super) struct Node {
    pub json_type: Option<JsonType>,
    pub int_or_string: bool,
    pub nullable: bool,
    pub preserve_unknown: bool,
    pub embedded: bool,
    pub properties: BTreeMap<String, Node>,
    /// Schema of the values where keys are free.
    pub additional: Option<Box<Node>>,
    pub items: Option<Box<Node>>,
    pub default: Option<Value>,
    pub list_type: ListType,
    pub limits: Limits,
    pub rules: Vec<Rule>,
    /// Whether this node or one below has rules.
    pub has_rules: bool,
}

/// What a value must obey beyond its type.
#[derive(Debug, Default)]
pub(in super::super) struct Limits {
    pub required: Vec<String>,
    pub choices: Option<Vec<Value>>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Regex>,
    pub format: Option<formats::Format>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Box<Node>>,
}

/// One compiled rule.
#[derive(Debug)]
pub(in super::super) struct Rule {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: ErrorKind,
    /// Appended to the path of the value, such as `.name`.
    pub(super) field_path: String,
    /// Whether the rule looks at the old value and is left out where there is none.
    pub(super) transition: bool,
    /// Whether `oldSelf` is an optional, so that the rule runs on creation too.
    pub(super) optional_old: bool,
}

impl Node {
    /// A node that takes anything.
    pub fn anything() -> Self {
        Self {
            preserve_unknown: true,
            ..Self::default()
        }
    }
}

impl Shape for Node {
    fn json_type(&self) -> Option<JsonType> {
        self.json_type
    }

    fn embedded(&self) -> bool {
        self.embedded
    }

    fn property(&self, name: &str) -> Option<&dyn Shape> {
        self.properties.get(name).map(|node| node as &dyn Shape)
    }

    fn property_names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.properties.keys().map(String::as_str))
    }

    fn additional(&self) -> Option<&dyn Shape> {
        self.additional.as_deref().map(|node| node as &dyn Shape)
    }

    fn items(&self) -> Option<&dyn Shape> {
        self.items.as_deref().map(|node| node as &dyn Shape)
    }
}
