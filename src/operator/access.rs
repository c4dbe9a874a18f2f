//! Who may see what the HTTP server has about the cluster: whoever the API server knows by the token of the request (TokenReview) and
//! gives the right (SubjectAccessReview). Rights on pages are those of `nonResourceURLs` of a ClusterRole; what lists objects asks for the right to
//! list them. Answers are remembered for a while.

mod memory;

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
use memory::Memory;

/// How many callers, and how many answers about them, are remembered.
const CALLERS_MAX: usize = 256;
const ANSWERS_MAX: usize = 8_192;
/// How many callers are looked up at once, and how many of their rights.
const ASKED_AT_ONCE: usize = 4;
const RIGHTS_AT_ONCE: usize = 8;
/// About so many namespaces the API server is asked for one answer.
const NAMESPACES_MAX: usize = 256;
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
            Self::Unknown => (StatusCode::UNAUTHORIZED, format!("{SEND_A_TOKEN}\n")),
            Self::Forbidden => (
                StatusCode::FORBIDDEN,
                format!("a ClusterRole must allow verb {verb} on nonResourceURLs [{path}], as {role} does\n"),
            ),
            Self::Unsure => (StatusCode::SERVICE_UNAVAILABLE, format!("{CANNOT_BE_ASKED}\n")),
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
const CANNOT_BE_ASKED: &str = "the API server cannot be asked who you are";

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

/// Objects that somebody may be allowed to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Listing {
    group: &'static str,
    resource: &'static str,
}

/// Queues.
pub const QUEUES: Listing = Listing::of(group::SCHEDULING, "queues");
/// Nodes.
pub const NODES: Listing = Listing::of("", "nodes");
/// What shows workloads: whoever may list one of these in a namespace is shown its workloads.
const WORKLOADS: [Listing; 2] = [Listing::of(group::SCHEDULING, "podgroups"), Listing::of("", "pods")];

impl Listing {
    const fn of(group: &'static str, resource: &'static str) -> Self {
        Self { group, resource }
    }

    /// As the rules of a role name it.
    fn name(self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.resource, self.group)
    }
}

/// A right of which the API server is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    Page(Right),
    /// In a namespace; in all if it is empty.
    List(Listing, String),
}

/// Of a token only the digest is kept.
type TokenDigest = [u8; 32];

/// Asks the API server, and remembers.
pub struct Access {
    client: Client,
    callers: Memory<TokenDigest, Option<Arc<UserInfo>>>,
    answers: Memory<(Question, TokenDigest), bool>,
    turns: Semaphore,
}

/// Somebody whom the API server knows.
#[derive(Clone)]
pub struct Caller {
    access: Arc<Access>,
    user: Arc<UserInfo>,
    token: TokenDigest,
}

