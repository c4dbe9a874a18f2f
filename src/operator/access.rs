//! Authentication and authorization of requests to the HTTP server: the API server authenticates the token of the request (TokenReview) and decides whether
//! its user has the right (SubjectAccessReview). Pages need a right on `nonResourceURLs`, as ClusterRoles grant them; views that list objects need the
//! right to list these objects. Reviews are cached for a while.

mod cache;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::api::names::{group, header as named};
use crate::api::views::Problem;
use cache::Cache;

/// Limits on cached callers, and on cached answers about their rights.
const CALLERS_MAX: usize = 256;
const ANSWERS_MAX: usize = 8_192;
/// How many tokens are reviewed at the same time, and for one caller how many rights.
const TOKENS_AT_ONCE: usize = 4;
const RIGHTS_AT_ONCE: usize = 8;
/// Limit on the namespaces about which one request asks the API server.
const NAMESPACES_MAX: usize = 256;
/// Timeout of a review.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a request may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Allowed,
    /// It has no token, or one that the API server does not accept.
    Unknown,
    /// Its user lacks the right.
    Forbidden,
    /// The API server did not answer, or too many tokens are being reviewed.
    Unavailable,
}

impl Answer {
    /// The response that refuses the request; `None` if it is allowed.
    fn refusal(self, right: Right) -> Option<Response> {
        let Right { verb, path, role } = right;
        let (status, why) = match self {
            Self::Allowed => return None,
            Self::Unknown => (StatusCode::UNAUTHORIZED, format!("{SEND_A_TOKEN}\n")),
            Self::Forbidden => (
                StatusCode::FORBIDDEN,
                format!("a ClusterRole must allow verb {verb} on nonResourceURLs [{path}], as {role} does\n"),
            ),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, format!("{CANNOT_BE_ASKED}\n")),
        };
        let mut response = (status, why).into_response();
        if self == Self::Unknown {
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Some(response)
    }
}

const SEND_A_TOKEN: &str = "send a token of the cluster: Authorization: Bearer TOKEN";
const CANNOT_BE_ASKED: &str = "the API server cannot be asked to check the token";

/// A right on one of `nonResourceURLs`, as a ClusterRole grants it.
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
    /// The right to read a page.
    #[must_use]
    pub const fn view(path: &'static str) -> Self {
        let (verb, role) = ("get", "unikai-viewer");
        Self { verb, path, role }
    }

    /// A right that only administrators of the cluster have.
    #[must_use]
    pub const fn maintain(verb: &'static str, path: &'static str) -> Self {
        let role = "unikai-maintainer";
        Self { verb, path, role }
    }
}

/// A resource of the API that a caller may have the right to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Listing {
    group: &'static str,
    resource: &'static str,
}

/// The right to list queues.
pub const QUEUES: Listing = Listing::of(group::SCHEDULING, "queues");
/// The right to list nodes.
pub const NODES: Listing = Listing::of("", "nodes");
/// Who may list one of these in a namespace may see its workloads.
const WORKLOADS: [Listing; 2] = [Listing::of(group::SCHEDULING, "podgroups"), Listing::of("", "pods")];

impl Listing {
    const fn of(group: &'static str, resource: &'static str) -> Self {
        Self { group, resource }
    }

    /// Resource and API group as in `podgroups.scheduling.run.ai`.
    fn name(self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.resource, self.group)
    }
}

/// A right that is reviewed, as resource or non-resource attributes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Attributes {
    Page(Right),
    /// To list a resource in this namespace; in all of them if it is empty.
    List(Listing, String),
}

/// SHA-256 of a token. The tokens themselves are not kept.
type TokenDigest = [u8; 32];

/// Reviews tokens and rights, and caches the answers.
pub struct Access {
    client: Client,
    callers: Cache<TokenDigest, Option<Arc<UserInfo>>>,
    answers: Cache<(Attributes, TokenDigest), bool>,
    turns: Semaphore,
}

/// An authenticated user.
#[derive(Clone)]
pub struct Caller {
    access: Arc<Access>,
    user: Arc<UserInfo>,
    token: TokenDigest,
}

