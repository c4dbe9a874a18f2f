//! Tokens of service accounts. They are opaque, and last as long as the server.

use jiff::SignedDuration;
use serde_json::json;

use super::{Call, Reply, value_reply};
use crate::devcluster::apiserver::{
    Identity, clock,
    status::{ApiError, ApiResult},
};

/// Shorter lifetimes are refused, as by real servers.
const SHORTEST: i64 = 600;
/// The default lifetime of a token.
const USUAL: i64 = 3600;

/// Creates a token.
pub(super) fn create(call: &Call) -> ApiResult<Reply> {
    let mut request = call.json_body()?;
    call.find()?;
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(USUAL);
    if seconds < SHORTEST {
        return Err(ApiError::bad_request("may not specify a duration less than 10 minutes"));
    }
    let identity = Identity::service_account(&call.info.namespace, &call.info.name);
    let expires = call.cluster.clock.now() + SignedDuration::from_secs(seconds);
    request["apiVersion"] = json!("authentication.k8s.io/v1");
    request["kind"] = json!("TokenRequest");
    request["metadata"]["name"] = json!(call.info.name);
    request["metadata"]["namespace"] = json!(call.info.namespace);
    request["spec"]["expirationSeconds"] = json!(seconds);
    request["status"] = json!({
        "token": call.cluster.tokens.issue(&identity),
        "expirationTimestamp": clock::seconds(expires),
    });
    Ok(value_reply(201, &request, Vec::new()))
}
