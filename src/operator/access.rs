//! Who may use what the HTTP server has about the cluster: whoever the API server knows by the token of the request (TokenReview) and
//! lets read the path (SubjectAccessReview, as for `nonResourceURLs` of a ClusterRole). Answers are remembered for a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// How long a yes counts, and how long a no.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How many answers are remembered, and how many questions are under way at once.
const REMEMBERED_MAX: usize = 256;
const ASKED_AT_ONCE: usize = 4;
/// How long the API server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the API server says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It may be answered.
    Allowed,
    /// Nobody is known by its token, or it has none.
    Unknown,
    /// Whoever it is may not.
    Forbidden,
    /// The API server does not say, or too many others are asking.
    Unsure,
}

impl Answer {
    /// The refusal; `None` if there is none.
    fn refusal(self, right: Right) -> Option<Response> {
        let Right { verb, path, role } = right;
        let (status, why) = match self {
            Self::Allowed => return None,
            Self::Unknown => (
                StatusCode::UNAUTHORIZED,
                "send a token of the cluster: Authorization: Bearer TOKEN\n".to_owned(),
            ),
            Self::Forbidden => (
                StatusCode::FORBIDDEN,
                format!("a ClusterRole must allow verb {verb} on nonResourceURLs [{path}], as {role} does\n"),
            ),
            Self::Unsure => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server cannot be asked who you are\n".to_owned(),
            ),
        };
        let mut response = (status, why).into_response();
        if self == Self::Unknown {
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Some(response)
    }
}

/// What somebody may be allowed to do, as a ClusterRole says it for `nonResourceURLs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Right {
    /// `get` or `put`.
    pub verb: &'static str,
    /// The path.
    pub path: &'static str,
    /// The ClusterRole of the manifests that allows it.
    pub role: &'static str,
}

impl Right {
    /// To see a page.
    #[must_use]
    pub const fn view(path: &'static str) -> Self {
        let (verb, role) = ("get", "unikai-viewer");
        Self { verb, path, role }
    }

    /// To do what is for those who run the cluster.
    #[must_use]
    pub const fn maintain(verb: &'static str, path: &'static str) -> Self {
        let role = "unikai-maintainer";
        Self { verb, path, role }
    }
}

/// A right and a token, of which only the digest is kept.
type Key = (Right, [u8; 32]);

/// Asks the API server, and remembers.
pub struct Access {
    client: Client,
    remembered: Mutex<HashMap<Key, (Answer, Instant)>>,
    turns: Semaphore,
}

impl Access {
    /// Asks through the client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            remembered: Mutex::default(),
            turns: Semaphore::new(ASKED_AT_ONCE),
        }
    }

    /// The refusal, unless whoever sent these headers has the right.
    pub async fn refuses(&self, right: Right, headers: &HeaderMap) -> Option<Response> {
        self.allows(right, headers).await.refusal(right)
    }

    async fn allows(&self, right: Right, headers: &HeaderMap) -> Answer {
        let Some(token) = token(headers) else {
            return Answer::Unknown;
        };
        let key = (right, Sha256::digest(token).into());
        if let Some(answer) = self.recall(&key) {
            return answer;
        }
        let Ok(_turn) = self.turns.try_acquire() else {
            return Answer::Unsure;
        };
        let answer = match tokio::time::timeout(TIMEOUT, self.ask(right, token)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                warn!(%error, path = right.path, "the API server does not say who may do this");
                return Answer::Unsure;
            }
            Err(_elapsed) => return Answer::Unsure,
        };
        self.remember(key, answer);
        answer
    }

    async fn ask(&self, Right { verb, path, .. }: Right, token: &str) -> kube::Result<Answer> {
        let (tokens, subjects): (Api<TokenReview>, Api<SubjectAccessReview>) =
            (Api::all(self.client.clone()), Api::all(self.client.clone()));
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let review = tokens.create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Answer::Unknown);
        };
        let UserInfo {
            extra,
            groups,
            uid,
            username,
        } = user;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                extra,
                groups,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                uid,
                user: username.clone(),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let review = subjects.create(&PostParams::default(), &review).await?;
        let allowed = review
            .status
            .is_some_and(|status| status.allowed && status.denied != Some(true));
        debug!(
            verb,
            path,
            user = username.as_deref().unwrap_or_default(),
            allowed,
            "asked who may do this"
        );
        Ok(if allowed { Answer::Allowed } else { Answer::Forbidden })
    }

    fn recall(&self, key: &Key) -> Option<Answer> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, at) = remembered.get(key)?;
        is_fresh(*answer, *at, Instant::now()).then_some(*answer)
    }

    fn remember(&self, key: Key, answer: Answer) {
        let now = Instant::now();
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, (answer, at)| is_fresh(*answer, *at, now));
        }
        if remembered.len() >= REMEMBERED_MAX {
            // Who floods us with tokens costs the others a question each.
            remembered.clear();
        }
        remembered.insert(key, (answer, now));
    }
}

fn is_fresh(answer: Answer, at: Instant, now: Instant) -> bool {
    let span = if answer == Answer::Allowed {
        ALLOWED_FOR
    } else {
        REFUSED_FOR
    };
    now.duration_since(at) < span
}

/// The token that a request carries.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_in_one_header_only() {
        let of = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
            token(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(of("bearer  abc "), Some("abc".to_owned()));
        for none in ["", "Bearer", "Bearer ", "Basic abc", "abc"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
