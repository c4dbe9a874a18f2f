//! Server-side tables (`meta.k8s.io/v1` Table): what `kubectl get` prints. Columns and cells are those of a real API server (1.35);
//! absent are the descriptions of the columns of built-in kinds, which no client shows.

use jiff::Timestamp;
use serde_json::{Value, json};

mod age;
mod custom;
mod kinds;
mod others;
mod pods;
#[cfg(test)]
mod tests;
mod workloads;

use super::crd::PrinterColumn;

/// How much of each object a row carries (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// The cells alone.
    None,
    /// A `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter; absent or empty means `Metadata`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Self::None),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// Whose columns a table has.
#[derive(Debug, Clone, Copy)]
pub enum Printer<'a> {
    /// A built-in kind, by API group and kind; one without columns of its own gets NAME and AGE.
    BuiltIn {
        /// API group, empty for core.
        group: &'a str,
        /// Kind of one object.
        kind: &'a str,
    },
    /// A custom resource, by its printer columns.
    Custom(&'a [PrinterColumn]),
}

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column<'a> {
    name: &'a str,
    kind: &'a str,
    format: &'a str,
    description: &'a str,
    priority: i64,
}

impl Column<'_> {
    fn to_json(self) -> Value {
        let Self {
            name,
            kind,
            format,
            description,
            priority,
        } = self;
        json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
    }
}

/// Turns objects into a Table. `metadata` is the list's (`resourceVersion`, `continue`, …) or, for a single object, its
/// own `resourceVersion`; `headers` is false for every watch event after the first. `now` is for ages.
pub fn table(
    printer: Printer<'_>,
    metadata: &Value,
    items: &[&Value],
    include: IncludeObject,
    headers: bool,
    now: Timestamp,
) -> Value {
    let rows = items
        .iter()
        .map(|item| row(printer, item, include, now))
        .collect::<Vec<_>>();
    let columns = if headers { columns(printer) } else { Vec::new() };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows,
    })
}

fn columns(printer: Printer<'_>) -> Vec<Value> {
    match printer {
        Printer::BuiltIn { group, kind } => kinds::find(group, kind)
            .columns
            .iter()
            .map(|column| column.to_json())
            .collect(),
        Printer::Custom(columns) => custom::columns(columns),
    }
}

fn row(printer: Printer<'_>, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
    let cells = match printer {
        Printer::BuiltIn { group, kind } => (kinds::find(group, kind).cells)(object, now),
        Printer::Custom(columns) => custom::cells(columns, object, now),
    };
    let mut row = json!({"cells": cells});
    if let Some(condition) = pods::row_condition(printer, object) {
        row["conditions"] = json!([condition]);
    }
    match include {
        IncludeObject::None => {}
        IncludeObject::Metadata => {
            row["object"] = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            });
        }
        IncludeObject::Object => row["object"] = object.clone(),
    }
    row
}

/// A string field, empty when absent.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A string field as a cell, with a stand-in when it is empty.
fn text_or(object: &Value, pointer: &str, absent: &str) -> Value {
    match text(object, pointer) {
        "" => Value::from(absent),
        found => Value::from(found),
    }
}

/// A count, zero when absent.
fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The elements of a list field.
fn list<'a>(object: &'a Value, pointer: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Strings joined, or `<none>`.
fn joined(parts: impl IntoIterator<Item = String>, separator: &str) -> Value {
    let parts: Vec<String> = parts.into_iter().collect();
    if parts.is_empty() {
        Value::from("<none>")
    } else {
        Value::from(parts.join(separator))
    }
}
