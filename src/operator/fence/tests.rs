use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{self, Ready};
use futures::task::noop_waker_ref;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Counts the requests that reach it and answers them at once.
#[derive(Clone, Default)]
struct Server(Arc<AtomicUsize>);

impl Service<Request<()>> for Server {
    type Response = ();
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        let count = Arc::clone(&self.0);
        // Nothing leaves before the future is driven, as with a real connection.
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        .boxed()
    }
}

fn request(method: &Method) -> Request<()> {
    Request::builder()
        .method(method)
        .uri("/api/v1/namespaces/team/pods/a/binding")
        .body(())
        .unwrap()
}

/// Sends one request through the fence and says whether it reached the server.
async fn reaches(fence: &Fence, method: &Method) -> bool {
    let server = Server::default();
    let answer = FenceLayer(fence.clone())
        .layer(server.clone())
        .call(request(method))
        .await;
    let reached = server.0.load(Ordering::SeqCst) == 1;
    assert_eq!(answer.is_ok(), reached);
    assert!(answer.is_ok() || answer.unwrap_err().is::<Fenced>());
    reached
}

async fn writes_that_reach(fence: &Fence) -> usize {
    let mut count = 0;
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        count += usize::from(reaches(fence, &method).await);
    }
    count
}

#[tokio::test]
async fn nothing_is_written_before_the_lease_is_held() {
    let fence = Fence::closed();
    assert_eq!(writes_that_reach(&fence).await, 0);
    assert!(reaches(&fence, &Method::GET).await);
}

#[tokio::test]
async fn the_holder_writes_until_another_may_have_taken_the_lease() {
    let fence = Fence::closed();
    let now = Instant::now();
    fence.extend(now + HOUR);
    assert_eq!(writes_that_reach(&fence).await, 4);
    assert!(fence.is_open(now + HOUR - Duration::from_millis(1)));
    assert!(!fence.is_open(now + HOUR));
}

#[tokio::test]
async fn a_process_that_slept_past_its_lease_writes_nothing_more() {
    let fence = Fence::closed();
    fence.extend(Instant::now());
    assert_eq!(writes_that_reach(&fence).await, 0);
    assert!(reaches(&fence, &Method::GET).await, "reads pass");
}

#[tokio::test]
async fn requests_in_progress_when_the_process_was_paused_are_not_sent() {
    let fence = Fence::closed();
    fence.extend(Instant::now() + HOUR);
    let server = Server::default();
    let mut under_way = FenceLayer(fence.clone())
        .layer(server.clone())
        .call(request(&Method::POST));

    // Made while the fence was open, driven when it no longer is.
    fence.extend(Instant::now());
    let answer = under_way.poll_unpin(&mut Context::from_waker(noop_waker_ref()));

    assert!(matches!(answer, Poll::Ready(Err(error)) if error.is::<Fenced>()));
    assert_eq!(server.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_answer_to_a_write_that_left_in_time_comes_through() {
    let fence = Fence::closed();
    fence.extend(Instant::now() + HOUR);
    let echo = tower::service_fn(|_: Request<()>| -> Ready<Result<u8, BoxError>> { future::ready(Ok(7)) });
    assert_eq!(
        FenceLayer(fence)
            .layer(echo)
            .call(request(&Method::POST))
            .await
            .unwrap(),
        7
    );
}

/// How long a fence with this write under way is not settled, with 5 s in which a write may arrive late.
async fn settles_after<F>(answer: impl Fn() -> F) -> Duration
where
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    settles_after_a(&Method::POST, answer).await
}

/// The same with a request of any method.
async fn settles_after_a<F>(method: &Method, answer: impl Fn() -> F) -> Duration
where
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let fence = Fence::closed();
    fence.extend(Instant::now() + HOUR);
    let server = tower::service_fn(|_: Request<()>| answer());
    let write = FenceLayer(fence.clone()).layer(server).call(request(method));
    let write = tokio::spawn(timeout(Duration::from_secs(2), write));
    tokio::task::yield_now().await;
    let began = Instant::now();
    fence.settled(Duration::from_secs(5)).await;
    write.abort();
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_settled_once_no_write_can_arrive_any_more() {
    let later = || async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(())
    };
    let fails = || future::ready(Err("connection reset".into()));
    let seconds = |time: Duration| time.as_secs_f64().round();
    assert!(settles_after(|| future::ready(Ok(()))).await.is_zero());
    assert!(settles_after(later).await < Duration::from_millis(600));
    assert_eq!(seconds(settles_after(future::pending).await), 5.0, "it may have left");
    assert_eq!(seconds(settles_after(fails).await), 5.0, "so may one that failed");
    let read = settles_after_a(&Method::GET, future::pending).await;
    assert!(read.is_zero(), "reads are not waited for: {read:?}");
}

/// At shutdown the tasks that write end while their requests are under way.
#[tokio::test(start_paused = true)]
async fn a_fence_is_settled_once_a_write_is_answered_for_which_nobody_waits() {
    let dropped = async |answered: bool| {
        let fence = Fence::closed();
        fence.extend(Instant::now() + HOUR);
        let server = tower::service_fn(move |_: Request<()>| async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if answered {
                return Ok::<_, BoxError>(());
            }
            future::pending().await
        });
        let write = FenceLayer(fence.clone()).layer(server).call(request(&Method::POST));
        let write = timeout(Duration::from_millis(100), write);
        assert!(write.await.is_err());
        fence.close();
        let began = Instant::now();
        fence.settled(Duration::from_secs(5)).await;
        began.elapsed()
    };
    let answered = dropped(true).await;
    assert!(answered < Duration::from_millis(500), "{answered:?}");
    assert!(dropped(false).await >= Duration::from_millis(4_900));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_fence_refuses_is_not_driven_on() {
    let fence = Fence::closed();
    fence.extend(Instant::now() + HOUR);
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let server = tower::service_fn(move |_: Request<()>| {
        let count = Arc::clone(&count);
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, BoxError>(())
        }
    });
    let mut write = FenceLayer(fence.clone()).layer(server).call(request(&Method::POST));
    assert!(
        write
            .poll_unpin(&mut Context::from_waker(noop_waker_ref()))
            .is_pending()
    );
    fence.close();
    let refused = write.await.unwrap_err();
    assert!(refused.is::<Fenced>());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn no_bytes_are_sent_once_the_fence_is_closed() {
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let fence = Fence::closed();
    fence.extend(Instant::now() + HOUR);
    let (near, mut far) = tokio::io::duplex(64);
    let mut near = TokioIo::new(stream::FencedStream {
        inner: TokioIo::new(near),
        fence: fence.clone(),
    });
    near.write_all(b"bind").await.unwrap();
    fence.extend(Instant::now());
    let refused = near.write_all(b"more").await.unwrap_err();
    assert!(
        refused
            .get_ref()
            .is_some_and(<dyn std::error::Error + Send + Sync>::is::<Fenced>),
        "{refused}"
    );

    far.write_all(b"done").await.unwrap();
    let mut answer = [0; 4];
    near.read_exact(&mut answer)
        .await
        .expect("what was sent in time is still answered");
    drop(near);
    let mut sent = String::new();
    far.read_to_string(&mut sent).await.unwrap();
    assert_eq!((sent.as_str(), &answer), ("bind", b"done"));
}

/// Another may have led in between.
#[tokio::test]
async fn a_term_that_is_over_does_not_begin_again() {
    let fence = Fence::closed();
    fence.extend(Instant::now() + HOUR);
    fence.close();
    fence.extend(Instant::now() + HOUR);
    assert_eq!(writes_that_reach(&fence).await, 0);
}
