//! A request as input of admission webhooks and policies.

use serde_json::Value;

/// What the request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A create; also of `pods/binding` and `pods/eviction`.
    Create,
    /// An update or a patch.
    Update,
    /// A delete.
    Delete,
    /// An exec, proxy or similar.
    Connect,
}

impl Operation {
    /// As rules and reviews write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The attributes of a request, without the object, which webhooks change.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// What it does.
    pub operation: Operation,
    /// Group of the resource, empty for core.
    pub group: &'a str,
    /// Version of the resource.
    pub version: &'a str,
    /// Plural of the resource, without the subresource.
    pub resource: &'a str,
    /// Subresource such as `status` or `binding`; empty for none.
    pub subresource: &'a str,
    /// Group, version and kind of the object in the request (`Binding` of core `v1` for `pods/binding`).
    pub kind: (&'a str, &'a str, &'a str),
    /// Name of the object; empty when generated.
    pub name: &'a str,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// The Namespace object that the request is in; for requests on a Namespace itself, that object.
    pub namespace_object: Option<&'a Value>,
    /// The stored object, on updates and deletes.
    pub old_object: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions`, `PatchOptions` or `DeleteOptions`.
    pub options: &'a Value,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// `{username, groups, …}`.
    pub user: &'a Value,
}
