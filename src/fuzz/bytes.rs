//! Bytes, of which some lines may be JSON.

use fastrand::Rng;
use serde_json::Value;

use super::{json, word};

/// Bytes of a changed input.
const MOST: usize = 1 << 18;

/// One of the inputs with some changes.
pub fn changed(random: &mut Rng, seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut bytes = random.choice(seeds).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..=3) {
        if random.u8(..3) > 0 {
            change_line(random, &mut bytes, words);
        } else {
            change(random, &mut bytes, seeds, words);
        }
    }
    bytes.truncate(MOST);
    bytes
}

/// Changes a line that is JSON, or the order of lines.
fn change_line(random: &mut Rng, bytes: &mut Vec<u8>, words: &[&str]) {
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = random.usize(..lines.len());
    match (random.u8(..6), serde_json::from_slice::<Value>(&lines[at])) {
        (0, _) => {
            let other = random.usize(..lines.len());
            lines.swap(at, other);
        }
        (1, _) => lines.insert(at, lines[at].clone()),
        (_, Ok(value)) => lines[at] = line(&json::changed(random, &[value], words)).into_bytes(),
        (_, Err(_)) => lines[at].clear(),
    }
    *bytes = lines.join(&b'\n');
}

/// A value on one line. The fields of an object that are no objects come first, such as the type of an event.
fn line(value: &Value) -> String {
    let Value::Object(fields) = value else {
        return value.to_string();
    };
    let (last, first): (Vec<_>, Vec<_>) = fields.iter().partition(|(_, value)| value.is_object());
    let fields = first.into_iter().chain(last);
    let fields: Vec<String> = fields
        .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn change(random: &mut Rng, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str]) {
    let (from, length) = (random.usize(..=bytes.len()), [1, 2, 4, 30, 500][random.usize(..5)]);
    let to = bytes.len().min(from + length);
    match random.u8(..8) {
        0 => bytes.truncate(from),
        1 => {
            bytes.drain(from..to);
        }
        2 => {
            let copy = bytes[from..to].to_vec();
            bytes.splice(from..from, copy.repeat([1, 2, 50][random.usize(..3)]));
        }
        3 => {
            let new = word(random, words).as_bytes().to_vec();
            bytes.splice(from..from, new);
        }
        4 => {
            if let Some(byte) = bytes.get_mut(from) {
                *byte ^= 1 << random.u8(..8);
            }
        }
        5 => {
            if let Some(byte) = bytes.get_mut(from) {
                *byte = [0, 10, 34, 92, 123, 255][random.usize(..6)];
            }
        }
        6 => {
            let other = random.choice(seeds).cloned().unwrap_or_default();
            let rest = other.get(random.usize(..=other.len())..).unwrap_or_default();
            bytes.splice(from..from, rest.to_vec());
        }
        _ => {
            let copy = bytes[from..to].to_vec();
            let at = random.usize(..=bytes.len());
            bytes.splice(at..at, copy);
        }
    }
}
