//! The syntax of names, labels and names of metrics.

/// Whether it is a valid name of a Kubernetes object: lower-case letters, digits, '-' and '.', at most 253 characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty() && text.len() <= 253 && text.chars().all(inside) && text.starts_with(ends) && text.ends_with(ends)
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
    !text.is_empty() && text.len() <= 63 && text.chars().all(inside) && text.starts_with(ends) && text.ends_with(ends)
}

/// Whether it is valid in Prometheus as the prefix of a metric's name and as a label.
#[must_use]
pub fn is_metric_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
