use std::collections::VecDeque;
use std::convert::Infallible;

use futures::future::poll_fn;

use super::*;

/// Time unit of the tests, with much slack before deadlines.
const UNIT: Duration = Duration::from_millis(20);
const REQUEST: Duration = UNIT.saturating_mul(20);
const WATCH: Duration = UNIT.saturating_mul(40);
const NEVER: u32 = 100_000;
const WATCH_URI: &str = "/api/v1/pods?allowWatchBookmarks=true&watch=true";

/// A response body whose chunks come after these time units each; then it ends, or hangs.
struct Parts {
    after: VecDeque<u32>,
    hangs: bool,
    next: Option<Pin<Box<Sleep>>>,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.next.is_none() {
            let Some(units) = self.after.pop_front() else {
                return if self.hangs { Poll::Pending } else { Poll::Ready(None) };
            };
            self.next = Some(Box::pin(tokio::time::sleep(UNIT * units)));
        }
        let come = self.next.as_mut().is_some_and(|next| next.as_mut().poll(cx).is_ready());
        if !come {
            return Poll::Pending;
        }
        self.next = None;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part")))))
    }
}

/// Sends a request to a server that begins its answer after so many units. Answers how many parts came, and whether it was complete.
async fn ask(deadlines: Deadlines, uri: &str, begin: u32, after: &[u32], hangs: bool) -> (usize, bool) {
    let parts: Vec<u32> = after.to_vec();
    let server = tower::service_fn(move |_: Request<()>| {
        let after = parts.clone().into();
        async move {
            tokio::time::sleep(UNIT * begin).await;
            Ok::<_, Infallible>(Response::new(Parts {
                after,
                hangs,
                next: None,
            }))
        }
    });
    let request = Request::get(uri).body(()).unwrap();
    let mut came = 0;
    let complete = match DeadlineLayer(deadlines).layer(server).call(request).await {
        Err(error) => {
            assert!(error.is::<TimedOut>(), "{error}");
            false
        }
        Ok(answer) => {
            let mut body = answer.into_body();
            loop {
                match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    Some(Ok(_)) => came += 1,
                    Some(Err(error)) => {
                        assert!(error.is::<TimedOut>(), "{error}");
                        break false;
                    }
                    None => break true,
                }
            }
        }
    };
    (came, complete)
}

#[tokio::test]
async fn a_response_that_does_not_begin_fails_at_the_deadline() {
    for deadlines in [Deadlines::whole(REQUEST), Deadlines::of_watches(REQUEST, WATCH)] {
        for uri in ["/api/v1/pods", WATCH_URI] {
            let sent = Instant::now();
            assert_eq!(ask(deadlines, uri, NEVER, &[], false).await, (0, false), "{uri}");
            assert!(sent.elapsed() >= REQUEST);
        }
    }
}

#[tokio::test]
async fn a_response_that_does_not_end_fails_at_the_deadline() {
    let deadlines = Deadlines::whole(REQUEST);
    assert_eq!(ask(deadlines, "/api/v1/pods", 1, &[1], true).await, (1, false));
    assert_eq!(ask(deadlines, "/api/v1/pods", 1, &[1, 1], false).await, (2, true));
    let (came, complete) = ask(deadlines, "/api/v1/pods", 1, &[1; 1000], false).await;
    assert!(came > 0 && !complete, "{came} parts");
}

/// An object's name that looks like the query `watch=true` must not give a read the long deadline of a watch.
#[tokio::test]
async fn requests_of_other_clients_have_the_deadline_of_a_read() {
    let sent = Instant::now();
    assert_eq!(
        ask(Deadlines::whole(REQUEST), WATCH_URI, 0, &[], true).await,
        (0, false)
    );
    assert!(sent.elapsed() < WATCH);
}

#[tokio::test]
async fn a_list_may_take_longer_while_chunks_arrive() {
    let deadlines = Deadlines::of_watches(REQUEST, WATCH);
    let list = "/api/v1/pods?limit=500";
    assert_eq!(ask(deadlines, list, 4, &[4; 12], false).await, (12, true));
    assert_eq!(ask(deadlines, list, 4, &[4], true).await, (1, false));
}

#[tokio::test]
async fn a_watch_may_be_silent_until_its_end_and_not_longer() {
    let watch = || Deadlines::of_watches(REQUEST, WATCH);
    assert_eq!(ask(watch(), WATCH_URI, 0, &[30], false).await, (1, true));
    let bounds = watch().of(&WATCH_URI.parse().unwrap());
    assert_eq!((bounds.whole, bounds.silence), (WATCH + WATCH_OVERTIME, None));
}
