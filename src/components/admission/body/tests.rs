use std::convert::Infallible;

use axum::body::Bytes;
use futures::{FutureExt, stream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;

/// A request whose body comes through the channel.
fn request() -> (mpsc::UnboundedSender<Bytes>, Request) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let chunks = stream::unfold(receiver, async |mut receiver| {
        Some((Ok::<_, Infallible>(receiver.recv().await?), receiver))
    });
    (sender, Request::new(axum::body::Body::from_stream(chunks)))
}

/// Reads a body and drops it.
async fn read(bodies: &Bodies, request: Request) -> Result<Vec<u8>, Refusal> {
    bodies.read(request).await.map(|body| body.text)
}

/// Reads a body of which so many bytes have come, and no more come.
fn half_sent(bodies: &Bodies, bytes: usize) -> (mpsc::UnboundedSender<Bytes>, JoinHandle<Result<Vec<u8>, Refusal>>) {
    let (sender, request) = request();
    sender.send(vec![b' '; bytes].into()).unwrap();
    let bodies = bodies.clone();
    (sender, tokio::spawn(async move { read(&bodies, request).await }))
}

#[tokio::test]
async fn a_body_with_a_content_length_above_the_limit_is_not_read() {
    let (_sender, mut request) = request();
    let length = (limits::WEBHOOK_BODY_BYTES + 1).to_string();
    request
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length.parse().unwrap());
    assert_eq!(
        read(&Bodies::new(), request).await,
        Err(TOO_LONG),
        "although none of it came"
    );
}

#[tokio::test]
async fn a_body_that_grows_too_long_is_cut() {
    let (bodies, chunk) = (Bodies::new(), Bytes::from(vec![b' '; 1 << 20]));
    let endless = stream::repeat_with(move || Ok::<_, Infallible>(chunk.clone()));
    assert_eq!(
        read(&bodies, Request::new(axum::body::Body::from_stream(endless))).await,
        Err(TOO_LONG)
    );
    assert_eq!(bodies.lock().held, 0);
}

#[tokio::test]
async fn reading_a_body_has_a_deadline() {
    let bodies = Bodies::with(Duration::from_millis(10), CHANCE);
    let (_sender, read) = half_sent(&bodies, 10);
    assert_eq!(read.await.unwrap(), Err(TOO_SLOW));
    assert!(bodies.lock().readers.is_empty());
}

/// As many half-sent bodies as there is room for.
async fn full(bodies: &Bodies) -> Vec<(mpsc::UnboundedSender<Bytes>, JoinHandle<Result<Vec<u8>, Refusal>>)> {
    let all: Vec<_> = (0..MANY).map(|_| half_sent(bodies, HALF)).collect();
    while bodies.lock().held < MANY * HALF {
        tokio::task::yield_now().await;
    }
    all
}

const HALF: usize = limits::WEBHOOK_BODY_BYTES / 2;
const MANY: usize = limits::WEBHOOK_BODIES_BYTES / HALF;

#[tokio::test]
async fn the_oldest_incomplete_bodies_are_dropped_for_new_ones() {
    let bodies = Bodies::with(READ_TIMEOUT, Duration::ZERO);
    let slow = full(&bodies).await;
    for _ in 0..2 * MANY {
        let (sender, read) = half_sent(&bodies, HALF);
        drop(sender);
        assert_eq!(read.await.unwrap().map(|body| body.len()), Ok(HALF));
    }
    for (index, (sender, read)) in slow.into_iter().enumerate() {
        drop(sender);
        let given_up = read.await.unwrap() == Err(NO_SPACE);
        assert_eq!(
            given_up,
            index == 0,
            "one was in the way, and only that one was given up"
        );
    }
    assert_eq!(bodies.lock().held, 0);
}

#[tokio::test]
async fn bodies_that_have_just_begun_are_not_dropped() {
    let bodies = Bodies::with(READ_TIMEOUT, READ_TIMEOUT);
    let slow = full(&bodies).await;
    let (_sender, read) = half_sent(&bodies, HALF);
    assert_eq!(read.await.unwrap(), Err(NO_SPACE));
    for (sender, read) in slow {
        drop(sender);
        assert!(read.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_short_request_is_read_while_long_ones_have_just_begun() {
    let bodies = Bodies::with(READ_TIMEOUT, READ_TIMEOUT);
    let mut slow = full(&bodies).await;
    slow.push(half_sent(&bodies, limits::WEBHOOK_BODIES_BYTES - MANY * HALF));
    while bodies.lock().held < limits::WEBHOOK_BODIES_BYTES {
        tokio::task::yield_now().await;
    }
    for _ in 0..2 * MANY {
        let (sender, read) = half_sent(&bodies, 4 << 10);
        drop(sender);
        assert_eq!(read.await.unwrap().map(|body| body.len()), Ok(4 << 10));
    }
    let mut given_up = 0;
    for (sender, read) in slow {
        drop(sender);
        given_up += usize::from(read.await.unwrap() == Err(NO_SPACE));
    }
    assert_eq!(given_up, 1, "one of the long ones made room for all of them");
}

#[tokio::test]
async fn bodies_of_requests_that_wait_count_until_others_need_the_memory() {
    let bodies = Bodies::with(READ_TIMEOUT, Duration::ZERO);
    let mut waiting = Vec::new();
    for _ in 0..MANY {
        let body = vec![b' '; HALF];
        let body = bodies.read(Request::new(axum::body::Body::from(body))).await;
        waiting.push(body.map_err(|(_, why)| why).unwrap().place);
    }
    assert_eq!(bodies.lock().held, MANY * HALF, "they were read, and count");
    let (sender, new) = half_sent(&bodies, HALF);
    drop(sender);
    assert!(new.await.unwrap().is_ok());
    for (index, one) in waiting.iter().enumerate() {
        let given_up = one.given_up().now_or_never().is_some();
        assert_eq!(given_up, index == 0, "only the oldest one was given up");
    }
    drop(waiting);
    assert_eq!(bodies.lock().held, 0);
}
