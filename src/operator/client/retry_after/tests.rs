use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::components::retry::{Failure, asked_pause, failure};
use crate::operator::client::{Reach, Timeouts, connect};

/// The error of a request that a server answers with these lines and this body.
async fn error(head: &str, body: &str) -> kube::Error {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let length = body.len();
    let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let mut config = kube::Config::new(server.parse().unwrap());
    config.root_cert = Some(Vec::new());
    let time = Duration::from_secs(10);
    let timeouts = Timeouts {
        request: time,
        watch: time,
    };
    let clients = connect(Reach::Network(Box::new(config)), timeouts, time).unwrap();
    let error = clients.reads.apiserver_version().await.unwrap_err();
    answering.await.unwrap();
    error
}

/// As the API server's limit on concurrent requests does it.
#[tokio::test]
async fn the_wait_in_the_header_of_a_refusal_is_kept() {
    let busy = "429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 1";
    let refused = error(busy, "Too many requests, please try again later.\n").await;
    assert_eq!(asked_pause(&refused), Some(Duration::from_secs(1)));
    assert_eq!(failure(&refused), Failure::Busy);
    let kube::Error::Api(status) = refused else {
        panic!("{refused}");
    };
    assert_eq!(
        (status.code, status.message.as_str()),
        (429, "Too many requests, please try again later.")
    );
}

#[tokio::test]
async fn a_status_keeps_what_it_says() {
    let status = |details: &str| {
        format!(r#"{{"kind": "Status", "status": "Failure", "reason": "ServiceUnavailable", "code": 503{details}}}"#)
    };
    let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
    for (head, details, expected) in [
        ("503 Service Unavailable\r\nRetry-After: 2", "", seconds(2)),
        (
            "503 Service Unavailable\r\nRetry-After: 2",
            r#", "details": {"retryAfterSeconds": 5}"#,
            seconds(5),
        ),
        ("503 Service Unavailable", "", None),
        ("503 Service Unavailable\r\nRetry-After: 0", "", None),
        (
            "503 Service Unavailable\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT",
            "",
            None,
        ),
    ] {
        let refused = error(head, &status(details)).await;
        assert_eq!(asked_pause(&refused), expected, "{head} {details}");
        assert_eq!(failure(&refused), Failure::Busy, "{head} {details}");
    }
    let failed = error("500 Internal Server Error\r\nRetry-After: 2", "broken").await;
    assert_eq!((asked_pause(&failed), failure(&failed)), (None, Failure::Unknown));
}
