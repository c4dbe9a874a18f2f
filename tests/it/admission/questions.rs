//! Hostile admission requests: too long, too deeply nested, too large in memory, never ending, and too many. Meanwhile valid ones are served.

use std::convert::Infallible;

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::ConfigExt;

use super::*;

/// The webhooks themselves, without an API server.
#[derive(Clone)]
struct Webhooks {
    url: String,
    config: Config,
}

impl Webhooks {
    async fn of(cluster: &Cluster) -> Self {
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
        let url = eventually("the webhooks are registered", async || {
            let webhooks = configurations.get("mutating-kai-admission").await.ok()?.webhooks?;
            webhooks.first()?.client_config.url.clone()
        })
        .await;
        let url = url.trim_end_matches("/mutate--v1-pod").to_owned();
        let mut config = Config::new(url.parse().unwrap());
        config.accept_invalid_certs = true;
        Self { url, config }
    }

    /// Sends a request on a connection of its own and returns the status code; `None` if the connection was closed while sending.
    async fn ask(&self, path: &str, body: Body) -> Option<StatusCode> {
        let connector = self.config.rustls_https_connector().unwrap();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let request = Request::post(format!("{}{path}", self.url)).header("content-type", "application/json");
        let answer = client.request(request.body(body).unwrap()).await;
        answer.ok().map(|answer| answer.status())
    }
}

/// A request body that stalls after so many bytes.
fn half_sent(bytes: usize) -> Body {
    let chunk = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(chunk.chain(stream::pending()))
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_requests_are_bounded_before_they_are_read() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    let webhooks = Webhooks::of(&cluster).await;
    let review = |object: String| {
        Body::from(format!(
            r#"{{"request":{{"uid":"u","operation":"CREATE","namespace":"team","object":{object}}}}}"#
        ))
    };
    let many = |element: &str| format!("[{}]", vec![element; 400_000].join(","));
    for path in ["/mutate--v1-pod", "/validate-scheduling-run-ai-v2alpha2-podgroup"] {
        assert_eq!(webhooks.ask(path, review("{}".to_owned())).await, Some(StatusCode::OK));
        let long = Body::from(vec![b' '; 8 << 20]);
        let too_long = [None, Some(StatusCode::PAYLOAD_TOO_LARGE)];
        assert!(too_long.contains(&webhooks.ask(path, long).await));
        let chunk = Bytes::from(vec![b' '; 1 << 16]);
        let endless = Body::from_stream(stream::repeat_with(move || Ok::<_, Infallible>(chunk.clone())));
        assert!(too_long.contains(&webhooks.ask(path, endless).await));
        let heavy = review(many(r#"{"":0}"#));
        assert_eq!(webhooks.ask(path, heavy).await, Some(StatusCode::PAYLOAD_TOO_LARGE));
        let deep = review(format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)));
        assert_eq!(webhooks.ask(path, deep).await, Some(StatusCode::BAD_REQUEST));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_admission_requests_time_out_and_delay_no_others() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    let webhooks = Webhooks::of(&cluster).await;
    let slow: Vec<_> = (0..100)
        .map(|_| {
            let webhooks = webhooks.clone();
            tokio::spawn(async move { webhooks.ask("/mutate--v1-pod", half_sent(1 << 20)).await })
        })
        .collect();
    for number in 0..20 {
        let pod = cluster.pod("team", &format!("honest-{number}"), json!({})).await;
        pod.expect("an honest pod is let in while others send half of theirs");
    }
    for slow in slow {
        let status = slow.await.unwrap();
        let given_up = [StatusCode::REQUEST_TIMEOUT, StatusCode::SERVICE_UNAVAILABLE];
        assert!(status.is_none_or(|status| given_up.contains(&status)), "{status:?}");
    }
}
