//! Authentication and authorization of requests to the HTTP server: the API server authenticates the token of the request (TokenReview) and decides whether
//! its user has the right (SubjectAccessReview). Pages need a right on `nonResourceURLs`, as ClusterRoles grant them; views that list objects need the
//! right to list these objects. Reviews are cached for a while. However many clients there are, few reviews are sent at a time, and none that another request of
//! the same user has sent.

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
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::api::names::{group, header as named};
use crate::api::views::Problem;
use crate::components::keyed_turns::KeyedTurns;
use cache::Cache;

/// Limits on cached callers, on cached tokens that are not valid, and on cached answers about rights of callers.
const CALLERS_MAX: usize = 256;
const INVALID_MAX: usize = 1_024;
const ANSWERS_MAX: usize = 8_192;
/// How many reviews are sent at the same time: in all, of tokens that were not valid before, and of rights for one request.
const REVIEWS_AT_ONCE: usize = 16;
const TOKENS_AT_ONCE: usize = 4;
const RIGHTS_AT_ONCE: usize = 8;
/// How many requests wait at the same time for the review of a token that was not valid before, and for how long they wait for its begin.
const TOKENS_WAITING: usize = 256;
const TOKEN_WAIT: Duration = Duration::from_secs(1);
/// Limit on the namespaces about which one request asks the API server, and of these on those between which no other request of the user is served.
const NAMESPACES_MAX: usize = 256;
const NAMESPACES_AT_ONCE: usize = 32;
/// Timeout of a review, and of the wait for reviews for another request of the same token or user.
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

/// A question about a right of the user of a token.
type Question = (Attributes, TokenDigest);

/// Reviews tokens and rights, and caches the answers.
pub struct Access {
    client: Client,
    callers: Cache<TokenDigest, Arc<UserInfo>>,
    /// Tokens that are not valid. They have a cache of their own, so that a flood of them leaves the callers in theirs.
    invalid: Cache<TokenDigest, ()>,
    answers: Cache<Question, bool>,
    /// Places for requests whose token is reviewed for the first time, or waits for that.
    waiting: Semaphore,
    /// Turns of such reviews, and of all reviews. Both are given in the order of the requests.
    tokens: Semaphore,
    reviews: Semaphore,
    /// Turns of reviews of tokens that were valid before. They wait for no others: however many invalid ones are sent, callers are served.
    renewals: KeyedTurns<TokenDigest>,
    /// Rights of a user are reviewed for one request at a time: others would send the same questions, and find the answers in the cache afterwards.
    users: KeyedTurns<String>,
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
            invalid: Cache::new(INVALID_MAX),
            answers: Cache::new(ANSWERS_MAX),
            waiting: Semaphore::new(TOKENS_WAITING),
            tokens: Semaphore::new(TOKENS_AT_ONCE),
            reviews: Semaphore::new(REVIEWS_AT_ONCE),
            renewals: KeyedTurns::default(),
            users: KeyedTurns::default(),
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
        if let Some(known) = self.known_user(&digest) {
            return Some(known);
        }
        if self.callers.has(&digest) {
            let _turn = timeout(TIMEOUT, self.renewals.next(&digest)).await.ok()?;
            return self.review_token(token, digest).await;
        }
        let _place = self.waiting.try_acquire().ok()?;
        let _turn = timeout(TOKEN_WAIT, self.tokens.acquire()).await.ok()?.ok()?;
        self.review_token(token, digest).await
    }

    /// The user of a token, as [`Self::authenticate`] returns it, during a turn: another request may have had the token reviewed by then.
    async fn review_token(&self, token: &str, digest: TokenDigest) -> Option<Option<Arc<UserInfo>>> {
        if let Some(known) = self.known_user(&digest) {
            return Some(known);
        }
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
        match &user {
            Some(user) => self.callers.insert(digest, Arc::clone(user), true),
            None => self.invalid.insert(digest, (), false),
        }
        Some(user)
    }

    /// The user of a token, as [`Self::authenticate`] returns it, if the token is in a cache.
    fn known_user(&self, digest: &TokenDigest) -> Option<Option<Arc<UserInfo>>> {
        let user = self.callers.get(digest).map(Some);
        user.or_else(|| self.invalid.get(digest).map(|()| None))
    }

    /// Whether a user has a right; `None` if the API server did not answer.
    async fn is_allowed(&self, user: &UserInfo, token: TokenDigest, attributes: Attributes) -> Option<bool> {
        let question = (attributes, token);
        if let Some(allowed) = self.answers.get(&question) {
            return Some(allowed);
        }
        let _turn = self.turn_of(user).await?;
        self.review_right(user, question).await
    }

    /// The turn of a user's request to send reviews; `None` if those for other requests of the user take too long.
    async fn turn_of(&self, user: &UserInfo) -> Option<OwnedMutexGuard<()>> {
        let name = user.username.clone().unwrap_or_default();
        timeout(TIMEOUT, self.users.next(&name)).await.ok()
    }

    /// Whether a user has a right, during a turn of the user: the cache may have the answer by then.
    async fn review_right(&self, user: &UserInfo, question: Question) -> Option<bool> {
        if let Some(allowed) = self.answers.get(&question) {
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
        match &question.0 {
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
        debug!(question = ?question.0, user = user.username, allowed, "access was checked");
        self.answers.insert(question, allowed, allowed);
        Some(allowed)
    }

    /// The review with the status that the API server sets.
    async fn review<K>(&self, review: &K) -> Option<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let (api, params) = (Api::<K>::all(self.client.clone()), PostParams::default());
        let sent = async {
            let _turn = self.reviews.acquire().await.ok()?;
            Some(api.create(&params, review).await)
        };
        match timeout(TIMEOUT, sent).await.ok()?? {
            Ok(review) => Some(review),
            Err(error) => {
                warn!(%error, "the API server did not answer an access review");
                None
            }
        }
    }
}

