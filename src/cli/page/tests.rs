use axum::routing::get;
use tower::ServiceExt as _;

use super::*;

/// An operator that says what it was sent.
async fn operator() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let said = |uri: Uri, headers: HeaderMap| async move {
        let of = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let tokens = [of("authorization"), of(named::TOKEN), of("cookie")];
        (
            [("etag", "W/\"1\""), ("set-cookie", "a=b")],
            format!("{uri} {tokens:?}"),
        )
    };
    let router = Router::new().route("/api/v1/{*rest}", get(said));
    tokio::spawn(async { axum::serve(listener, router).await });
    address
}

async fn passage() -> Router {
    let address = operator().await;
    let args = ["test", "--url", &format!("http://{address}"), "--token", "secret"];
    let connection = <Wrapped as clap::Parser>::parse_from(args).connection;
    let client = Client::open(&connection).await.unwrap();
    router(Arc::new(Proxy {
        connection,
        client: Mutex::new(Arc::new(client)),
        secret: "secret".to_owned(),
        hosts: ["127.0.0.1:1".to_owned(), "localhost:1".to_owned()],
    }))
}

#[derive(clap::Parser)]
struct Wrapped {
    #[command(flatten)]
    connection: Connection,
}

async fn ask(router: &Router, path: &str, host: &str, secret: &str) -> (StatusCode, HeaderMap, String) {
    let request = Request::get(path)
        .header("host", host)
        .header(named::TOKEN, secret)
        .header("cookie", "mine");
    let response = router
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn requests_of_the_page_are_forwarded_with_the_callers_token() {
    let router = passage().await;
    let (status, headers, said) = ask(&router, "/api/v1/nodes?limit=2", "localhost:1", "secret").await;
    assert_eq!(status, StatusCode::OK, "{said}");
    assert_eq!(said, "/api/v1/nodes?limit=2 [Some(\"Bearer secret\"), None, None]");
    assert_eq!(
        (&headers["etag"], headers.get("set-cookie")),
        (&"W/\"1\"".parse().unwrap(), None)
    );
    let (status, headers, page) = ask(&router, "/", "localhost:1", "").await;
    assert!(status.is_success() && headers.contains_key("content-security-policy") && page.contains("<title>unikai"));
}

#[tokio::test]
async fn requests_without_the_secret_or_with_another_host_are_refused() {
    let router = passage().await;
    for (host, secret) in [
        ("localhost:1", ""),
        ("localhost:1", "wor"),
        ("localhost:1", "words"),
        ("evil.example:1", "secret"),
        ("localhost:2", "secret"),
    ] {
        let (status, _, said) = ask(&router, "/api/v1/nodes", host, secret).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{host} {secret}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
    // Nothing but the API is passed on.
    assert_eq!(
        ask(&router, "/state", "localhost:1", "secret").await.0,
        StatusCode::NOT_FOUND
    );
}
