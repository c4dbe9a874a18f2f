use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Request;
use futures::StreamExt;
use kube::client::Body as Sent;

use super::*;

/// An API server on which each ConfigMap says `{}`. Counts the reads.
fn api_server() -> (Client, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let service = tower::service_fn(move |_: Request<Sent>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "defaults"}, "data": {}});
        async move { Ok::<_, Infallible>(Response::new(Sent::from(map.to_string().into_bytes()))) }
    });
    (Client::new(service, "ns"), reads)
}

#[tokio::test]
async fn the_defaults_per_kind_are_read_once_for_many_requests() {
    let (client, reads) = api_server();
    let inspection = Inspection::new(watch::channel(None).1, watch::channel(None).1, client);
    // The setting changes once.
    for (name, expected) in [("a", 1), ("b", 2)] {
        let setting = ("kai-scheduler".to_owned(), name.to_owned());
        for _ in 0..10 {
            inspection.defaults(Some(&setting)).await.unwrap();
        }
        assert_eq!(reads.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_whose_reader_was_too_slow_ends_with_an_error() {
    let (ended, end) = oneshot::channel();
    // The time is over; chunks are buffered all the same.
    let body = body(Instant::now(), move |mut chunks| {
        let all = vec![0; (CHUNKS + 1) * CHUNK];
        let written = chunks.write_all(&all).and_then(|()| chunks.flush());
        ended.send(()).unwrap();
        written
    });
    end.await.unwrap();
    let read: Vec<_> = body.into_data_stream().collect().await;
    let read: Vec<_> = read.iter().map(Result::is_ok).collect();
    assert_eq!(read, [true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_complete_ends_without_an_error() {
    let body = body(Instant::now() + LONGEST, |mut chunks| {
        chunks.write_all(b"all")?;
        chunks.flush()
    });
    let read = axum::body::to_bytes(body, CHUNK).await.unwrap();
    assert_eq!(&*read, b"all");
}
