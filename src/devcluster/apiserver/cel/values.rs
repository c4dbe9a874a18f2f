//! JSON as CEL values: only the part that an expression reads, with the number types that the schema says.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use serde_json::Value;

use super::super::json_type::JsonType;
use super::Shape;
use super::analysis::Reads;
use super::identifiers::escape;

/// Converts the part of `value` that is read. Without a schema, whole numbers are integers.
pub(super) fn to_cel(value: &Value, shape: Option<&dyn Shape>, reads: &Reads) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if shape.and_then(Shape::json_type) != Some(JsonType::Number) => cel::Value::Int(whole),
            _ => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(elements) => {
            let items = shape.and_then(Shape::items);
            cel::Value::List(Arc::new(
                elements
                    .iter()
                    .map(|element| to_cel(element, items, &Reads::All))
                    .collect(),
            ))
        }
        Value::Object(fields) => {
            let mut map: HashMap<Key, cel::Value> = HashMap::new();
            for (name, value) in fields {
                let property = shape.and_then(|node| node.property(name));
                // Only the names of declared fields are escaped; the keys of a free map stay as they are.
                let key = if property.is_some() { escape(name) } else { name.clone() };
                let reads = match reads {
                    Reads::All => &Reads::All,
                    Reads::Fields(wanted) => match wanted.get(&key) {
                        Some(reads) => reads,
                        None => continue,
                    },
                };
                let below = property.or(shape.and_then(Shape::additional));
                map.insert(Key::from(key), to_cel(value, below, reads));
            }
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// Binds an optional value.
pub(super) fn add_optional(context: &mut cel::Context<'_, '_>, name: &str, value: Option<cel::Value>) {
    let optional = value.map_or_else(cel::objects::OptionalValue::none, cel::objects::OptionalValue::of);
    context.add_variable_from_value(name, cel::Value::Opaque(Arc::new(optional)));
}
