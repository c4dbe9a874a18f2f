//! The syntax of names and labels of Kubernetes.

use super::names::label;

/// Whether it is a valid name of a Kubernetes object: parts of lower-case letters, digits and '-', separated by '.', at most 253 characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inside = |c: char| ends(c) || c == '-';
    let is_part = |part: &str| part.starts_with(ends) && part.ends_with(ends) && part.chars().all(inside);
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether it is a valid label key, such as `example.com/queue`.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_name(prefix) && is_label_word(name),
        None => is_label_word(text),
    }
}

/// Whether it is a valid label value and not empty.
#[must_use]
pub fn is_label_word(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: char| c.is_ascii_alphanumeric();
    !text.is_empty()
        && text.len() <= label::VALUE_LENGTH_MAX
        && text.chars().all(inside)
        && text.starts_with(ends)
        && text.ends_with(ends)
}
