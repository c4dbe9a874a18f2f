use futures::future::join_all;
use tokio::time::sleep;

use super::*;

/// How long a request takes, and the pause after it.
const WORK: Duration = Duration::from_millis(10);
const PAUSE: Pause = Pause {
    times: 9,
    at_most: Duration::from_millis(250),
};

/// Work whose time begins with its turn.
async fn work(time: Duration) {
    sleep(time).await;
}

/// The status of a request that takes [`WORK`].
async fn status(turns: &Turns, user: &str) -> StatusCode {
    match turns.wait(user, work(WORK)).await {
        Ok(()) => StatusCode::OK,
        Err(refusal) => refusal.status(),
    }
}

#[tokio::test(start_paused = true)]
async fn requests_run_one_after_the_other_with_a_pause_that_is_a_multiple_of_their_time() {
    let (turns, began) = (Turns::new(PAUSE), Instant::now());
    let all = join_all((0..3).map(|_| {
        let turns = &turns;
        async move {
            assert_eq!(status(turns, "team").await, StatusCode::OK);
            began.elapsed()
        }
    }));
    for (ended, wanted) in all.await.into_iter().zip([10, 110, 210]) {
        let wanted = Duration::from_millis(wanted);
        assert!(ended >= wanted && ended < wanted + 5 * WORK, "{wanted:?}: {ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pause_after_a_long_request_is_limited() {
    let (turns, began) = (Turns::new(PAUSE), Instant::now());
    let long = Duration::from_secs(1);
    turns.wait("team", work(long)).await.unwrap();
    assert_eq!(status(&turns, "team").await, StatusCode::OK);
    let (wanted, took) = (long + PAUSE.at_most + WORK, began.elapsed());
    assert!(took >= wanted && took < wanted + 5 * WORK, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_user_with_many_requests_leaves_places_for_others() {
    let turns = Turns::new(PAUSE);
    let many = join_all((0..100).map(|_| status(&turns, "greedy")));
    let (many, other) = tokio::join!(many, status(&turns, "other"));
    let count = |wanted| many.iter().filter(|status| **status == wanted).count();
    assert_eq!(count(StatusCode::OK), WAITING_OF_USER);
    assert_eq!(count(StatusCode::TOO_MANY_REQUESTS), 100 - WAITING_OF_USER);
    assert_eq!(other, StatusCode::OK);
    assert!(lock(&turns.places).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_service_accounts_of_a_namespace_leave_places_for_others() {
    let turns = Turns::new(PAUSE);
    let many = join_all((0..16 * WAITING_OF_USER).map(|number| {
        let turns = &turns;
        async move {
            let account = format!("system:serviceaccount:team:account-{}", number % 16);
            status(turns, &account).await == StatusCode::OK
        }
    }));
    let (many, user, other) = tokio::join!(
        many,
        status(&turns, "user"),
        status(&turns, "system:serviceaccount:other:default")
    );
    assert_eq!(many.into_iter().filter(|served| *served).count(), WAITING_OF_USER);
    assert_eq!((user, other), (StatusCode::OK, StatusCode::OK));
}

#[tokio::test(start_paused = true)]
async fn the_last_places_are_kept_for_users_without_one() {
    let turns = Turns::new(PAUSE);
    let users: Vec<String> = (0..WAITING)
        .map(|number| format!("user-{}", number / WAITING_OF_USER))
        .collect();
    let places: Vec<Place> = users.iter().filter_map(|user| turns.place(user)).collect();
    let first_of_the_last_users = KEPT / WAITING_OF_USER;
    assert_eq!(places.len(), WAITING - KEPT + first_of_the_last_users);
    assert!(turns.place("user-15").is_none());
    assert!(turns.place("other").is_some());
}

#[tokio::test(start_paused = true)]
async fn the_number_of_requests_that_wait_is_limited() {
    let turns = Turns::new(PAUSE);
    let all = join_all((0..WAITING + 10).map(|number| {
        let turns = &turns;
        async move {
            let user = format!("user-{number}");
            turns.wait(&user, work(WORK / 10)).await.is_ok()
        }
    }));
    let served = all.await.into_iter().filter(|served| *served).count();
    assert_eq!(served, WAITING);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_given_up_keeps_its_turn_until_its_work_has_ended() {
    let (turns, began) = (Turns::new(PAUSE), Instant::now());
    let given_up = timeout(WORK / 10, turns.wait("team", work(2 * WORK)));
    assert!(given_up.await.is_err());
    assert_eq!(status(&turns, "team").await, StatusCode::OK);
    assert!(began.elapsed() >= 20 * WORK, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_refused_after_a_while_and_so_are_those_behind_it() {
    let turns = Turns::new(PAUSE);
    let never = turns.wait("team", std::future::pending::<()>()).await;
    assert_eq!(never.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(status(&turns, "team").await, StatusCode::TOO_MANY_REQUESTS);
}
