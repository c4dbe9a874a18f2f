//! Fault injection, the movable clock and the audit log: on the embedded server alone.

use std::{pin::pin, time::Duration};

use futures::{AsyncBufReadExt, AsyncReadExt, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, runtime::watcher};
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{ApiServer, Effect, Identity, Match, Options, RunningServer, Times};

use super::harness::{Answer, client_of, try_send};
use crate::polling::MAX_WAIT;

const ALL: &str = "/api/v1/namespaces/default/configmaps";

async fn start() -> (RunningServer, Client) {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = client_of(&server.kubeconfig(&Identity::admin())).await;
    (server, client)
}

async fn create(client: &Client, name: &str) -> Result<Answer, kube::Error> {
    let body = json!({"metadata": {"name": name}}).to_string().into_bytes();
    try_send(client, "POST", ALL, "application/json", "", body).await
}

async fn exists(client: &Client, name: &str) -> bool {
    try_send(client, "GET", &format!("{ALL}/{name}"), "", "", Vec::new())
        .await
        .unwrap()
        .code
        == 200
}

#[tokio::test]
async fn the_next_requests_are_refused() {
    let (server, client) = start().await;
    let refuse = Effect::Refuse {
        code: 429,
        retry_after: Some(3),
    };
    let rule = server
        .faults()
        .add(Match::verb_on("create", "configmaps"), refuse, Times::Next(2));
    for _ in 0..2 {
        let refused = create(&client, "a").await.unwrap();
        assert_eq!(
            (refused.code, &refused.body["details"]["retryAfterSeconds"]),
            (429, &json!(3))
        );
    }
    assert_eq!(create(&client, "a").await.unwrap().code, 201);
    assert_eq!(server.faults().struck(rule), 2);
    assert!(server.faults().remove(rule));
    assert!(!server.faults().remove(rule));
}

#[tokio::test]
async fn rules_are_for_the_requests_that_they_name() {
    let (server, client) = start().await;
    let other = client_of(&server.kubeconfig(&Identity::operator())).await;
    let matching = Match {
        name: Some("a".to_owned()),
        user: Some(Identity::operator().user),
        ..Match::verb_on("create", "configmaps")
    };
    server.faults().add(
        matching,
        Effect::Refuse {
            code: 503,
            retry_after: None,
        },
        Times::Always,
    );
    assert_eq!(create(&other, "a").await.unwrap().code, 503);
    assert_eq!(create(&other, "b").await.unwrap().code, 201);
    assert_eq!(create(&client, "a").await.unwrap().code, 201);
    server.faults().clear();
    assert_eq!(create(&other, "c").await.unwrap().code, 201);
}

#[tokio::test]
async fn a_write_can_happen_although_its_answer_is_lost() {
    let (server, client) = start().await;
    let creates = || Match::verb_on("create", "configmaps");
    server
        .faults()
        .add(creates(), Effect::FailAfter { code: 500 }, Times::Next(1));
    assert_eq!(create(&client, "failed").await.unwrap().code, 500);
    assert!(exists(&client, "failed").await);
    server.faults().add(creates(), Effect::DropAfter, Times::Next(1));
    assert!(create(&client, "dropped").await.is_err());
    assert!(exists(&client, "dropped").await);
    server.faults().add(creates(), Effect::Drop, Times::Next(1));
    assert!(create(&client, "never").await.is_err());
    assert!(!exists(&client, "never").await);
}

/// How long a test waits to see that nothing is sent.
const SILENCE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn an_answer_may_never_come() {
    let (server, client) = start().await;
    let creates = || Match::verb_on("create", "configmaps");
    for (effect, name, happens) in [(Effect::Hang, "hung", false), (Effect::HangAfter, "done", true)] {
        server.faults().add(creates(), effect, Times::Next(1));
        let answer = tokio::time::timeout(SILENCE, create(&client, name)).await;
        assert!(answer.is_err(), "{answer:?}");
        assert_eq!(exists(&client, name).await, happens, "{name}");
    }
    let hung = server.audit().writes();
    assert_eq!(hung.iter().map(|write| write.code).collect::<Vec<_>>(), [0, 0]);
    // Others have connections of their own.
    create(&client, "next").await.unwrap().ok();
}

#[tokio::test]
async fn an_answer_may_never_end() {
    let (server, client) = start().await;
    create(&client, "a").await.unwrap().ok();
    for after in [0, 10, usize::MAX] {
        server.faults().add(
            Match::verb_on("get", "configmaps"),
            Effect::Stall { after },
            Times::Next(1),
        );
        let request = http::Request::get(format!("{ALL}/a")).body(Vec::new()).unwrap();
        let mut answer = client.request_stream(request).await.unwrap();
        let mut came = Vec::new();
        let read = tokio::time::timeout(SILENCE, answer.read_to_end(&mut came)).await;
        assert!(read.is_err(), "no end after {after} bytes");
        let whole = serde_json::from_slice::<Value>(&came).is_ok();
        assert!(came.len() == after || whole, "{} bytes of {after}", came.len());
    }
    assert!(exists(&client, "a").await);
}

