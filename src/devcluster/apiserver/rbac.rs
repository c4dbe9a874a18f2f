//! Role-based access control, for the users for whom a test enforces it: rights from stored roles and bindings, and which of them were
//! used. All other users may do everything.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

use super::{identity::Identity, request::RequestInfo, store::Store};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The attributes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Action {
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural, with the subresource behind a slash.
    pub resource: String,
    /// Namespace; empty for cluster-scoped objects and requests over all namespaces.
    pub namespace: String,
    /// Object; empty for collections.
    pub name: String,
    /// The path, if no resource is meant.
    pub path: String,
}

impl Action {
    pub(crate) fn of(request: &RequestInfo) -> Self {
        let slash = if request.subresource.is_empty() { "" } else { "/" };
        // Real servers do not look at the body: the name of an object to be created is unknown.
        Self {
            verb: request.verb.as_str().to_owned(),
            group: request.group.clone(),
            resource: format!("{}{slash}{}", request.resource, request.subresource),
            namespace: request.namespace.clone(),
            name: if request.name.is_empty() {
                named(request).to_owned()
            } else {
                request.name.clone()
            },
            path: String::new(),
        }
    }
}

/// The one object that a request for several selects by its name, which counts as a request for it.
fn named(request: &RequestInfo) -> &str {
    let selector = request.query.get("fieldSelector").unwrap_or_default();
    selector
        .strip_prefix("metadata.name=")
        .filter(|name| !name.contains(','))
        .unwrap_or_default()
}

/// A right of a role, as small as it can be: one verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The role: `ClusterRole unikai`, or `Role namespace/unikai`.
    pub role: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural, with the subresource behind a slash.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

/// The users with enforced roles, and the rights that they used.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    held: HashSet<String>,
    used: BTreeSet<Right>,
    refused: BTreeSet<(String, Action)>,
}

impl Rbac {
    /// Enforces roles for this identity.
    pub fn hold(&self, identity: &Identity) {
        self.lock().held.insert(identity.user.clone());
    }

    /// The rights used by users with enforced roles.
    #[must_use]
    pub fn used(&self) -> BTreeSet<Right> {
        self.lock().used.clone()
    }

    /// Refused requests, with their users.
    #[must_use]
    pub fn refused(&self) -> Vec<(String, Action)> {
        self.lock().refused.iter().cloned().collect()
    }

    /// Stops enforcement, and clears the records.
    pub fn forget(&self) {
        *self.lock() = Inner::default();
    }

    /// Whether the identity may do it. Records the right used, or the refusal.
    pub(crate) fn admits(&self, store: &Store, identity: &Identity, action: &Action) -> bool {
        if !self.lock().held.contains(&identity.user) || is_about_oneself(action) {
            return true;
        }
        let right = right(store, identity, action);
        let mut inner = self.lock();
        match right {
            Some(right) => {
                inner.used.insert(right);
                true
            }
            None => {
                inner.refused.insert((identity.user.clone(), action.clone()));
                false
            }
        }
    }

    /// Whether it may do it, without a record: a review is not an attempt.
    pub(crate) fn would_admit(&self, store: &Store, identity: &Identity, action: &Action) -> bool {
        !self.lock().held.contains(&identity.user) || right(store, identity, action).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is a review of the caller's own rights, which every user may create by the role `system:basic-user`.
fn is_about_oneself(action: &Action) -> bool {
    action.verb == "create" && action.group == "authorization.k8s.io" && action.resource.starts_with("selfsubject")
}

/// The first right that allows it: of cluster-wide bindings, then of those in the namespace.
fn right(store: &Store, identity: &Identity, action: &Action) -> Option<Right> {
    let bindings = |plural: &str, namespace: &str| store.of(GROUP, plural).list(namespace).objects;
    let everywhere = bindings("clusterrolebindings", "").into_iter();
    let here = if action.namespace.is_empty() {
        Vec::new()
    } else {
        bindings("rolebindings", &action.namespace)
    };
    let bound = everywhere.chain(here).filter(|binding| binds(&binding.value, identity));
    bound
        .filter_map(|binding| {
            let (namespace, _) = binding.key();
            let reference = &binding.value["roleRef"];
            let (kind, name) = (reference["kind"].as_str()?, reference["name"].as_str()?);
            let (plural, within) = if kind == "Role" {
                ("roles", namespace)
            } else {
                ("clusterroles", String::new())
            };
            let role = store.of(GROUP, plural).get(&(within.clone(), name.to_owned()))?;
            let rules = rules(store, &role.value);
            let allowing = rules.iter().any(|rule| allows(rule, action));
            let slash = if within.is_empty() { "" } else { "/" };
            allowing.then(|| Right {
                role: format!("{kind} {within}{slash}{name}"),
                group: action.group.clone(),
                resource: if action.path.is_empty() {
                    action.resource.clone()
                } else {
                    action.path.clone()
                },
                verb: action.verb.clone(),
            })
        })
        .next()
}

fn binds(binding: &Value, identity: &Identity) -> bool {
    let subjects = binding["subjects"].as_array();
    subjects.into_iter().flatten().any(|subject| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match text("kind") {
            "User" => identity.user == text("name"),
            "Group" => identity.groups.iter().any(|group| group == text("name")),
            "ServiceAccount" => {
                identity.user == format!("system:serviceaccount:{}:{}", text("namespace"), text("name"))
            }
            _ => false,
        }
    })
}

/// The rules of a role, and of those that it aggregates by label.
fn rules(store: &Store, role: &Value) -> Vec<Value> {
    let own = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
    let mut rules = own(role);
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
    for selector in selectors.and_then(Value::as_array).into_iter().flatten() {
        let Some(wanted) = selector["matchLabels"].as_object() else {
            continue;
        };
        for other in store.of(GROUP, "clusterroles").list("").objects {
            let labels = &other.value["metadata"]["labels"];
            if wanted.iter().all(|(key, value)| labels[key] == *value) {
                rules.extend(own(&other.value));
            }
        }
    }
    rules
}

fn allows(rule: &Value, action: &Action) -> bool {
    let any = |field: &str, wanted: &str| {
        let listed = rule[field].as_array();
        listed.into_iter().flatten().any(|one| one == wanted || one == "*")
    };
    if !any("verbs", &action.verb) {
        return false;
    }
    if !action.path.is_empty() {
        return any("nonResourceURLs", &action.path);
    }
    let named = rule["resourceNames"].as_array().is_none_or(|names| {
        names.is_empty() || (!action.name.is_empty() && names.iter().any(|name| *name == action.name))
    });
    any("apiGroups", &action.group) && any("resources", &action.resource) && named
}
