//! Names of fields that are not valid CEL identifiers.

/// CEL's reserved words.
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

/// The escaped name of a field whose name is not a valid CEL identifier.
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
