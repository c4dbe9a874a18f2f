//! Compiling `openAPIV3Schema` into a tree of nodes, with the checks that make a schema structural.

use regex::Regex;
use serde_json::{Map, Value};

use super::super::json_type::JsonType;
use super::errors::{ErrorKind, FieldError};
use super::node::{Limits, ListType, Node};
use super::{formats, rules, shape, validate};

/// The position of a schema, which determines whether `type` is required, allowed or forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Field,
    Item,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`; true where `type` is allowed all the same.
    Junctor(bool),
}

/// A schema while it is compiled: its JSON, where it stands in the CRD, and the errors found so far.
struct Source<'a> {
    fields: &'a Map<String, Value>,
    at: &'a str,
    place: Place,
}

static NOTHING: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// Compiles the schema of a whole object.
pub(super) fn root(source: &Value, at: &str, errors: &mut Vec<FieldError>) -> Node {
    let mut root = compile(source, at, Place::Root, errors);
    if source["type"].as_str().is_some_and(|found| found != "object") {
        errors.push(FieldError::invalid(
            format!("{at}.type"),
            &source["type"],
            "must be object at the root",
        ));
    }
    let metadata = source
        .pointer("/properties/metadata/properties")
        .and_then(Value::as_object);
    if metadata.is_some_and(|fields| fields.keys().any(|name| name != "name" && name != "generateName")) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::plain(
            ErrorKind::Forbidden,
            format!("{at}.properties[metadata]"),
            detail,
        ));
    }
    root.embedded = true;
    root
}

fn compile(source: &Value, at: &str, place: Place, errors: &mut Vec<FieldError>) -> Node {
    let fields = source.as_object().unwrap_or(&NOTHING);
    let source = Source { fields, at, place };
    let mut node = Node {
        int_or_string: source.flag("x-kubernetes-int-or-string"),
        nullable: source.flag("nullable"),
        preserve_unknown: source.flag("x-kubernetes-preserve-unknown-fields"),
        embedded: source.flag("x-kubernetes-embedded-resource"),
        default: fields.get("default").cloned(),
        ..Node::default()
    };
    node.json_type = source.json_type(&node, errors);
    source.refuse_unsupported(errors);
    source.compile_children(&mut node, errors);
    node.limits = source.limits(&node, errors);
    node.list_type = source.list_type(&node, errors);
    source.check_embedded(&node, errors);
    source.check_default(&node, errors);
    node.rules = rules::compile_all(&node, fields.get("x-kubernetes-validations"), at, errors);
    let children = node
        .properties
        .values()
        .chain(node.items.as_deref())
        .chain(node.additional.as_deref());
    node.has_rules = !node.rules.is_empty() || children.into_iter().any(|child| child.has_rules);
    node
}

impl Source<'_> {
    fn flag(&self, name: &str) -> bool {
        self.fields.get(name) == Some(&Value::Bool(true))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    fn path(&self, field: &str) -> String {
        format!("{}.{field}", self.at)
    }

    fn json_type(&self, node: &Node, errors: &mut Vec<FieldError>) -> Option<JsonType> {
        let at = self.path("type");
        let Some(text) = self.text("type") else {
            let missing = match self.place {
                Place::Junctor(_) => None,
                Place::Root => Some("must not be empty at the root"),
                Place::Field | Place::Item if node.int_or_string || node.preserve_unknown => None,
                Place::Field => Some("must not be empty for specified object fields"),
                Place::Item => Some("must not be empty for specified array items"),
            };
            errors.extend(missing.map(|detail| FieldError::required(at, detail)));
            return None;
        };
        if self.place == Place::Junctor(false) {
            errors.push(FieldError::plain(
                ErrorKind::Forbidden,
                at,
                "must be empty to be structural",
            ));
            return None;
        }
        let parsed = JsonType::parse(text);
        if parsed.is_none() {
            errors.push(FieldError::not_supported(at, &Value::from(text), &JsonType::NAMES));
        }
        // An int-or-string takes both, whatever `type` says.
        parsed.filter(|_| !node.int_or_string)
    }

    fn refuse_unsupported(&self, errors: &mut Vec<FieldError>) {
        let mut forbid = |field: &str, detail: &str| {
            errors.push(FieldError::plain(ErrorKind::Forbidden, self.path(field), detail));
        };
        for field in [
            "$ref",
            "definitions",
            "dependencies",
            "patternProperties",
            "additionalItems",
            "id",
            "$schema",
        ] {
            if self.fields.contains_key(field) {
                forbid(field, &format!("{field} is not supported"));
            }
        }
        if self.flag("uniqueItems") {
            forbid(
                "uniqueItems",
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        if self.fields.contains_key("properties") && self.fields.contains_key("additionalProperties") {
            forbid(
                "additionalProperties",
                "additionalProperties and properties are mutual exclusive",
            );
        }
        if let Place::Junctor(_) = self.place {
            for field in self.fields.keys() {
                let structural = matches!(
                    field.as_str(),
                    "default" | "nullable" | "additionalProperties" | "description"
                );
                if structural || field.starts_with("x-kubernetes-") {
                    forbid(field, "must be undefined to be structural");
                }
            }
        }
        if self.fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let at = self.path("x-kubernetes-preserve-unknown-fields");
            errors.push(FieldError::invalid(
                at,
                &Value::Bool(false),
                "must be true or undefined",
            ));
        }
    }

    fn compile_children(&self, node: &mut Node, errors: &mut Vec<FieldError>) {
        let (field, item) = match self.place {
            Place::Root | Place::Field | Place::Item => (Place::Field, Place::Item),
            Place::Junctor(_) => (Place::Junctor(false), Place::Junctor(false)),
        };
        for (name, child) in self
            .fields
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&NOTHING)
        {
            let at = format!("{}.properties[{name}]", self.at);
            // The three fields of every object need no type at the root and in embedded resources.
            let implied = (self.place == Place::Root || node.embedded)
                && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            let place = if implied { Place::Junctor(true) } else { field };
            node.properties.insert(name.clone(), compile(child, &at, place, errors));
        }
        match self.fields.get("additionalProperties") {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => node.additional = Some(Box::new(Node::anything())),
            Some(child) => {
                let child = compile(child, &self.path("additionalProperties"), field, errors);
                node.additional = Some(Box::new(child));
            }
        }
        match self.fields.get("items") {
            Some(child) => node.items = Some(Box::new(compile(child, &self.path("items"), item, errors))),
            None if self.text("type") == Some("array") => {
                errors.push(FieldError::required(self.path("items"), "must be specified"));
            }
            None => {}
        }
    }

    fn limits(&self, node: &Node, errors: &mut Vec<FieldError>) -> Limits {
        let number = |name: &str| self.fields.get(name).and_then(Value::as_f64);
        let count = |name: &str| self.fields.get(name).and_then(Value::as_u64);
        let strings = |name: &str| -> Vec<String> {
            let listed = self.fields.get(name).and_then(Value::as_array).into_iter().flatten();
            listed.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut junctor = |name: &str| -> Vec<Node> {
            let listed = self
                .fields
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate();
            let typed = Place::Junctor(node.int_or_string);
            listed
                .map(|(i, branch)| compile(branch, &format!("{}.{name}[{i}]", self.at), typed, errors))
                .collect()
        };
        Limits {
            required: strings("required"),
            choices: self.fields.get("enum").and_then(Value::as_array).cloned(),
            minimum: number("minimum"),
            exclusive_minimum: self.flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: self.flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: junctor("allOf"),
            any_of: junctor("anyOf"),
            one_of: junctor("oneOf"),
            not: self.fields.get("not").map(|branch| {
                Box::new(compile(
                    branch,
                    &self.path("not"),
                    Place::Junctor(node.int_or_string),
                    errors,
                ))
            }),
            pattern: self.pattern(errors),
            format: self.text("format").and_then(formats::Format::parse),
        }
    }

    fn pattern(&self, errors: &mut Vec<FieldError>) -> Option<Regex> {
        let text = self.text("pattern")?;
        match Regex::new(text) {
            Ok(regex) => Some(regex),
            Err(error) => {
                let detail = format!("must be a valid regular expression, but isn't: {error}");
                errors.push(FieldError::invalid(self.path("pattern"), &Value::from(text), &detail));
                None
            }
        }
    }

    fn list_type(&self, node: &Node, errors: &mut Vec<FieldError>) -> ListType {
        let at = self.path("x-kubernetes-list-type");
        let keys: Vec<String> = self
            .fields
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let Some(text) = self.text("x-kubernetes-list-type") else {
            if !keys.is_empty() {
                errors.push(FieldError::required(
                    at,
                    "must be map if x-kubernetes-list-map-keys is non-empty",
                ));
            }
            return ListType::Atomic;
        };
        if let Some(found) = self.text("type").filter(|found| *found != "array") {
            let detail = "must be array if x-kubernetes-list-type is specified";
            errors.push(FieldError::invalid(self.path("type"), &Value::from(found), detail));
        }
        match text {
            "atomic" => ListType::Atomic,
            "set" => {
                self.check_set(node, errors);
                ListType::Set
            }
            "map" => {
                self.check_map_keys(node, &keys, errors);
                ListType::Map(keys)
            }
            _ => {
                errors.push(FieldError::not_supported(
                    at,
                    &Value::from(text),
                    &["atomic", "set", "map"],
                ));
                ListType::Atomic
            }
        }
    }

    fn check_set(&self, node: &Node, errors: &mut Vec<FieldError>) {
        let objects = node
            .items
            .as_ref()
            .is_some_and(|items| items.json_type == Some(JsonType::Object));
        let map_type = self
            .fields
            .get("items")
            .map_or(&Value::Null, |items| &items["x-kubernetes-map-type"]);
        if objects && map_type != "atomic" {
            let at = self.path("items.x-kubernetes-map-type");
            errors.push(FieldError::invalid(
                at,
                map_type,
                "must be atomic as item of a list with x-kubernetes-list-type=set",
            ));
        }
    }

    fn check_map_keys(&self, node: &Node, keys: &[String], errors: &mut Vec<FieldError>) {
        let at = self.path("x-kubernetes-list-map-keys");
        if keys.is_empty() {
            errors.push(FieldError::required(
                at,
                "must not be empty if x-kubernetes-list-type is map",
            ));
            return;
        }
        let Some(items) = &node.items else { return };
        if !keys.iter().all(|key| items.properties.contains_key(key)) {
            errors.push(FieldError::invalid(
                at,
                &Value::from(keys),
                "entries must all be names of item properties",
            ));
        }
        for key in keys {
            let Some(property) = items.properties.get(key) else {
                continue;
            };
            if property.default.is_none() && !items.limits.required.contains(key) {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                errors.push(FieldError::required(
                    self.path(&format!("items.properties[{key}].default")),
                    detail,
                ));
            }
        }
    }

    fn check_embedded(&self, node: &Node, errors: &mut Vec<FieldError>) {
        if node.embedded && !node.preserve_unknown && node.properties.is_empty() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            errors.push(FieldError::required(self.path("properties"), detail));
        }
    }

    /// A default must be valid under the schema that it is a default of.
    fn check_default(&self, node: &Node, errors: &mut Vec<FieldError>) {
        let Some(default) = &node.default else { return };
        if matches!(self.place, Place::Junctor(_)) {
            return;
        }
        let at = self.path("default");
        let (mut pruned, mut unknown) = (default.clone(), Vec::new());
        shape::prune(node, &mut pruned, "", &mut unknown);
        if !unknown.is_empty() {
            errors.push(FieldError::invalid(at, default, "must not have unknown fields"));
            return;
        }
        shape::default(node, &mut pruned);
        let mut found = Vec::new();
        validate::value(node, &pruned, "", &mut found);
        errors.extend(found.into_iter().map(|error| FieldError {
            field: format!("{at}{}", error.field),
            ..error
        }));
    }
}
