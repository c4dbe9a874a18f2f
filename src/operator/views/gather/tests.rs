use futures::future::join_all;
use tokio::time::{sleep, timeout};

use super::super::queue_history::tests::queue;
use super::*;
use crate::components::bus::{self, GroupSeen};
use crate::components::leadership::Pools;
use crate::components::watches::Stores;
use crate::engine::input::Time;
use crate::engine::overview::PodsSeen;

/// A client gives up after this time; the scheduler takes longer.
const PATIENCE: Duration = Duration::from_millis(10);

/// A gatherer of these shards, and the inboxes of the schedulers.
fn gatherer_of(shards: &[&str], leading: bool) -> (Gatherer, Vec<mpsc::Receiver<ToScheduler>>) {
    let (bus, inboxes) = bus::channels(shards.len());
    let shown = Shown {
        bus,
        stores: Arc::default(),
        shards: shards.iter().map(|name| (*name).to_owned()).collect(),
        pools: Pools::default(),
        scheduler_name: String::new(),
    };
    let status = lease::Status {
        leading,
        ..lease::Status::default()
    };
    let elections = Elections {
        cluster: watch::channel(status).1,
        of_shards: watch::channel(BTreeMap::new()).1,
    };
    let gatherer = Gatherer::new(watch::channel(Some(shown)).1, elections, History::default());
    (gatherer, inboxes.schedulers)
}

/// A gatherer, an overview of its shard, and the inbox of the scheduler.
fn gatherer() -> (Gatherer, Overview, mpsc::Receiver<ToScheduler>) {
    let (gatherer, mut inboxes) = gatherer_of(&["default"], false);
    let overview = overview_of("default", &gatherer.elections);
    (gatherer, overview, inboxes.remove(0))
}

/// An overview with only this shard.
fn overview_of(shard: &str, elections: &Elections) -> Overview {
    let shard = Shard {
        name: shard.into(),
        leads: false,
        nodes: Vec::new(),
        queues: Vec::new(),
        groups: Vec::new(),
        positions: HashMap::new(),
        shown_queues: OnceLock::new(),
    };
    let meta = meta(elections, Timestamp::UNIX_EPOCH, std::slice::from_ref(&shard));
    Overview::new(meta, vec![shard], Arc::new(Stores::default()), Duration::ZERO)
}

/// Answers the next request for a pod group: there is none.
async fn answer(inbox: &mut mpsc::Receiver<ToScheduler>) {
    answer_with(inbox, None).await;
}

/// Answers the next request for a pod group.
async fn answer_with(inbox: &mut mpsc::Receiver<ToScheduler>, details: Option<GroupDetails>) {
    let Some(ToScheduler::Look(Look::Group(_, reply))) = inbox.recv().await else {
        panic!("no request for a pod group");
    };
    reply.try_send(details.map(Box::new)).unwrap();
}

