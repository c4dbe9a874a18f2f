//! The page in the browser: static files that are part of the binary. Its scripts read all data from `/api/v1/`, with the token of the user.
//!
//! Paths are relative, so it works below any prefix: behind a port-forward, `kubectl proxy`, or `unikai page`.

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use super::compression::{self, gzip, takes_gzip};

/// The content security policy: only files and requests of the same server, no inline scripts or styles. Text of objects is never markup or code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of every file.
const HEADERS: [(HeaderName, &str); 7] = [
    // Browsers revalidate each file, since the names of files are the same in every version of the binary.
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::VARY, "accept-encoding"),
];

/// A file of the page.
struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($path:literal => $name:literal as $kind:expr,)*) => {
        &[$(File { path: $path, kind: $kind, text: include_str!(concat!("page/", $name)) },)*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

const FILES: &[File] = files! {
    "/" => "index.html" as HTML,
    "/page/style.css" => "style.css" as CSS,
    "/page/icon.svg" => "icon.svg" as PICTURE,
    "/page/answers.js" => "answers.js" as SCRIPT,
    "/page/api.js" => "api.js" as SCRIPT,
    "/page/chart.js" => "chart.js" as SCRIPT,
    "/page/dom.js" => "dom.js" as SCRIPT,
    "/page/evictions.js" => "evictions.js" as SCRIPT,
    "/page/format.js" => "format.js" as SCRIPT,
    "/page/keys.js" => "keys.js" as SCRIPT,
    "/page/main.js" => "main.js" as SCRIPT,
    "/page/map.js" => "map.js" as SCRIPT,
    "/page/nodes.js" => "nodes.js" as SCRIPT,
    "/page/queues.js" => "queues.js" as SCRIPT,
    "/page/session.js" => "session.js" as SCRIPT,
    "/page/what_if.js" => "what_if.js" as SCRIPT,
    "/page/workload.js" => "workload.js" as SCRIPT,
    "/page/workloads.js" => "workloads.js" as SCRIPT,
};

/// A file with what is computed from it once.
struct Ready {
    kind: &'static str,
    tag: String,
    plain: &'static str,
    compressed: Vec<u8>,
}

/// Computed when the page is requested for the first time.
static READY: LazyLock<Vec<Ready>> = LazyLock::new(|| {
    let ready = |file: &File| Ready {
        kind: file.kind,
        tag: compression::tag(&Sha256::digest(file.text)),
        plain: file.text,
        // Where this is empty, the file is sent uncompressed.
        compressed: gzip(file.text.as_bytes(), compression::BEST).unwrap_or_default(),
    };
    FILES.iter().map(ready).collect()
});

/// The routes of the page.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().enumerate().fold(Router::new(), |router, (number, file)| {
        router.route(
            file.path,
            get(move |headers: HeaderMap| async move { answer(number, &headers) }),
        )
    })
}

fn answer(number: usize, asked: &HeaderMap) -> Response {
    let Some(file) = READY.get(number) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut response = if compression::is_known(asked, &file.tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if takes_gzip(asked) && !file.compressed.is_empty() {
        let mut response = file.compressed.as_slice().into_response();
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
        response
    } else {
        file.plain.into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    if let Ok(tag) = HeaderValue::from_str(&file.tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests;
