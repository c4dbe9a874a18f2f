//! Texts, as sequences of words, spaces and signs.

use fastrand::Rng;

use super::{UNUSUAL, word};

/// Bytes of a changed text.
const MOST: usize = 1 << 16;
/// Brackets and quotes around a part.
const AROUND: &[(&str, &str)] = &[
    ("(", ")"),
    ("[", "]"),
    ("{", "}"),
    ("\"", "\""),
    ("'", "'"),
    ("!(", ")"),
    ("-(", ")"),
];

/// One of the texts with some changes; or, sometimes, words in any order.
pub fn changed(random: &mut Rng, seeds: &[String], words: &[&str]) -> String {
    let mut parts = if random.u8(..10) == 0 {
        (0..random.usize(1..12))
            .map(|_| word(random, words).to_owned())
            .collect()
    } else {
        seed(random, seeds)
    };
    for _ in 0..random.usize(1..=4) {
        change(random, &mut parts, seeds, words);
    }
    let mut text = parts.concat();
    text.truncate(text.floor_char_boundary(MOST));
    text
}

/// Some changes to one text.
pub fn changed_text(random: &mut Rng, text: &str, words: &[&str]) -> String {
    changed(random, &[text.to_owned()], words)
}

fn seed(random: &mut Rng, seeds: &[String]) -> Vec<String> {
    let seed = random.choice(seeds).map(String::as_str).unwrap_or_default();
    parts(seed)
}

/// Words, runs of spaces, and single signs.
fn parts(text: &str) -> Vec<String> {
    let class = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 1,
        c if c.is_whitespace() => 2,
        _ => 0,
    };
    let mut parts: Vec<String> = Vec::new();
    let mut last = 0;
    for c in text.chars() {
        match parts.last_mut() {
            Some(part) if class(c) == last && last != 0 => part.push(c),
            _ => parts.push(c.to_string()),
        }
        last = class(c);
    }
    parts
}

/// A range of up to so many parts.
fn range(random: &mut Rng, parts: &[String], most: usize) -> std::ops::Range<usize> {
    let from = random.usize(..=parts.len());
    let to = parts.len().min(from + random.usize(1..=most));
    from..to
}

fn change(random: &mut Rng, parts: &mut Vec<String>, seeds: &[String], words: &[&str]) {
    match random.u8(..13) {
        0 => {
            let range = range(random, parts, 4);
            parts.drain(range);
        }
        1 => {
            let range = range(random, parts, 6);
            let copy = parts.get(range).unwrap_or_default().to_vec();
            insert(random, parts, copy);
        }
        2 => {
            let (a, b) = (random.usize(..=parts.len()), random.usize(..=parts.len()));
            if a < parts.len() && b < parts.len() {
                parts.swap(a, b);
            }
        }
        3 | 4 => {
            let new = word(random, words).to_owned();
            insert(random, parts, vec![new]);
        }
        5 | 6 => {
            let new = word(random, words).to_owned();
            replace(random, parts, |_| new);
        }
        7 => {
            let other = seed(random, seeds);
            let range = range(random, &other, 8);
            let copy = other.get(range).unwrap_or_default().to_vec();
            insert(random, parts, copy);
        }
        8 => {
            let range = range(random, parts, 4);
            let copy = parts.get(range).unwrap_or_default().to_vec();
            let times = [2, 3, 10, 70, 300][random.usize(..5)];
            insert(random, parts, std::iter::repeat_n(copy, times).flatten().collect());
        }
        9 => {
            let new = random.choice(UNUSUAL).copied().unwrap_or_default().to_owned();
            replace(random, parts, |_| new);
        }
        10 => {
            let sign = random.char(..);
            let at = random.usize(..64);
            replace(random, parts, |part| {
                let mut signs: Vec<char> = part.chars().collect();
                let at = at % (signs.len() + 1);
                match signs.get_mut(at) {
                    Some(old) if sign.is_ascii() => *old = sign,
                    _ => signs.insert(at, sign),
                }
                signs.into_iter().collect()
            });
        }
        11 => {
            let range = range(random, parts, 12);
            let (open, close) = AROUND[random.usize(..AROUND.len())];
            let deep = [1, 1, 2, 8, 70][random.usize(..5)];
            parts.insert(range.end, close.repeat(deep));
            parts.insert(range.start, open.repeat(deep));
        }
        _ => parts.truncate(random.usize(..=parts.len())),
    }
}

fn insert(random: &mut Rng, parts: &mut Vec<String>, new: Vec<String>) {
    let at = random.usize(..=parts.len());
    parts.splice(at..at, new);
}

fn replace(random: &mut Rng, parts: &mut [String], new: impl FnOnce(&str) -> String) {
    if let Some(at) = (!parts.is_empty()).then(|| random.usize(..parts.len())) {
        parts[at] = new(&parts[at]);
    }
}