#[tokio::test]
async fn an_open_watch_may_fall_silent() {
    let (server, client) = start().await;
    let other = client_of(&server.kubeconfig(&Identity::operator())).await;
    let watched = |client: Client| async move {
        let path = format!("{ALL}?watch=true&resourceVersion=1&timeoutSeconds=1");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request_stream(request).await.unwrap().lines()
    };
    let (mut silent, mut loud) = (watched(client.clone()).await, watched(other).await);
    create(&client, "before").await.unwrap().ok();
    silent.try_next().await.unwrap().unwrap();
    server.faults().silence_watches(Match {
        user: Some("admin".to_owned()),
        ..Match::verb_on("watch", "configmaps")
    });
    create(&client, "after").await.unwrap().ok();
    let ended = tokio::time::timeout(Duration::from_secs(2), silent.next()).await;
    assert!(ended.is_err(), "neither an event nor the end: {ended:?}");
    let lines: Vec<_> = loud.by_ref().collect().await;
    assert_eq!(lines.len(), 2, "others hear all, and the end");
    let next = watched(client.clone()).await.next().await;
    assert!(next.is_some(), "a new watch is heard");
}

#[tokio::test]
async fn random_faults_follow_their_seed() {
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        let (server, client) = start().await;
        let half = Times::Chance {
            probability: 0.5,
            seed: 7,
        };
        server.faults().add(
            Match::verb_on("create", "configmaps"),
            Effect::Refuse {
                code: 409,
                retry_after: None,
            },
            half,
        );
        let mut codes = Vec::new();
        for index in 0..40 {
            codes.push(create(&client, &format!("c-{index}")).await.unwrap().code);
        }
        outcomes.push(codes);
    }
    assert_eq!(outcomes[0], outcomes[1]);
    let refused = outcomes[0].iter().filter(|code| **code == 409).count();
    assert!((10..=30).contains(&refused), "{refused} of 40");
}

#[tokio::test]
async fn delays_add_up_before_anything_else() {
    let (server, client) = start().await;
    let creates = || Match::verb_on("create", "configmaps");
    server
        .faults()
        .add(creates(), Effect::Delay(Duration::from_millis(30)), Times::Always);
    server
        .faults()
        .add(creates(), Effect::Delay(Duration::from_millis(30)), Times::Always);
    server.faults().add(
        creates(),
        Effect::Refuse {
            code: 500,
            retry_after: None,
        },
        Times::Always,
    );
    let before = std::time::Instant::now();
    assert_eq!(create(&client, "a").await.unwrap().code, 500);
    assert!(before.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn watches_are_dropped_or_expire() {
    let (server, client) = start().await;
    let open = async |query: &str| {
        let request = http::Request::get(format!("{ALL}?watch=true{query}"))
            .body(Vec::new())
            .unwrap();
        let lines = client.request_stream(request).await.unwrap().lines();
        Box::pin(
            lines
                .take_while(|line| std::future::ready(line.is_ok()))
                .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()),
        )
    };
    let mut watch = open("").await;
    create(&client, "a").await.unwrap().ok();
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "a");
    server.faults().drop_watches(Some("pods"));
    create(&client, "b").await.unwrap().ok();
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "b");
    server.faults().drop_watches(Some("configmaps"));
    assert_eq!(watch.next().await, None);

    let mut watch = open("").await;
    for _ in 0..2 {
        watch.next().await.unwrap();
    }
    server.faults().expire_watches(None);
    let error = watch.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"], &error["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert_eq!(watch.next().await, None);
    let mut old = open("&resourceVersion=2").await;
    assert_eq!(old.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test]
async fn compacted_revisions_cannot_be_listed() {
    let (server, client) = start().await;
    for name in ["a", "b", "c"] {
        create(&client, name).await.unwrap().ok();
    }
    let get = async |query: &str| {
        try_send(&client, "GET", &format!("{ALL}?{query}"), "", "", Vec::new())
            .await
            .unwrap()
    };
    let page = get("limit=1").await.ok();
    let (token, revision) = (
        page["metadata"]["continue"].as_str().unwrap(),
        page["metadata"]["resourceVersion"].as_str().unwrap(),
    );
    create(&client, "d").await.unwrap().ok();
    server.faults().compact();
    for query in [
        format!("limit=1&continue={token}"),
        format!("resourceVersion={revision}&resourceVersionMatch=Exact"),
    ] {
        let gone = get(&query).await;
        assert_eq!(
            (gone.code, gone.body["reason"].as_str()),
            (410, Some("Expired")),
            "{query}"
        );
    }
}

