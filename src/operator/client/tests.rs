use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher::{self, watcher};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::*;

/// Else a connection whose packets are dropped on the way is held for many minutes.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_gives_up_connections_on_which_nothing_comes_back() {
    use tower::ServiceExt;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let connection = tcp(UNACKNOWLEDGED).oneshot(server.clone()).await.unwrap();
    let socket = socket2::SockRef::from(connection.inner());
    assert!(socket.keepalive().unwrap());
    let probes = (
        socket.tcp_keepalive_time().unwrap(),
        socket.tcp_keepalive_interval().unwrap(),
        socket.tcp_keepalive_retries().unwrap(),
    );
    assert_eq!(probes, (KEEPALIVE_AFTER, KEEPALIVE_EVERY, KEEPALIVE_TRIES));
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    let noticed = KEEPALIVE_AFTER + KEEPALIVE_EVERY * KEEPALIVE_TRIES;
    assert!(noticed.max(UNACKNOWLEDGED) < Duration::from_secs(30), "{noticed:?}");

    let writes = tcp(unacknowledged_writes(Duration::from_secs(5)));
    let connection = writes.oneshot(server).await.unwrap();
    let socket = socket2::SockRef::from(connection.inner());
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(4)));
}

/// The network fails right after a renewal; a write leaves right before the fence closes, and the network is back when another process leads.
#[test]
fn the_kernel_gives_up_a_write_before_another_process_may_lead() {
    for late in [1, 300, 5_000, 60_000].map(Duration::from_millis) {
        let until = unacknowledged_writes(late);
        assert!(
            until < late.max(Duration::from_millis(2)) && until <= UNACKNOWLEDGED,
            "{late:?}: {until:?}"
        );
        assert!(!until.is_zero(), "that would be the kernel's own time");
    }
}

/// The client of watches of an API server without objects, which ends every watch after this time; and how often it is asked to watch.
fn watches_that_end_after(time: Duration, last: &'static [u8]) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let number = counted.fetch_add(usize::from(is_watch), Ordering::SeqCst);
        async move {
            // Virtual time does not pass while requests are sent without end.
            if number > 1_000 {
                std::future::pending::<()>().await;
            }
            let body = if is_watch {
                sleep(time).await;
                last.to_vec()
            } else {
                let metadata = json!({"resourceVersion": "5"});
                let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": []});
                serde_json::to_vec(&list).unwrap()
            };
            Ok::<_, BoxError>(http::Response::new(Full::new(hyper::body::Bytes::from(body))))
        }
    });
    let deadlines = Deadlines::of_watches(Duration::from_secs(10), Duration::from_secs(20));
    let (server, served) = (
        ApiServerConnections::at(&Uri::from_static("https://localhost")),
        Served::default(),
    );
    (layered(service, "default", deadlines, (&server, &served), None), asked)
}

/// How often a watch is begun in a minute.
async fn begun_in_a_minute((client, asked): (Client, Arc<AtomicUsize>)) -> usize {
    let mut events = watcher(Api::<ConfigMap>::all(client), watcher::Config::default()).boxed();
    let watching = async { while events.next().await.is_some() {} };
    assert!(timeout(Duration::from_secs(60), watching).await.is_err());
    asked.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_begun_again_after_a_growing_pause() {
    let begun = begun_in_a_minute(watches_that_end_after(Duration::ZERO, b"")).await;
    assert!((10..25).contains(&begun), "{begun}");
}

#[tokio::test(start_paused = true)]
async fn watches_that_last_or_show_something_are_continued_at_once() {
    let lasting = begun_in_a_minute(watches_that_end_after(Duration::from_secs(1), b"")).await;
    assert!((58..=61).contains(&lasting), "{lasting}");
    // On one line.
    let bookmark = concat!(
        r#"{"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "#,
        r#""metadata": {"resourceVersion": "9"}}}"#
    );
    let showing = begun_in_a_minute(watches_that_end_after(Duration::from_millis(500), bookmark.as_bytes())).await;
    assert!((115..=121).contains(&showing), "{showing}");
}
