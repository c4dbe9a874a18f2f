use futures::StreamExt;

use super::*;

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
