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
    assert_eq!(response(&known, body.clone()).status(), StatusCode::NOT_MODIFIED);
    let sent = response(&HeaderMap::new(), body);
    assert_eq!(sent.status(), StatusCode::OK);
    assert_eq!(sent.headers()[header::ETAG], "W/\"1\"");
    assert_eq!(sent.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
}
