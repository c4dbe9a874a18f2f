use std::sync::Mutex;

use futures::future::join_all;
use http::{Request, Response as HttpResponse};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::BoxError;

use super::*;

/// How long the API server takes for a review.
const REVIEW: Duration = Duration::from_millis(10);

/// An API server. It accepts tokens that begin with `user`, whose users may list in the namespace `own`.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Reviews>>);

/// The reviews that it got: the tokens, the questions about rights, and how many were open at most.
#[derive(Default)]
struct Reviews {
    tokens: Vec<String>,
    rights: Vec<String>,
    open: usize,
    most: usize,
}

impl Server {
    /// Answers a review by one with a status.
    fn answer(&self, mut review: Value) -> Value {
        let mut reviews = self.0.lock().unwrap();
        reviews.open -= 1;
        if let Some(token) = review["spec"]["token"].as_str().map(str::to_owned) {
            let valid = token.starts_with("user");
            review["status"] = json!({"authenticated": valid, "user": {"username": token}});
            reviews.tokens.push(token);
        } else {
            let spec = &review["spec"];
            let allowed = spec["resourceAttributes"]["namespace"] == "own";
            let question = format!("{} {}", spec["user"], spec["resourceAttributes"]);
            review["status"] = json!({"allowed": allowed});
            reviews.rights.push(question);
        }
        review
    }

    fn access(&self) -> Arc<Access> {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                {
                    let mut reviews = server.0.lock().unwrap();
                    reviews.open += 1;
                    reviews.most = reviews.most.max(reviews.open);
                }
                sleep(REVIEW).await;
                let review = request.into_body().collect_bytes().await.unwrap();
                let review = server.answer(serde_json::from_slice(&review).unwrap());
                Ok::<_, BoxError>(HttpResponse::new(Body::from(serde_json::to_vec(&review).unwrap())))
            }
        });
        Arc::new(Access::new(Client::new(service, "default")))
    }

    fn reviews_of_token(&self, token: &str) -> usize {
        let reviews = self.0.lock().unwrap();
        reviews.tokens.iter().filter(|reviewed| *reviewed == token).count()
    }
}

/// The status for a request with a token.
async fn status(access: &Arc<Access>, token: &str) -> StatusCode {
    match access.caller(&headers(token)).await {
        Ok(_) => StatusCode::OK,
        Err(refusal) => refusal.status(),
    }
}

fn headers(token: &str) -> HeaderMap {
    let bearer = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(header::AUTHORIZATION, bearer)])
}