impl Caller {
    /// The name of the user.
    #[must_use]
    pub fn user(&self) -> &str {
        self.user.username.as_deref().unwrap_or_default()
    }

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
        if let Some(known) = self.is_known_to_see(namespace) {
            return Ok(known);
        }
        let _turn = self.access.turn_of(&self.user).await.ok_or_else(unavailable)?;
        self.review_namespace(namespace).await
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
        let mut seen = BTreeSet::new();
        let mut unknown = Vec::new();
        for namespace in namespaces.iter().take(NAMESPACES_MAX) {
            match self.is_known_to_see(namespace) {
                Some(true) => {
                    seen.insert(namespace.clone());
                }
                Some(false) => {}
                None => unknown.push(namespace.as_str()),
            }
        }
        for some in unknown.chunks(NAMESPACES_AT_ONCE) {
            seen.extend(self.review_namespaces(some).await?);
        }
        let left_out = namespaces.len().saturating_sub(NAMESPACES_MAX);
        Ok((Namespaces::These(seen), left_out))
    }

    /// Which of these namespaces the caller may see, in a turn of its user.
    async fn review_namespaces(&self, namespaces: &[&str]) -> Result<Vec<String>, Response> {
        let _turn = self.access.turn_of(&self.user).await.ok_or_else(unavailable)?;
        let asked = namespaces.iter().map(|&namespace| async move {
            let seen = self.review_namespace(namespace).await?;
            Ok::<_, Response>(seen.then(|| namespace.to_owned()))
        });
        // Boxed, since the compiler cannot infer the lifetimes of these borrows otherwise.
        let asked: Vec<_> = asked.map(Box::pin).collect();
        let mut answers = stream::iter(asked).buffer_unordered(RIGHTS_AT_ONCE);
        let mut seen = Vec::new();
        while let Some(answer) = answers.next().await {
            seen.extend(answer?);
        }
        Ok(seen)
    }

    /// Whether the caller may see the workloads of a namespace, during a turn of its user.
    async fn review_namespace(&self, namespace: &str) -> Result<bool, Response> {
        for listing in WORKLOADS {
            let question = self.question(listing, namespace);
            let allowed = self.access.review_right(&self.user, question).await;
            if allowed.ok_or_else(unavailable)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the caller may see the workloads of a namespace, if the cache has the answer.
    fn is_known_to_see(&self, namespace: &str) -> Option<bool> {
        let known = WORKLOADS.map(|listing| self.access.answers.get(&self.question(listing, namespace)));
        if known.contains(&Some(true)) {
            return Some(true);
        }
        (!known.contains(&None)).then_some(false)
    }

    fn question(&self, listing: Listing, namespace: &str) -> Question {
        (Attributes::List(listing, namespace.to_owned()), self.token)
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
mod tests;
