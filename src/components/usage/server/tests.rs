use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::api::shard::UsageDbConfig;
use crate::usage::Source;

/// Answers each request with what `answer` makes of it, and `None` not at all; answers its address.
async fn serve(answer: impl Fn(&str) -> Option<String> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 16 << 10];
            let mut text = String::new();
            while !is_whole(&text) {
                let count = stream.read(&mut read).await.unwrap();
                text.push_str(&String::from_utf8_lossy(&read[..count]));
            }
            if let Some(answer) = answer(&text) {
                stream.write_all(answer.as_bytes()).await.unwrap();
            } else {
                open.push(stream);
            }
        }
    });
    address.to_string()
}

fn is_whole(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.to_lowercase();
    let length = length
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn usage(url: &str) -> anyhow::Result<Shares> {
    let config = json!({"clientType": "prometheus", "connectionString": url, "usageParams": {"extraParams": {"usageQueryTimeout": "2s"}}});
    let config: UsageDbConfig = serde_json::from_value(config)?;
    let (how, _) = Settings::read(&config, None, &|_| None).expect("good settings");
    let Source::Prometheus(server) = how.source.clone() else {
        panic!("{how:?}")
    };
    Server::new(server)?.usage(&how, Time(1_700_000_000_000)).await
}

fn vector(queue: &str, value: &str) -> String {
    let sample = json!({"metric": {"queue_name": queue}, "value": [1, value]});
    json!({"status": "success", "data": {"resultType": "vector", "result": [sample]}}).to_string()
}

#[tokio::test]
async fn the_results_of_six_queries_are_combined() {
    let address = serve(|request| {
        let whole = request.starts_with("POST /prometheus/api/v1/query HTTP/1.1")
            && request.contains("authorization: Basic YTpiQGM=")
            && request.contains("time=1700000000%2E000");
        let held = request.contains("kai%5Fqueue%5Fallocated%5Fgpus");
        let value = if held { vector("team", "30") } else { vector("", "120") };
        Some(if whole {
            http("200 OK", &value)
        } else {
            http("400 Bad Request", request)
        })
    })
    .await;
    let usage = usage(&format!("http://a:b%40c@{address}/prometheus/")).await.unwrap();
    assert_eq!(usage, [("team".into(), [0, 0, 250_000_000])]);
}

#[tokio::test]
async fn errors_of_the_server_are_reported_with_a_bounded_length() {
    let address = serve(|_| Some(http("400 Bad Request", r#"{"status":"error","error":"parse error"}"#))).await;
    let error = format!("{:#}", usage(&address).await.unwrap_err());
    assert!(
        error.ends_with("the server says 400 Bad Request: parse error"),
        "{error}"
    );

    let address = serve(|_| Some(http("200 OK", &"x".repeat(MOST + 1)))).await;
    let error = format!("{:#}", usage(&address).await.unwrap_err());
    assert!(error.contains("has more than 8388608 bytes"), "{error}");

    let began = Instant::now();
    let address = serve(|_| None).await;
    let error = format!("{:#}", usage(&address).await.unwrap_err());
    assert_eq!(error, "no answer within 2s");
    assert!(began.elapsed() < Duration::from_secs(5));

    let gone = usage("http://127.0.0.1:1").await.unwrap_err();
    assert!(!format!("{gone:#}").is_empty());
}
