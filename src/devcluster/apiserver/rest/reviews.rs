//! SelfSubjectReviews and access reviews. All users may do everything here, but those whose roles a test enforces.

use serde_json::{Value, json};

use super::{Call, Reply, value_reply};
use crate::devcluster::apiserver::{Identity, rbac::Action};

/// Answers a review.
pub(super) fn answer(call: &Call, mut review: Value) -> Reply {
    review["metadata"]["creationTimestamp"] = Value::Null;
    review["status"] = match call.resource.plural.as_str() {
        "selfsubjectreviews" => json!({"userInfo": call.identity.user_info()}),
        "tokenreviews" => match call
            .cluster
            .tokens
            .identify(review["spec"]["token"].as_str().unwrap_or_default())
        {
            Some(identity) => json!({"authenticated": true, "user": identity.user_info()}),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        },
        "selfsubjectrulesreviews" => json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
        _ => json!({"allowed": allowed(call, &review["spec"])}),
    };
    value_reply(201, &review, Vec::new())
}

/// Whether the user of an access review, or the caller, may do what it names.
fn allowed(call: &Call, spec: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let groups = spec["groups"].as_array().into_iter().flatten();
    let identity = match spec["user"].as_str() {
        Some(user) => Identity {
            user: user.to_owned(),
            groups: groups.map(text).collect(),
            pod: None,
        },
        None => Identity::clone(&call.identity),
    };
    let (about, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let subresource = text(&about["subresource"]);
    let slash = if subresource.is_empty() { "" } else { "/" };
    let action = Action {
        verb: text(if about.is_null() { &path["verb"] } else { &about["verb"] }),
        group: text(&about["group"]),
        resource: format!("{}{slash}{subresource}", text(&about["resource"])),
        namespace: text(&about["namespace"]),
        name: text(&about["name"]),
        path: text(&path["path"]),
    };
    let (rbac, store) = (&call.cluster.rbac, &call.cluster.store);
    if call.resource.plural == "selfsubjectaccessreviews" {
        return rbac.would_admit(store, &identity, &action);
    }
    rbac.admits(store, &identity, &action)
}
