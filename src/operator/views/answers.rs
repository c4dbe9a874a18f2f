//! Responses: JSON, compressed for clients that accept it, cached with the overview that it was made from, and not sent again to clients that have it.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::access::refusal;
use super::super::compression::{is_known, tag, takes_gzip};
use super::super::unread::{self, ANSWERS, FULL, Place, Room};
use super::body::{Body, body};
use super::overview::Overview;
use super::turns::without_account;

/// A response that is the same for all callers: computed once for each overview and key.
pub async fn rendered<T: Serialize>(
    overview: &Arc<Overview>,
    key: &str,
    user: &str,
    headers: &HeaderMap,
    make: impl FnOnce() -> T,
) -> Result<Response, Response> {
    let compressed = takes_gzip(headers);
    let key = format!("{compressed} {key}");
    if let Some(body) = overview.rendered(&key) {
        return Ok(sent(user, headers, body, &ANSWERS));
    }
    let _turn = overview.turn().await;
    // Another caller may have asked for the same.
    if let Some(body) = overview.rendered(&key) {
        return Ok(sent(user, headers, body, &ANSWERS));
    }
    let began = Instant::now();
    let text = serde_json::to_vec(&make()).map_err(failed)?;
    let digest = digest_but(&text, overview.meta.as_of);
    let body = Body {
        tag: Some(tag(&digest)),
        ..body(text, compressed).await
    };
    overview.keep(key, body.clone(), began.elapsed());
    Ok(sent(user, headers, body, &ANSWERS))
}

/// A response for one caller.
pub async fn json<T: Serialize>(user: &str, headers: &HeaderMap, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => written(user, headers, text, &ANSWERS).await,
        Err(error) => failed(error),
    }
}

/// The response with that text, if there is room for it before it is compressed.
async fn written(user: &str, headers: &HeaderMap, text: Vec<u8>, room: &'static Room) -> Response {
    let Some(mut place) = room.take(without_account(user), text.len()) else {
        return no_room();
    };
    let body = body(text, takes_gzip(headers)).await;
    place.shrink(body.bytes.len());
    response(headers, body, Some(place))
}

/// The response with a cached body.
fn sent(user: &str, headers: &HeaderMap, body: Body, room: &'static Room) -> Response {
    let place = room.take(without_account(user), body.bytes.len());
    response(headers, body, place)
}

/// The digest of a response without its `asOf`, which comes first in every response: clients that have the same content need not load it again.
fn digest_but(text: &[u8], as_of: Timestamp) -> Vec<u8> {
    let as_of = as_of.to_string();
    let at = text.windows(as_of.len()).position(|part| part == as_of.as_bytes());
    let (before, after) = text.split_at(at.unwrap_or_default());
    let after = after.get(as_of.len()..).filter(|_| at.is_some()).unwrap_or(after);
    Sha256::new()
        .chain_update(before)
        .chain_update(after)
        .finalize()
        .to_vec()
}

/// The response with this body and its place, or without both if the client has the content already.
fn response(asked: &HeaderMap, body: Body, place: Option<Place>) -> Response {
    let known = body.tag.as_ref().is_some_and(|tag| is_known(asked, tag));
    let mut response = match place {
        _ if known => StatusCode::NOT_MODIFIED.into_response(),
        Some(place) => unread::response(body.bytes, place),
        None => return no_room(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The content depends on the caller.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if body.compressed && !known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Some(tag) = body.tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn no_room() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, FULL.to_owned())
}

fn failed(error: serde_json::Error) -> Response {
    refusal(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the answer cannot be written: {error}"),
    )
}

#[cfg(test)]
mod tests;
