use axum::body::to_bytes;
use futures::StreamExt;
use tokio::time::sleep;

use super::*;

const LONG: usize = 10 * PIECE;

/// Lets the tasks of responses run.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_sent_completely_and_takes_room_until_it_is_read() {
    static ROOM: Room = Room::new(LONG);
    let content = Bytes::from(b"0123456789".repeat(LONG / 10));
    let place = ROOM.take("a", LONG).unwrap();
    let answer = response(content.clone(), place);
    assert_eq!(answer.headers()[header::CONTENT_LENGTH], LONG.to_string());
    settle().await;
    assert!(ROOM.take("b", LONG).is_none());
    assert_eq!(to_bytes(answer.into_body(), LONG).await.unwrap(), content);
    settle().await;
    assert!(ROOM.take("b", LONG).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_client_that_reads_a_little_now_and_then_is_broken_off() {
    static ROOM: Room = Room::new(LONG);
    let answer = response(vec![0_u8; LONG].into(), ROOM.take("slow", LONG).unwrap());
    let mut body = answer.into_body().into_data_stream();
    let mut unread = Vec::new();
    for _ in 0..4 {
        unread.push(body.next().await.unwrap().unwrap());
        sleep(LONGEST / 5).await;
    }
    assert!(ROOM.take("other", LONG).is_none());
    sleep(LONGEST / 4).await;
    assert!(ROOM.take("other", LONG).is_some(), "although pieces are unread");
    assert!(body.next().await.unwrap().is_err());
    assert!(body.next().await.is_none());
}

#[test]
fn a_user_leaves_room_for_others() {
    static ROOM: Room = Room::new(100_000);
    let take = |user: &str, length: usize| ROOM.take(user, length);
    let first = [take("a", 12_000), take("a", 12_000)];
    assert!(first.iter().all(Option::is_some));
    assert!(take("a", 12_000).is_none(), "more than a quarter");
    assert!(take("a", 100).is_some(), "short ones take no room");
    let other = take("b", 60_000);
    assert!(other.is_some(), "a single answer may be longer");
    assert!(take("c", 20_000).is_none(), "the room is full");
    drop(first);
    let last = take("c", 20_000);
    assert!(last.is_some());
    drop((other, last));
    assert!(ROOM.lock().is_empty());
}

#[test]
fn an_answer_that_was_compressed_takes_the_room_of_its_length() {
    static ROOM: Room = Room::new(100_000);
    let mut place = ROOM.take("a", 90_000).unwrap();
    assert!(ROOM.take("b", 20_000).is_none());
    place.shrink(10_000);
    assert!(ROOM.take("b", 90_000).is_some());
    assert!(ROOM.take("b", 90_001).is_none());
}
