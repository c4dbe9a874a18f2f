//! Reviews: who am I, and may I? Everybody may do everything here.

use serde_json::{Value, json};

use super::{Call, Reply, value_reply};

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
        _ => json!({"allowed": true}),
    };
    value_reply(201, &review, Vec::new())
}