/// The namespaces whose workloads somebody may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// All that there are and will be.
    All,
    /// These.
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
    /// Asks through the client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            callers: Memory::new(CALLERS_MAX),
            answers: Memory::new(ANSWERS_MAX),
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
        let digest: TokenDigest = Sha256::digest(token).into();
        let user = match self.known(token, digest).await {
            Some(Some(user)) => user,
            Some(None) => return Answer::Unknown,
            None => return Answer::Unsure,
        };
        match self.has(&user, digest, Question::Page(right)).await {
            Some(true) => Answer::Allowed,
            Some(false) => Answer::Forbidden,
            None => Answer::Unsure,
        }
    }

    /// Who sent these headers.
    ///
    /// # Errors
    /// The refusal, if nobody is known by them.
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
        match self.known(token, digest).await {
            Some(Some(user)) => Ok(Caller {
                access: Arc::clone(self),
                user,
                token: digest,
            }),
            Some(None) => Err(unknown()),
            None => Err(unsure()),
        }
    }

    /// Whose token it is, if anybody's; `None` if the API server does not say, or too many others are asking.
    async fn known(&self, token: &str, digest: TokenDigest) -> Option<Option<Arc<UserInfo>>> {
        if let Some(user) = self.callers.recall(&digest) {
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
        self.callers.remember(digest, user.clone(), user.is_some());
        Some(user)
    }

    /// Whether a user has a right; `None` if the API server does not say.
    async fn has(&self, user: &UserInfo, token: TokenDigest, question: Question) -> Option<bool> {
        let key = (question, token);
        if let Some(allowed) = self.answers.recall(&key) {
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
            Question::Page(Right { verb, path, .. }) => {
                spec.non_resource_attributes = Some(NonResourceAttributes {
                    path: Some((*path).to_owned()),
                    verb: Some((*verb).to_owned()),
                });
            }
            Question::List(listing, namespace) => {
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
        debug!(question = ?key.0, user = user.username, allowed, "asked who may do this");
        self.answers.remember(key, allowed, allowed);
        Some(allowed)
    }

    /// Has the API server fill in a review.
    async fn review<K>(&self, review: &K) -> Option<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let (api, params) = (Api::<K>::all(self.client.clone()), PostParams::default());
        match tokio::time::timeout(TIMEOUT, api.create(&params, review)).await {
            Ok(Ok(review)) => Some(review),
            Ok(Err(error)) => {
                warn!(%error, "the API server does not say who may do this");
                None
            }
            Err(_elapsed) => None,
        }
    }
}

impl Caller {
    async fn has(&self, question: Question) -> Result<bool, Response> {
        let answer = self.access.has(&self.user, self.token, question).await;
        answer.ok_or_else(unsure)
    }

    /// Whether objects of a kind may be listed.
    ///
    /// # Errors
    /// The refusal, if the API server does not say.
    pub async fn may_list(&self, listing: Listing) -> Result<bool, Response> {
        self.has(Question::List(listing, String::new())).await
    }

    /// Refuses, unless objects of a kind may be listed.
    ///
    /// # Errors
    /// The refusal.
    pub async fn must_list(&self, listing: Listing) -> Result<(), Response> {
        if self.may_list(listing).await? {
            return Ok(());
        }
        let why = format!("you need the right to list {} in the cluster", listing.name());
        Err(refusal(StatusCode::FORBIDDEN, why))
    }

    /// Whether workloads of a namespace may be seen; of all, if it is empty.
    async fn sees(&self, namespace: &str) -> Result<bool, Response> {
        for listing in WORKLOADS {
            if self.has(Question::List(listing, namespace.to_owned())).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses, unless workloads of a namespace may be seen.
    ///
    /// # Errors
    /// The refusal.
    pub async fn must_see(&self, namespace: &str) -> Result<(), Response> {
        if self.sees("").await? || self.sees(namespace).await? {
            return Ok(());
        }
        let [groups, pods] = WORKLOADS.map(Listing::name);
        let why = format!("you need the right to list {groups} or {pods} in the namespace {namespace}");
        Err(refusal(StatusCode::FORBIDDEN, why))
    }

    /// Of these namespaces those whose workloads may be seen, and how many were not asked about.
    ///
    /// # Errors
    /// The refusal, if the API server does not say.
    pub async fn visible(&self, namespaces: &BTreeSet<String>) -> Result<(Namespaces, usize), Response> {
        if self.sees("").await? {
            return Ok((Namespaces::All, 0));
        }
        let asked = namespaces.iter().take(NAMESPACES_MAX).map(|namespace| async move {
            let seen = self.sees(namespace).await?;
            Ok::<_, Response>(seen.then(|| namespace.clone()))
        });
        // Boxed: the compiler does not see through so many borrows otherwise.
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

/// An answer that says why there is no other.
#[must_use]
pub fn refusal(status: StatusCode, error: String) -> Response {
    (status, Json(Problem { error })).into_response()
}

fn unsure() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, CANNOT_BE_ASKED.to_owned())
}

/// The token that a request carries. An API server that passes a request on takes the usual header away, so there is a second one.
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