#[tokio::test]
async fn kubes_watcher_recovers_from_all_faults() {
    let (server, client) = start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut events = pin!(watcher(api, watcher::Config::default()).filter_map(async |event| event.ok()));
    let mut seen = std::collections::BTreeSet::new();
    for index in 0..12 {
        let name = format!("c-{index:02}");
        create(&client, &name).await.unwrap().ok();
        match index % 3 {
            0 => server.faults().drop_watches(None),
            1 => server.faults().expire_watches(None),
            _ => server.faults().compact(),
        }
        while !seen.contains(&name) {
            let event = tokio::time::timeout(MAX_WAIT, events.next())
                .await
                .expect("no event in time")
                .unwrap();
            if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) = event {
                seen.insert(object.metadata.name.unwrap());
            }
        }
    }
}

#[tokio::test]
async fn a_full_history_drops_the_oldest_revisions() {
    let server = ApiServer::start(Options {
        history: 4,
        ..Options::default()
    })
    .await
    .unwrap();
    let client = client_of(&server.kubeconfig(&Identity::admin())).await;
    let start = try_send(&client, "GET", ALL, "", "", Vec::new())
        .await
        .unwrap()
        .revision();
    for index in 0..6 {
        create(&client, &format!("c-{index}")).await.unwrap().ok();
    }
    let path = format!("{ALL}?watch=true&resourceVersion={start}");
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let mut lines = client.request_stream(request).await.unwrap().lines();
    let line = lines.try_next().await.unwrap().unwrap();
    assert!(
        line.contains("\"code\":410") && line.contains("too old resource version"),
        "{line}"
    );
}

#[tokio::test]
async fn bookmarks_come_at_their_interval() {
    let options = Options {
        bookmark_every: Duration::from_millis(20),
        ..Options::default()
    };
    let server = ApiServer::start(options).await.unwrap();
    let client = client_of(&server.kubeconfig(&Identity::admin())).await;
    let path = format!("{ALL}?watch=true&allowWatchBookmarks=true&resourceVersion=1");
    let mut lines = client
        .request_stream(http::Request::get(path).body(Vec::new()).unwrap())
        .await
        .unwrap()
        .lines();
    let before = try_send(&client, "GET", ALL, "", "", Vec::new())
        .await
        .unwrap()
        .revision();
    // Writes elsewhere move bookmarks on, too.
    let node = json!({"metadata": {"name": "n"}}).to_string().into_bytes();
    try_send(&client, "POST", "/api/v1/nodes", "application/json", "", node)
        .await
        .unwrap()
        .ok();
    loop {
        let event: Value = serde_json::from_str(&lines.try_next().await.unwrap().unwrap()).unwrap();
        assert_eq!(event["type"], "BOOKMARK");
        let revision: u64 = event["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        if revision > before.parse().unwrap() {
            break;
        }
    }
}

#[tokio::test]
async fn the_clock_stamps_objects() {
    let (server, client) = start().await;
    let created = |answer: Answer| {
        answer.body["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap()
            .parse::<Timestamp>()
            .unwrap()
    };
    let first = created(create(&client, "a").await.unwrap());
    server.clock().advance(SignedDuration::from_hours(5));
    let second = created(create(&client, "b").await.unwrap());
    assert!(
        second.duration_since(first) >= SignedDuration::from_hours(5),
        "{first} {second}"
    );
    assert!(server.clock().now() >= second);
}

#[tokio::test]
async fn writes_are_counted_by_who_made_them() {
    let (server, client) = start().await;
    let operator = client_of(&server.kubeconfig(&Identity::operator())).await;
    create(&client, "a").await.unwrap().ok();
    create(&operator, "b").await.unwrap().ok();
    assert_eq!(create(&operator, "b").await.unwrap().code, 409);
    assert!(exists(&operator, "b").await);
    let user = Identity::operator().user;
    let counts = server.audit().counts();
    let count = |user: &str, code: u16| {
        counts
            .get(&(user.to_owned(), "create configmaps".to_owned(), code))
            .copied()
    };
    assert_eq!(
        [count("admin", 201), count(&user, 201), count(&user, 409)],
        [Some(1), Some(1), Some(1)]
    );
    assert_eq!(counts.len(), 3);
    let writes = server.audit().writes_of(&Identity::operator());
    assert_eq!(
        writes
            .iter()
            .map(|write| (write.name.as_str(), write.code))
            .collect::<Vec<_>>(),
        [("b", 201), ("b", 409)]
    );
    server.audit().clear();
    assert!(server.audit().writes().is_empty());
}

#[tokio::test]
async fn requests_without_a_token_are_refused() {
    let (server, _) = start().await;
    let kubeconfig = server.kubeconfig(&Identity::admin());
    let stranger = kubeconfig
        .lines()
        .map(|line| {
            if line.contains("token:") {
                "    token: wrong"
            } else {
                line
            }
        })
        .collect::<Vec<_>>()
        .join("\n");
    let client = client_of(&stranger).await;
    let answer = try_send(&client, "GET", ALL, "", "", Vec::new()).await.unwrap();
    assert_eq!((answer.code, answer.message()), (401, "Unauthorized"));
    server.shutdown().await;
}