/// The namespaces whose workloads a caller may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// All, also those that are created later.
    All,
    /// Only these.
    These(BTreeSet<String>),
}

impl Namespaces {
    /// Whether workloads of that namespace may be seen.
    #[must_use]
    pub fn show(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(namespaces) => namespaces.contains(namespace),
        }
    }
}

impl Access {
    /// Sends reviews through the client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            callers: Cache::new(CALLERS_MAX),
            answers: Cache::new(ANSWERS_MAX),
            turns: Semaphore::new(TOKENS_AT_ONCE),
        }
    }

    /// The response that refuses the request; `None` if the user of these headers has the right.
    pub async fn refuses(&self, right: Right, headers: &HeaderMap) -> Option<Response> {
        self.allows(right, headers).await.refusal(right)
    }

    async fn allows(&self, right: Right, headers: &HeaderMap) -> Answer {
        let Some(token) = token(headers) else {
            return Answer::Unknown;
        };
        let digest: TokenDigest = Sha256::digest(token).into();
        let user = match self.authenticate(token, digest).await {
            Some(Some(user)) => user,
            Some(None) => return Answer::Unknown,
            None => return Answer::Unavailable,
        };
        match self.is_allowed(&user, digest, Attributes::Page(right)).await {
            Some(true) => Answer::Allowed,
            Some(false) => Answer::Forbidden,
            None => Answer::Unavailable,
        }
    }

    /// The user whose token is in these headers.
    ///
    /// # Errors
    /// The response that refuses the request, if there is no valid token, or it cannot be reviewed.
    pub async fn caller(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Response> {
        let unknown = || {
            let mut response = refusal(StatusCode::UNAUTHORIZED, SEND_A_TOKEN.to_owned());
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            response
        };
        let Some(token) = token(headers) else {
            return Err(unknown());
        };
        let digest: TokenDigest = Sha256::digest(token).into();
        match self.authenticate(token, digest).await {
            Some(Some(user)) => Ok(Caller {
                access: Arc::clone(self),
                user,
                token: digest,
            }),
            Some(None) => Err(unknown()),
            None => Err(unavailable()),
        }
    }

    /// The user of a token; `Some(None)` if it is not valid, `None` if the API server did not answer or too many tokens are being reviewed.
    async fn authenticate(&self, token: &str, digest: TokenDigest) -> Option<Option<Arc<UserInfo>>> {
        if let Some(user) = self.callers.get(&digest) {
            return Some(user);
        }
        let _turn = self.turns.try_acquire().ok()?;
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let status = self.review(&review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let user = user.map(Arc::new);
        self.callers.insert(digest, user.clone(), user.is_some());
        Some(user)
    }

    /// Whether a user has a right; `None` if the API server did not answer.
    async fn is_allowed(&self, user: &UserInfo, token: TokenDigest, attributes: Attributes) -> Option<bool> {
        let key = (attributes, token);
        if let Some(allowed) = self.answers.get(&key) {
            return Some(allowed);
        }
        let UserInfo {
            extra,
            groups,
            uid,
            username,
        } = user.clone();
        let mut spec = SubjectAccessReviewSpec {
            extra,
            groups,
            uid,
            user: username,
            ..SubjectAccessReviewSpec::default()
        };
        match &key.0 {
            Attributes::Page(Right { verb, path, .. }) => {
                spec.non_resource_attributes = Some(NonResourceAttributes {
                    path: Some((*path).to_owned()),
                    verb: Some((*verb).to_owned()),
                });
            }
            Attributes::List(listing, namespace) => {
                spec.resource_attributes = Some(ResourceAttributes {
                    group: Some(listing.group.to_owned()),
                    resource: Some(listing.resource.to_owned()),
                    verb: Some("list".to_owned()),
                    namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
                    ..ResourceAttributes::default()
                });
            }
        }
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let status = self.review(&review).await?.status;
        let allowed = status.is_some_and(|status| status.allowed && status.denied != Some(true));
        debug!(question = ?key.0, user = user.username, allowed, "access was checked");
        self.answers.insert(key, allowed, allowed);
        Some(allowed)
    }

    /// The review with the status that the API server sets.
    async fn review<K>(&self, review: &K) -> Option<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let (api, params) = (Api::<K>::all(self.client.clone()), PostParams::default());
        match tokio::time::timeout(TIMEOUT, api.create(&params, review)).await {
            Ok(Ok(review)) => Some(review),
            Ok(Err(error)) => {
                warn!(%error, "the API server did not answer an access review");
                None
            }
            Err(_elapsed) => None,
        }
    }
}