/// So many namespaces, and `own`.
fn namespaces(count: usize) -> BTreeSet<String> {
    let others = (0..count).map(|number| format!("team-{number:03}"));
    others.chain(["own".to_owned()]).collect()
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_user_at_the_same_time_send_each_question_once() {
    let server = Server::default();
    let access = server.access();
    let namespaces = namespaces(50);
    let all = join_all((0..20).map(|_| {
        let (access, namespaces) = (&access, &namespaces);
        async move {
            let caller = access.caller(&headers("user")).await.unwrap();
            caller.must_see("own").await.unwrap();
            caller.visible(namespaces).await.unwrap()
        }
    }));
    let own = (Namespaces::These(["own".to_owned()].into()), 0);
    assert!(all.await.into_iter().all(|visible| visible == own));

    let mut rights = server.0.lock().unwrap().rights.clone();
    // Two kinds in the cluster and in each namespace, but only the first in the own one, for which that is enough.
    assert_eq!(rights.len(), 2 * 51 + 1);
    rights.sort_unstable();
    rights.dedup();
    assert_eq!(rights.len(), 2 * 51 + 1);
}

#[tokio::test(start_paused = true)]
async fn many_users_share_a_limit_on_reviews() {
    let server = Server::default();
    let access = server.access();
    let namespaces = namespaces(20);
    let all = join_all((0..10).map(|number| {
        let (access, namespaces) = (&access, &namespaces);
        async move {
            let caller = access.caller(&headers(&format!("user-{number}"))).await.unwrap();
            caller.visible(namespaces).await.unwrap()
        }
    }));
    assert_eq!(all.await.len(), 10);
    assert_eq!(server.0.lock().unwrap().most, REVIEWS_AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_asked_about_again_when_the_answer_has_expired() {
    let server = Server::default();
    let access = server.access();
    let caller = access.caller(&headers("user")).await.unwrap();
    let namespaces = namespaces(5);
    let count = || server.0.lock().unwrap().rights.len();
    caller.visible(&namespaces).await.unwrap();
    let (first, began) = (count(), Instant::now());
    caller.visible(&namespaces).await.unwrap();
    assert_eq!((count(), began.elapsed()), (first, Duration::ZERO));
    // Refusals expire sooner.
    sleep(Duration::from_secs(11)).await;
    let (visible, _) = caller.visible(&namespaces).await.unwrap();
    assert!(visible.show("own"));
    assert_eq!(count(), first + 2 * 6);
}

#[tokio::test(start_paused = true)]
async fn a_viewer_waits_for_its_turn_behind_requests_with_invalid_tokens() {
    let server = Server::default();
    let access = server.access();
    let strangers: Vec<String> = (0..100).map(|number| format!("stranger-{number}")).collect();
    let strangers = join_all(strangers.iter().map(|token| status(&access, token)));
    let (strangers, viewer) = tokio::join!(strangers, status(&access, "user"));
    assert!(strangers.into_iter().all(|status| status == StatusCode::UNAUTHORIZED));
    assert_eq!(viewer, StatusCode::OK);
    assert_eq!(server.0.lock().unwrap().most, TOKENS_AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_viewer_is_served_while_requests_with_invalid_tokens_take_all_places() {
    let server = Server::default();
    let access = server.access();
    assert_eq!(status(&access, "user").await, StatusCode::OK);
    sleep(Duration::from_secs(59)).await;
    let end = Instant::now() + Duration::from_secs(4);
    let strangers = join_all((0..TOKENS_WAITING).map(|stranger| {
        let access = &access;
        async move {
            for number in 0.. {
                if Instant::now() > end {
                    break;
                }
                status(access, &format!("stranger-{stranger}-{number}")).await;
            }
        }
    }));
    // The review of its token expires meanwhile.
    let viewer = async {
        while Instant::now() < end {
            sleep(Duration::from_millis(200)).await;
            assert_eq!(status(&access, "user").await, StatusCode::OK);
        }
    };
    tokio::join!(strangers, viewer);
    assert_eq!(server.reviews_of_token("user"), 2);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_requests_that_wait_for_reviews_of_tokens_is_limited() {
    let server = Server::default();
    let access = server.access();
    let strangers: Vec<String> = (0..TOKENS_WAITING + 10)
        .map(|number| format!("stranger-{number}"))
        .collect();
    let answers = join_all(strangers.iter().map(|token| status(&access, token))).await;
    let count = |wanted| answers.iter().filter(|status| **status == wanted).count();
    assert_eq!(count(StatusCode::UNAUTHORIZED), TOKENS_WAITING);
    assert_eq!(count(StatusCode::SERVICE_UNAVAILABLE), 10);
}

#[tokio::test(start_paused = true)]
async fn invalid_tokens_do_not_drop_callers_from_the_cache() {
    let server = Server::default();
    let access = server.access();
    assert_eq!(status(&access, "user").await, StatusCode::OK);
    for number in 0..2 * CALLERS_MAX {
        assert_eq!(
            status(&access, &format!("stranger-{number}")).await,
            StatusCode::UNAUTHORIZED
        );
    }
    assert_eq!(status(&access, "user").await, StatusCode::OK);
    assert_eq!(server.reviews_of_token("user"), 1);
    assert_eq!(status(&access, "stranger-0").await, StatusCode::UNAUTHORIZED);
    assert_eq!(server.reviews_of_token("stranger-0"), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_with_the_same_new_token_share_its_review() {
    let server = Server::default();
    let access = server.access();
    let all = join_all((0..50).map(|_| status(&access, "user"))).await;
    assert!(all.into_iter().all(|status| status == StatusCode::OK));
    assert!(server.reviews_of_token("user") <= TOKENS_AT_ONCE);
}

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
