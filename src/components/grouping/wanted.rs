//! What a rule needs and must be read first, and the errors of rules.

/// An object by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// `group/version`, or `version` in the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A kind by its full name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KindName {
    /// API group; empty for the core group.
    pub group: String,
    /// API version without the group.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Something that a rule needs and that must be read first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// An object.
    Object(Reference),
    /// The definitions for a kind.
    Kartas(KindName),
    /// The defaults per kind.
    Defaults,
}

/// Why a rule has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The workload is invalid or not complete yet. The message is the user's event.
    #[error("{0}")]
    Workload(String),
    /// Something must be read first.
    #[error("{0:?} is not known yet")]
    Unknown(Wanted),
}
