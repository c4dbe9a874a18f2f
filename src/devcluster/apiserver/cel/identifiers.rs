//! Fields whose names are no CEL identifiers.

/// The words that CEL keeps for itself.
const RESERVED: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// The name under which a rule reaches a field whose name is no CEL identifier.
pub(super) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['-', '.', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    let unbarred = name.replace("__", "__underscores__");
    unbarred
        .replace('-', "__dash__")
        .replace('.', "__dot__")
        .replace('/', "__slash__")
}