/// A pod group without pods.
fn group(namespace: &str, name: &str) -> GroupDetails {
    GroupDetails {
        group: GroupSeen {
            key: GroupKey::new(namespace, name),
            queue: "team".into(),
            priority: 0,
            preemptible: true,
            created: Time(0),
            started: None,
            pods: PodsSeen::default(),
            requested: [0; 3],
            held: None,
            verdict: None,
        },
        report: None,
        pods: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn details_are_those_of_their_shard_although_the_overview_is_older_than_another_shard() {
    let (gatherer, mut inboxes) = gatherer_of(&["blue", "red"], false);
    let (mut red, mut blue) = (inboxes.remove(1), inboxes.remove(0));
    let before = overview_of("red", &gatherer.elections);
    let ask = || gatherer.details("tenant", &before, "team", "train");
    let (details, (), ()) = tokio::join!(
        ask(),
        answer(&mut blue),
        answer_with(&mut red, Some(group("team", "train")))
    );
    assert_eq!(details.unwrap().unwrap().workload.shard, "red");
    // A workload of the new shard is not known yet.
    let (details, ()) = tokio::join!(ask(), answer_with(&mut blue, Some(group("team", "train"))));
    assert_eq!(details.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn requests_for_details_that_were_given_up_leave_one_with_the_scheduler() {
    let (gatherer, overview, mut inbox) = gatherer();
    let ask = || gatherer.details("tenant", &overview, "team", "train");
    for _ in 0..20 {
        assert!(timeout(PATIENCE, ask()).await.is_err());
        assert!(
            timeout(PATIENCE, gatherer.details_of_pod("tenant", &overview, "uid"))
                .await
                .is_err()
        );
    }
    assert_eq!(inbox.len(), 1);
    answer(&mut inbox).await;
    let (details, ()) = tokio::join!(ask(), answer(&mut inbox));
    assert!(details.unwrap().is_none());
    assert!(inbox.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_request_for_details_at_a_time_reaches_the_scheduler() {
    let (gatherer, overview, mut inbox) = gatherer();
    let all = join_all(["a", "b", "c"].map(|name| gatherer.details("tenant", &overview, "team", name)));
    let scheduler = async {
        for _ in 0..3 {
            // Others could arrive during a cycle.
            sleep(PATIENCE).await;
            assert!(inbox.len() <= 1);
            answer(&mut inbox).await;
        }
    };
    let (all, ()) = tokio::join!(all, scheduler);
    assert!(all.into_iter().all(|details| details.unwrap().is_none()));
}

#[tokio::test(start_paused = true)]
async fn an_overview_is_read_once_however_many_clients_give_up() {
    let (gatherer, _, inbox) = gatherer();
    for _ in 0..20 {
        assert!(timeout(PATIENCE, gatherer.overview()).await.is_err());
    }
    assert_eq!(inbox.len(), 1);
}

/// Answers the next request for the queues: there is one.
async fn answer_queues(inbox: &mut mpsc::Receiver<ToScheduler>, name: &str) {
    let Some(ToScheduler::Look(Look::Queues(reply))) = inbox.recv().await else {
        panic!("no request for the queues");
    };
    reply.try_send(vec![queue(name, 1)]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn queues_of_a_scheduler_that_does_not_answer_keep_their_history() {
    let (gatherer, mut inboxes) = gatherer_of(&["blue", "red"], true);
    let (mut red, mut blue) = (inboxes.remove(1), inboxes.remove(0));
    let samples = |name: &str| gatherer.queue_history.of(name).1;
    let schedulers = async {
        answer_queues(&mut blue, "a").await;
        answer_queues(&mut red, "b").await;
        sleep(RETRY).await;
        let first = samples("b");
        assert_eq!(first.len(), 1);
        // A cycle takes longer than the request waits.
        answer_queues(&mut blue, "a").await;
        let late = red.recv().await;
        sleep(Duration::from_secs(6)).await;
        drop(late);
        assert_eq!((samples("a").len(), samples("b")), (1, first.clone()));
        answer_queues(&mut blue, "a").await;
        answer_queues(&mut red, "b").await;
        sleep(RETRY).await;
        assert_eq!((samples("a").len(), samples("b").len()), (2, 2));
        assert_eq!(samples("b").first(), first.first());
    };
    tokio::select! {
        () = gatherer.keep_history() => {}
        () = schedulers => {}
    }
}

#[tokio::test(start_paused = true)]
async fn queues_of_a_node_pool_that_is_given_up_keep_their_history() {
    let (mut gatherer, mut inboxes) = gatherer_of(&["blue", "red"], true);
    let (mut red, mut blue) = (inboxes.remove(1), inboxes.remove(0));
    let status = |leading: bool| lease::Status {
        leading,
        ..lease::Status::default()
    };
    let (lease_of_red, followed) = watch::channel(status(true));
    gatherer.elections.of_shards = watch::channel(BTreeMap::from([("red".to_owned(), followed)])).1;
    let samples = |name: &str| gatherer.queue_history.of(name).1.len();
    let schedulers = async {
        for (leads_red, expected) in [(true, (1, 1)), (false, (2, 1)), (true, (3, 2))] {
            lease_of_red.send_replace(status(leads_red));
            answer_queues(&mut blue, "a").await;
            answer_queues(&mut red, "b").await;
            sleep(RETRY).await;
            assert_eq!((samples("a"), samples("b")), expected);
        }
    };
    tokio::select! {
        () = gatherer.keep_history() => {}
        all = timeout(Duration::from_secs(60), schedulers) => all.expect("both schedulers are asked each time"),
    }
}
