//! JSON values, changed by their structure.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{text, word};

/// One of the values with some changes.
pub fn changed(random: &mut Rng, seeds: &[Value], words: &[&str]) -> Value {
    let mut value = random.choice(seeds).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..=4) {
        change(random, &mut value, seeds, words);
    }
    value
}

/// A value in the tree, at any depth.
fn pick<'v>(random: &mut Rng, value: &'v mut Value) -> &'v mut Value {
    let mut here = value;
    loop {
        let length = match &*here {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        };
        if length == 0 || random.u8(..10) == 0 {
            return here;
        }
        let at = random.usize(..length);
        here = match here {
            Value::Array(items) => &mut items[at],
            Value::Object(fields) => fields.values_mut().nth(at).expect("it has so many"),
            other => return other,
        };
    }
}

/// A list or an object in the tree that is not empty; else the whole.
fn pick_container<'v>(random: &mut Rng, value: &'v mut Value) -> &'v mut Value {
    let holds = |value: &Value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let mut here = value;
    loop {
        let inside: Vec<usize> = match &*here {
            Value::Array(items) => (0..items.len()).filter(|at| holds(&items[*at])).collect(),
            Value::Object(fields) => {
                let inside = fields.values().enumerate().filter(|(_, value)| holds(value));
                inside.map(|(at, _)| at).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        let at = match random.choice(&inside) {
            Some(at) if random.u8(..5) > 0 => *at,
            _ => return here,
        };
        here = match here {
            Value::Array(items) => &mut items[at],
            Value::Object(fields) => fields.values_mut().nth(at).expect("it has so many"),
            other => return other,
        };
    }
}

fn change(random: &mut Rng, value: &mut Value, seeds: &[Value], words: &[&str]) {
    match random.u8(..14) {
        0 | 1 => {
            let new = unusual(random, words);
            *pick(random, value) = new;
        }
        2 | 3 => match pick_container(random, value) {
            Value::Array(items) if !items.is_empty() => {
                items.remove(random.usize(..items.len()));
            }
            Value::Object(fields) => {
                if let Some(key) = random.choice(fields.keys()).cloned() {
                    fields.remove(&key);
                }
            }
            other => *other = Value::Null,
        },
        4 => {
            let (key, new) = (word(random, words).to_owned(), unusual(random, words));
            match pick_container(random, value) {
                Value::Array(items) => items.push(new),
                Value::Object(fields) => {
                    fields.insert(key, new);
                }
                other => *other = new,
            }
        }
        5 => {
            let mut other = random.choice(seeds).cloned().unwrap_or_default();
            let copy = pick(random, &mut other).clone();
            *pick(random, value) = copy;
        }
        6 => {
            let copy = pick(random, value).clone();
            match pick_container(random, value) {
                Value::Array(items) => items.push(copy),
                other => *other = copy,
            }
        }
        7 => {
            let deep = [1, 2, 16, 70, 120][random.usize(..5)];
            let (lists, key) = (random.bool(), word(random, words).to_owned());
            let here = pick(random, value);
            for _ in 0..deep {
                let inner = here.take();
                *here = if lists {
                    json!([inner])
                } else {
                    json!({ key.clone(): inner })
                };
            }
        }
        8..=10 => {
            let here = pick(random, value);
            change_leaf(random, here, words);
        }
        11 => {
            let here = pick_container(random, value);
            repeat(random, here);
        }
        12 => {
            // A key is changed, or gets another's value.
            let new = word(random, words).to_owned();
            if let Value::Object(fields) = pick_container(random, value)
                && let Some(key) = random.choice(fields.keys()).cloned()
                && let Some(moved) = fields.remove(&key)
            {
                let key = if random.bool() {
                    new
                } else {
                    text::changed_text(random, &key, words)
                };
                fields.insert(key, moved);
            }
        }
        _ => {
            let here = pick(random, value);
            *here = match &*here {
                Value::Number(number) => Value::String(number.to_string()),
                Value::String(text) => text.parse::<f64>().map_or(Value::Null, |number| json!(number)),
                Value::Null => json!({}),
                Value::Bool(truth) => json!(truth.to_string()),
                Value::Array(items) => items.first().cloned().unwrap_or_default(),
                Value::Object(fields) => fields.values().cloned().collect(),
            };
        }
    }
}

/// Another text, number or truth value in its place.
fn change_leaf(random: &mut Rng, here: &mut Value, words: &[&str]) {
    *here = match &*here {
        Value::String(old) if random.bool() => json!(text::changed_text(random, old, words)),
        Value::String(_) => json!(word(random, words)),
        Value::Number(_) => number(random),
        Value::Bool(truth) => json!(!truth),
        Value::Null | Value::Array(_) | Value::Object(_) => unusual(random, words),
    };
}

/// Many more entries of a list or object, most of them equal but for their names.
fn repeat(random: &mut Rng, here: &mut Value) {
    let many = [2, 20, 70, 150, 600][random.usize(..5)];
    match here {
        Value::Array(items) => {
            let copy = random.choice(&*items).cloned().unwrap_or_default();
            items.extend((0..many).map(|number| {
                let mut copy = copy.clone();
                if let Some(Value::String(name)) = copy.get_mut("name") {
                    name.push_str(&number.to_string());
                }
                copy
            }));
        }
        Value::Object(fields) => {
            let entry = random
                .choice(fields.iter())
                .map(|(key, value)| (key.clone(), value.clone()));
            let (key, value) = entry.unwrap_or_default();
            fields.extend((0..many).map(|number| (format!("{key}{number}"), value.clone())));
        }
        other => *other = json!(vec![other.clone(); many]),
    }
}

fn number(random: &mut Rng) -> Value {
    match random.u8(..14) {
        0 => json!(0),
        1 => json!(1),
        2 => json!(-1),
        3 => json!(i32::MAX),
        4 => json!(i64::from(i32::MAX) + 1),
        5 => json!(i32::MIN),
        6 => json!(i64::MAX),
        7 => json!(i64::MIN),
        8 => json!(u64::MAX),
        9 => json!(0.1),
        10 => json!(1e308),
        11 => json!(-1e308),
        12 => json!(1e-308),
        _ => json!(random.i64(-10..1_000)),
    }
}

fn unusual(random: &mut Rng, words: &[&str]) -> Value {
    match random.u8(..10) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 | 3 => number(random),
        4 | 5 => json!(word(random, words)),
        6 => json!([]),
        7 => json!({}),
        8 => json!("x".repeat([64, 254, 318, 70_000][random.usize(..4)])),
        _ => {
            let key = word(random, words).to_owned();
            Value::Object(Map::from_iter([(key, json!([word(random, words)]))]))
        }
    }
}
