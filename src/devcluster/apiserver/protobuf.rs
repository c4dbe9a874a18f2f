//! Request bodies in Kubernetes' protobuf encoding, read into JSON. kubectl's typed commands (`create namespace`, `auth can-i`, …)
//! send nothing else, and accept responses in JSON. The kinds they send are in `protobuf/messages.txt`; any other kind or field is
//! refused. Responses in protobuf are absent, except the head of an OpenAPI document.

use std::{collections::HashMap, sync::OnceLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::clock;

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    /// Malformed protobuf.
    #[error("malformed protobuf: {0}")]
    Malformed(&'static str),
    /// A kind or field that is not supported.
    #[error("{0} is not offered in protobuf: send JSON")]
    Unknown(String),
}

type Result<T> = std::result::Result<T, ProtobufError>;

/// Reads an object with its type.
pub(crate) fn decode(body: &[u8]) -> Result<Value> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or(ProtobufError::Malformed("no k8s prefix"))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in fields(envelope) {
        match field? {
            (1, Wire::Bytes(type_meta)) => {
                for field in fields(type_meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = message(&kind, raw)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// How one field of a message becomes JSON.
#[derive(Debug)]
struct Field {
    name: &'static str,
    /// Its content belongs to the message around it.
    inline: bool,
    /// Left out of JSON when empty, since its sender cannot leave it out of protobuf.
    omit_empty: bool,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    One(&'static str),
    List(&'static str),
    Map(&'static str),
}

type Messages = HashMap<&'static str, HashMap<u32, Field>>;

fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let lines = include_str!("protobuf/messages.txt")
            .lines()
            .filter(|line| !line.starts_with('#'));
        let parsed = lines.filter_map(|line| {
            let (name, fields) = line.split_once(':')?;
            Some((
                name,
                fields
                    .split(';')
                    .filter_map(|field| parse_field(field.trim()))
                    .collect(),
            ))
        });
        parsed.collect()
    })
}

/// Reads `4 stringData? map s`.
fn parse_field(text: &'static str) -> Option<(u32, Field)> {
    let mut words = text.splitn(3, ' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let shape = words.next()?;
    let shape = match shape.split_once(' ') {
        Some(("[]", item)) => Shape::List(item),
        Some(("map", value)) => Shape::Map(value),
        Some(_) | None => Shape::One(shape),
    };
    let field = Field {
        name: name.trim_end_matches('?'),
        inline: name == "=",
        omit_empty: name.ends_with('?'),
        shape,
    };
    Some((number, field))
}

fn message(name: &str, bytes: &[u8]) -> Result<Map<String, Value>> {
    let known = messages()
        .get(name)
        .ok_or_else(|| ProtobufError::Unknown(name.to_owned()))?;
    let mut object = Map::new();
    for field in fields(bytes) {
        let (number, wire) = field?;
        let field = known
            .get(&number)
            .ok_or_else(|| ProtobufError::Unknown(format!("field {number} of {name}")))?;
        match field.shape {
            Shape::One(shape) => {
                let value = one(shape, wire)?;
                match value {
                    Value::Object(inner) if field.inline => object.extend(inner),
                    empty if field.omit_empty && is_empty(&empty) => {}
                    value => drop(object.insert(field.name.to_owned(), value)),
                }
            }
            Shape::List(shape) => {
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(one(shape, wire)?);
                }
            }
            Shape::Map(shape) => {
                let (key, value) = map_entry(shape, wire)?;
                object.entry(field.name).or_insert_with(|| json!({}))[key] = value;
            }
        }
    }
    Ok(object)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn map_entry(shape: &str, wire: Wire<'_>) -> Result<(String, Value)> {
    let Wire::Bytes(entry) = wire else {
        return Err(ProtobufError::Malformed("map entry"));
    };
    let (mut key, mut value) = (String::new(), Value::Null);
    for field in fields(entry) {
        match field? {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => value = one(shape, wire)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// One value: `s`tring, `b`ool, `i`nteger, `d`ouble, b`y`tes, a type with a JSON form of its own, or a message.
fn one(shape: &str, wire: Wire<'_>) -> Result<Value> {
    match (shape, wire) {
        ("s", Wire::Bytes(text)) => Ok(json!(utf8(text)?)),
        ("y", Wire::Bytes(bytes)) => Ok(json!(STANDARD.encode(bytes))),
        ("b", Wire::Varint(number)) => Ok(json!(number != 0)),
        ("i", Wire::Varint(number)) => Ok(json!(number.cast_signed())),
        ("d", Wire::Fixed64(bits)) => Ok(json!(f64::from_bits(bits))),
        ("Quantity", Wire::Bytes(bytes)) => scalar_of(bytes, 1, "s"),
        ("RawExtension", Wire::Bytes(bytes)) => raw_extension(bytes),
        ("Items", Wire::Bytes(bytes)) => fields(bytes)
            .map(|field| one("s", field?.1))
            .collect::<Result<Vec<_>>>()
            .map(Value::Array),
        ("Duration", Wire::Bytes(bytes)) => {
            let nanos = scalar_of(bytes, 1, "i")?.as_i64().unwrap_or(0);
            Ok(json!(format!("{}s", nanos / 1_000_000_000)))
        }
        ("Time", Wire::Bytes(bytes)) => Ok(time(bytes)?.map_or(Value::Null, |time| json!(clock::seconds(time)))),
        ("MicroTime", Wire::Bytes(bytes)) => Ok(time(bytes)?.map_or(Value::Null, |time| {
            json!(time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
        })),
        ("IntOrString", Wire::Bytes(bytes)) => {
            let is_text = scalar_of(bytes, 1, "i")? == json!(1);
            if is_text {
                scalar_of(bytes, 3, "s")
            } else {
                scalar_of(bytes, 2, "i")
            }
        }
        (name, Wire::Bytes(bytes)) => message(name, bytes).map(Value::Object),
        (_, Wire::Varint(_) | Wire::Fixed64(_) | Wire::Fixed32) => Err(ProtobufError::Malformed("wire type")),
    }
}

/// The last value of one field of a small message; null when absent.
fn scalar_of(bytes: &[u8], wanted: u32, shape: &str) -> Result<Value> {
    let mut found = Value::Null;
    for field in fields(bytes) {
        let (number, wire) = field?;
        if number == wanted {
            found = one(shape, wire)?;
        }
    }
    Ok(found)
}

fn raw_extension(bytes: &[u8]) -> Result<Value> {
    for field in fields(bytes) {
        if let (1, Wire::Bytes(raw)) = field? {
            return serde_json::from_slice(raw).map_err(|_| ProtobufError::Malformed("embedded JSON"));
        }
    }
    Ok(Value::Null)
}

/// Seconds and nanoseconds; an empty message is no time.
fn time(bytes: &[u8]) -> Result<Option<Timestamp>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let part = |number| Ok(scalar_of(bytes, number, "i")?.as_i64().unwrap_or(0));
    let nanos = i32::try_from(part(2)?).map_err(|_| ProtobufError::Malformed("time"))?;
    Timestamp::new(part(1)?, nanos)
        .map(Some)
        .map_err(|_| ProtobufError::Malformed("time"))
}

fn utf8(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed("text"))
}

/// A field's value on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    /// No kind has one.
    Fixed32,
    Bytes(&'a [u8]),
}

/// The fields of a message in their order; ends after the first error.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Result<(u32, Wire<'_>)>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = next_field(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn next_field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Wire<'a>)> {
    let key = varint(rest)?;
    let number = u32::try_from(key >> 3).map_err(|_| ProtobufError::Malformed("field number"))?;
    let wire = match key & 7 {
        0 => Wire::Varint(varint(rest)?),
        1 => {
            let bytes = take(rest, 8)?;
            Wire::Fixed64(u64::from_le_bytes(
                bytes.try_into().map_err(|_| ProtobufError::Malformed("length"))?,
            ))
        }
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| ProtobufError::Malformed("length"))?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => {
            take(rest, 4)?;
            Wire::Fixed32
        }
        _ => return Err(ProtobufError::Malformed("wire type")),
    };
    Ok((number, wire))
}

fn varint(rest: &mut &[u8]) -> Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Malformed("number"))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, left) = rest
        .split_at_checked(length)
        .ok_or(ProtobufError::Malformed("length"))?;
    *rest = left;
    Ok(taken)
}

/// A field that holds text or a message of at most 127 bytes, with a number up to 15.
pub(crate) fn encoded(number: u8, content: &[u8]) -> Vec<u8> {
    const LENGTH_DELIMITED: u8 = 2;
    debug_assert!(number < 16 && content.len() < 128, "longer numbers take more bytes");
    [&[number << 3 | LENGTH_DELIMITED, content.len() as u8], content].concat()
}

#[cfg(test)]
mod tests;
