//! What counts as a name, a label or a metric's name. Absent: everything else about them.

/// Whether it is a name of Kubernetes: lower-case letters, digits, '-' and '.', at most 253.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty() && text.len() <= 253 && text.chars().all(inside) && text.starts_with(ends) && text.ends_with(ends)
}

/// Whether it is the key of a label, such as `example.com/queue`.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_name(prefix) && is_label_word(name),
        None => is_label_word(text),
    }
}

/// Whether it is the value of a label, and not empty.
#[must_use]
pub fn is_label_word(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: char| c.is_ascii_alphanumeric();
    !text.is_empty() && text.len() <= 63 && text.chars().all(inside) && text.starts_with(ends) && text.ends_with(ends)
}

/// Whether Prometheus takes it as a prefix of a name, or as a label.
#[must_use]
pub fn is_metric_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
