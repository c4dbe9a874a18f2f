//! Tables of custom resources, by `additionalPrinterColumns`, with the subset of JSONPath that these use: fields, indices,
//! `[*]` and filters on equality.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::crd::PrinterColumn;
use super::{Column, age};

const NAME: Column<'static> = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "Name must be unique within a namespace.",
    priority: 0,
};

/// The column definitions: the name, then the CRD's own.
pub(super) fn columns(columns: &[PrinterColumn]) -> Vec<Value> {
    let own = columns.iter().map(|column| {
        let description = match column.description.as_str() {
            "" => format!(
                "Custom resource definition column (in JSONPath format): {}",
                column.path
            ),
            description => description.to_owned(),
        };
        let PrinterColumn {
            name,
            kind,
            format,
            priority,
            ..
        } = column;
        Column {
            name,
            kind,
            format,
            description: &description,
            priority: *priority,
        }
        .to_json()
    });
    std::iter::once(NAME.to_json()).chain(own).collect()
}

/// The cells of one object.
pub(super) fn cells(columns: &[PrinterColumn], object: &Value, now: Timestamp) -> Vec<Value> {
    let own = columns.iter().map(|column| match first(object, &column.path) {
        None | Some(Value::Null) => Value::Null,
        Some(value) => cell(&column.kind, value, now),
    });
    std::iter::once(object["metadata"]["name"].clone()).chain(own).collect()
}

fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match kind {
        "string" => match value {
            Value::String(_) => value.clone(),
            other => json!(other.to_string()),
        },
        "integer" => value
            .as_i64()
            .or(value.as_f64().map(|number| number as i64))
            .map_or(Value::Null, Value::from),
        "number" if value.is_number() => value.clone(),
        "boolean" if value.is_boolean() => value.clone(),
        "date" if value.is_string() => json!(age::since(Some(value), now)),
        _ => Value::Null,
    }
}

/// One step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Elements whose value at this path is that text.
    Where(String, String),
}

/// The first value that a path leads to.
pub(super) fn first<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    follow(object, &parse(path)?)
}

fn follow<'a>(value: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => follow(value.get(name)?, rest),
        Step::Index(index) => {
            let elements = value.as_array()?;
            let index = if *index < 0 {
                elements.len().checked_sub(usize::try_from(-index).ok()?)?
            } else {
                usize::try_from(*index).ok()?
            };
            follow(elements.get(index)?, rest)
        }
        Step::All => value.as_array()?.iter().find_map(|element| follow(element, rest)),
        Step::Where(path, wanted) => value.as_array()?.iter().find_map(|element| {
            let found = first(element, path)?;
            let equal = match found {
                Value::String(text) => text == wanted,
                other => format!("{other}").as_str() == wanted,
            };
            if equal { follow(element, rest) } else { None }
        }),
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}');
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let end = closing(tail)?;
            steps.push(bracket(&tail[..end])?);
            rest = &tail[end + 1..];
        } else {
            let (name, tail) = field(rest.strip_prefix('.')?);
            if !name.is_empty() {
                steps.push(Step::Field(name));
            }
            rest = tail;
        }
    }
    Some(steps)
}

/// A field name, in which a backslash protects a dot, and what follows it.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, protected)| protected)),
            '.' | '[' => return (name, &text[at..]),
            other => name.push(other),
        }
    }
    (name, "")
}

/// Where the bracket that was opened before `text` closes, quotes and inner brackets aside.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), found) if open == found => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn unquote(text: &str) -> Option<&str> {
    let text = text.trim();
    ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn bracket(inside: &str) -> Option<Step> {
    let inside = inside.trim();
    if inside == "*" {
        return Some(Step::All);
    }
    if let Some(name) = unquote(inside) {
        return Some(Step::Field(name.to_owned()));
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        let (path, wanted) = filter.split_once("==")?;
        let path = path.trim().strip_prefix('@')?.to_owned();
        return Some(Step::Where(path, unquote(wanted).unwrap_or(wanted.trim()).to_owned()));
    }
    inside.parse().ok().map(Step::Index)
}