impl Caller {
    async fn is_allowed(&self, attributes: Attributes) -> Result<bool, Response> {
        let answer = self.access.is_allowed(&self.user, self.token, attributes).await;
        answer.ok_or_else(unavailable)
    }

    /// Whether the caller may list a resource in all namespaces.
    ///
    /// # Errors
    /// The response, if the API server did not answer.
    pub async fn may_list(&self, listing: Listing) -> Result<bool, Response> {
        self.is_allowed(Attributes::List(listing, String::new())).await
    }

    /// Fails unless the caller may list a resource in all namespaces.
    ///
    /// # Errors
    /// The response that refuses the request.
    pub async fn must_list(&self, listing: Listing) -> Result<(), Response> {
        if self.may_list(listing).await? {
            return Ok(());
        }
        let why = format!("you need the right to list {} in the cluster", listing.name());
        Err(refusal(StatusCode::FORBIDDEN, why))
    }

    /// Whether the caller may see the workloads of a namespace; of all of them, if it is empty.
    async fn may_see(&self, namespace: &str) -> Result<bool, Response> {
        for listing in WORKLOADS {
            if self.is_allowed(Attributes::List(listing, namespace.to_owned())).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fails unless the caller may see the workloads of a namespace.
    ///
    /// # Errors
    /// The response that refuses the request.
    pub async fn must_see(&self, namespace: &str) -> Result<(), Response> {
        if self.may_see("").await? || self.may_see(namespace).await? {
            return Ok(());
        }
        let [groups, pods] = WORKLOADS.map(Listing::name);
        let why = format!("you need the right to list {groups} or {pods} in the namespace {namespace}");
        Err(refusal(StatusCode::FORBIDDEN, why))
    }

    /// Which of these namespaces the caller may see, and how many were left out because there are more than [`NAMESPACES_MAX`].
    ///
    /// # Errors
    /// The response, if the API server did not answer.
    pub async fn visible(&self, namespaces: &BTreeSet<String>) -> Result<(Namespaces, usize), Response> {
        if self.may_see("").await? {
            return Ok((Namespaces::All, 0));
        }
        let asked = namespaces.iter().take(NAMESPACES_MAX).map(|namespace| async move {
            let seen = self.may_see(namespace).await?;
            Ok::<_, Response>(seen.then(|| namespace.clone()))
        });
        // Boxed, since the compiler cannot infer the lifetimes of these borrows otherwise.
        let asked: Vec<_> = asked.map(Box::pin).collect();
        let mut answers = stream::iter(asked).buffer_unordered(RIGHTS_AT_ONCE);
        let mut seen = BTreeSet::new();
        while let Some(answer) = answers.next().await {
            seen.extend(answer?);
        }
        let left_out = namespaces.len().saturating_sub(NAMESPACES_MAX);
        Ok((Namespaces::These(seen), left_out))
    }
}

/// A response with an error message as JSON.
#[must_use]
pub fn refusal(status: StatusCode, error: String) -> Response {
    (status, Json(Problem { error })).into_response()
}

fn unavailable() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, CANNOT_BE_ASKED.to_owned())
}

/// The token of a request. The API server's proxy removes the header `Authorization`, so clients behind it send a header of ours.
fn token(headers: &HeaderMap) -> Option<&str> {
    if let Some(token) = headers.get(named::TOKEN) {
        return token.to_str().ok().map(str::trim).filter(|token| !token.is_empty());
    }
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_passed_on_has_its_token_in_a_header_of_its_own() {
        let headers = HeaderMap::from_iter([
            (header::AUTHORIZATION, HeaderValue::from_static("Bearer of-the-proxy")),
            (named::TOKEN.parse().unwrap(), HeaderValue::from_static("mine")),
        ]);
        assert_eq!(token(&headers), Some("mine"));
    }

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
