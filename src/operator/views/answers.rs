//! Serializes answers to JSON, compressed for clients that accept it, and cached per overview.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::super::access::refusal;
use super::body::{Body, body};
use super::overview::Overview;

/// An answer that is the same for all callers: computed once for each overview and key.
pub async fn rendered<T: Serialize>(
    overview: &Arc<Overview>,
    key: &str,
    headers: &HeaderMap,
    make: impl FnOnce() -> T,
) -> Result<Response, Response> {
    let compressed = takes_gzip(headers);
    let key = format!("{compressed} {key}");
    if let Some(body) = overview.rendered(&key) {
        return Ok(response(body));
    }
    let began = Instant::now();
    let text = serde_json::to_vec(&make()).map_err(failed)?;
    let body = body(text, compressed).await;
    overview.keep(key, body.clone(), began.elapsed());
    Ok(response(body))
}

/// An answer that is made for one caller.
pub async fn json<T: Serialize>(headers: &HeaderMap, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => response(body(text, takes_gzip(headers)).await),
        Err(error) => failed(error),
    }
}

fn response(body: Body) -> Response {
    let mut response = body.bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // The content depends on the caller.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if body.compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn failed(error: serde_json::Error) -> Response {
    refusal(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the answer cannot be written: {error}"),
    )
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let all = headers.get_all(header::ACCEPT_ENCODING).into_iter();
    let mut all = all
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    all.any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && quality.trim() != "q=0"
    })
}

#[cfg(test)]
mod tests;
