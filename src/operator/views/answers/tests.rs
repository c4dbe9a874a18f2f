use std::time::Duration;

use tokio::time::sleep;

use super::*;

#[test]
fn an_equal_response_at_another_time_has_the_same_tag() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let digest = |second, node: &str| {
        let text = format!("{{\"meta\":{{\"asOf\":\"{}\"}},\"node\":\"{node}\"}}", at(second));
        digest_but(text.as_bytes(), at(second))
    };
    assert_eq!(digest(1, "a"), digest(2, "a"));
    assert_ne!(digest(1, "a"), digest(1, "b"));
}

#[tokio::test]
async fn a_response_is_not_sent_again_with_the_same_tag() {
    let body = Body {
        tag: Some("W/\"1\"".to_owned()),
        ..body(b"{}".to_vec(), false).await
    };
    let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("W/\"1\""))]);
    assert_eq!(
        sent("a", &known, body.clone(), &ANSWERS).status(),
        StatusCode::NOT_MODIFIED
    );
    let sent = sent("a", &HeaderMap::new(), body, &ANSWERS);
    assert_eq!(sent.status(), StatusCode::OK);
    assert_eq!(sent.headers()[header::ETAG], "W/\"1\"");
    assert_eq!(sent.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
}

/// Lets the tasks of responses end.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn long_answers_are_refused_while_clients_have_not_read_theirs() {
    static ROOM: Room = Room::new(100_000);
    let ask = |user: &'static str, length: usize| async move {
        written(user, &HeaderMap::new(), vec![b'x'; length], &ROOM).await
    };
    let (first, second) = (ask("a", 40_000).await, ask("b", 40_000).await);
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    assert_eq!(ask("c", 40_000).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask("c", 100).await.status(), StatusCode::OK, "short ones take no room");
    drop(first);
    settle().await;
    let third = ask("c", 40_000).await;
    assert_eq!(third.status(), StatusCode::OK);
    drop((second, third));
    settle().await;
    let longest = ask("a", 200_000).await;
    assert_eq!(longest.status(), StatusCode::OK, "one that takes all the room");
    assert_eq!(ask("b", 40_000).await.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn service_accounts_of_a_namespace_take_room_together() {
    static ROOM: Room = Room::new(100_000);
    let ask = |user: &'static str| async move { written(user, &HeaderMap::new(), vec![b'x'; 20_000], &ROOM).await };
    let first = ask("system:serviceaccount:team:a").await;
    assert_eq!(first.status(), StatusCode::OK);
    let refused = ask("system:serviceaccount:team:b").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask("system:serviceaccount:other:a").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_cached_answer_takes_room_only_while_it_is_sent() {
    static ROOM: Room = Room::new(100_000);
    let cached = Body {
        tag: Some("W/\"1\"".to_owned()),
        ..body(vec![b'x'; 200_000], false).await
    };
    let ask = |user: &str, headers: &HeaderMap| sent(user, headers, cached.clone(), &ROOM);
    let (none, known) = (
        HeaderMap::new(),
        HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("W/\"1\""))]),
    );
    let unread = ask("a", &none);
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(ask("b", &none).status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask("b", &known).status(), StatusCode::NOT_MODIFIED, "nothing is sent");
    drop(unread);
    settle().await;
    assert_eq!(ask("b", &none).status(), StatusCode::OK);
}
