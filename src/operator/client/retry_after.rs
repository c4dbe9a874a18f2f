//! The wait that an overloaded API server asks for, in the form that the client library passes on.
//!
//! The limit on concurrent requests of an API server, and proxies before it, refuse requests with a header `Retry-After` and plain text. The library drops
//! the headers of responses, and reads the body of a refusal as a Status.

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Bytes};
use kube::core::Status;
use kube::core::response::StatusDetails;
use tower::BoxError;

/// A response whose body may have been replaced.
pub type InStatus<B> = Response<Either<Full<Bytes>, B>>;

/// Puts the wait of a refusal into its Status, unless that has one. Other responses stay as they are.
pub fn in_status<B>(response: Response<B>) -> BoxFuture<'static, Result<InStatus<B>, BoxError>>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async move {
        let Some(seconds) = asked_for(&response) else {
            return Ok(response.map(Either::Right));
        };
        let (mut parts, body) = response.into_parts();
        let body: Result<_, BoxError> = body.collect().await.map_err(Into::into);
        let status = status(&body?.to_bytes(), parts.status, seconds);
        let text = serde_json::to_vec(&status)?;
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, Either::Left(Full::new(text.into()))))
    }
    .boxed()
}

/// The seconds in the header of a refusal for a while.
fn asked_for<B>(response: &Response<B>) -> Option<u32> {
    let for_a_while = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    if !for_a_while.contains(&response.status()) {
        return None;
    }
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().filter(|seconds| *seconds > 0)
}

/// The Status of a refusal with this body.
fn status(body: &[u8], code: StatusCode, seconds: u32) -> Status {
    let read = serde_json::from_slice::<Status>(body);
    // As the library makes it of other bodies.
    let of_text = |_| Status::failure(String::from_utf8_lossy(body).trim(), "Failed to parse error data");
    let mut status = read.unwrap_or_else(of_text);
    if status.code == 0 {
        status.code = code.as_u16();
    }
    let details = status.details.get_or_insert_with(|| StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    if details.retry_after_seconds == 0 {
        details.retry_after_seconds = seconds;
    }
    status
}

#[cfg(test)]
mod tests;
