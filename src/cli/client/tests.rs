use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::Query;
use axum::routing::get;
use axum::{Json, Router};
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::api::views::{Explanation, Meta, Node};
use crate::cli::show::Look;
use crate::cli::{explain, jobs};

/// The address of an operator that answers like this.
async fn address(router: Router) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await });
    url
}

/// A client of an operator that answers like this. Its API server answers at the same address.
pub async fn served(router: Router) -> Client {
    let url = address(router).await;
    let mut config = kube::Config::new(url.parse().unwrap());
    // No certificates are needed, and there may be none.
    config.root_cert = Some(Vec::new());
    let api = kube::Client::try_from(config).unwrap();
    Client {
        way: Way::Direct(url),
        token: Mutex::new("secret".to_owned()),
        source: None,
        cluster: Some(Cluster {
            api,
            namespace: "default".to_owned(),
        }),
        verbatim: false,
    }
}

/// A workload with a pod that runs.
pub fn workload() -> Value {
    json!({
        "namespace": "team", "name": "train", "queue": "lab", "shard": "default", "priority": 50, "preemptible": true, "state": "Running",
        "pods": {"min": 1, "wanted": 1, "running": 1, "waiting": 0, "gated": 0, "leaving": 0, "ended": 0},
        "requested": {"gpu": 1.0, "cpu": 1.0, "memory": 0.0},
    })
}

/// One of three pages.
async fn page(Query(asked): Query<BTreeMap<String, String>>) -> Json<NodeList> {
    let (name, next) = match asked.get("after").map(String::as_str) {
        None => ("a", Some("a")),
        Some("a") => ("b", Some("b")),
        Some(_) => ("c", None),
    };
    Json(NodeList {
        meta: Meta {
            as_of: Timestamp::UNIX_EPOCH,
            leads: true,
            leader: None,
            namespaces_left_out: 0,
        },
        total: 3,
        nodes: vec![Node {
            name: name.to_owned(),
            shard: asked.get("shard").cloned().unwrap_or_default(),
            ..Node::default()
        }],
        next: next.map(str::to_owned),
    })
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let client = served(Router::new().route("/api/v1/nodes", get(page))).await;
    for (path, shard) in [("/nodes", ""), ("/nodes?shard=blue", "blue")] {
        let list: NodeList = client.list(path).await.unwrap();
        let nodes: Vec<_> = list.nodes.iter().map(|node| (&*node.name, &*node.shard)).collect();
        assert_eq!(nodes, [("a", shard), ("b", shard), ("c", shard)]);
        assert_eq!(list.next, None);
    }
}

#[tokio::test]
async fn an_operator_that_is_busy_is_asked_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let answer = {
        let asked = Arc::clone(&asked);
        async move || {
            let busy = asked.fetch_add(1, Ordering::SeqCst) == 0;
            (
                if busy {
                    StatusCode::TOO_MANY_REQUESTS
                } else {
                    StatusCode::OK
                },
                "7",
            )
        }
    };
    let client = served(Router::new().route("/api/v1/number", get(answer))).await;
    assert_eq!(client.get::<u32>("/number").await.unwrap(), 7);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_operator_that_stays_busy_says_so() {
    let answer = async || {
        let error = "the operator simulates something for another caller";
        (StatusCode::TOO_MANY_REQUESTS, Json(json!({"error": error})))
    };
    let client = served(Router::new().route("/api/v1/number", get(answer))).await;
    let asked = client.ask_within::<u32>(Duration::from_millis(500), Method::GET, "/number", Vec::new());
    let error = asked.await.unwrap_err().to_string();
    assert_eq!(error, "the operator simulates something for another caller");
}

#[derive(clap::Parser)]
struct Wrapped {
    #[command(flatten)]
    connection: Connection,
}

#[tokio::test]
async fn a_token_that_expired_is_read_once_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let answer = {
        let asked = Arc::clone(&asked);
        move |headers: HeaderMap| async move {
            asked.fetch_add(1, Ordering::SeqCst);
            let valid = headers[header::AUTHORIZATION] == "Bearer second";
            (
                if valid {
                    StatusCode::OK
                } else {
                    StatusCode::UNAUTHORIZED
                },
                "7",
            )
        }
    };
    let url = address(Router::new().route("/api/v1/number", get(answer))).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first").unwrap();
    let args = ["test", "--url", &url, "--token-file", file.path().to_str().unwrap()];
    let connection = <Wrapped as clap::Parser>::parse_from(args).connection;
    let client = Client::open(&connection).await.unwrap();

    // It is still the same: that does not help.
    let error = client.get::<u32>("/number").await.unwrap_err();
    assert_eq!(error.to_string(), "/api/v1/number: 401 Unauthorized: 7");
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    std::fs::write(file.path(), "second").unwrap();
    for _ in 0..2 {
        assert_eq!(client.get::<u32>("/number").await.unwrap(), 7);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

/// A tenant named its topology so: the title of the terminal would be changed, and a row would be added to the table.
const NAMED: &str = "\u{1b}]0;x\u{7}\nteam  other  q  Running";

#[tokio::test]
async fn tables_have_no_control_characters_of_tenants() {
    let meta = json!({"asOf": "2026-01-01T00:00:00Z", "leads": true});
    let verdict = json!({"cause": "topology_missing", "sentence": format!("Topology {NAMED} does not exist")});
    let list = json!({"meta": meta, "total": 1, "workloads": [{
        "namespace": "team", "name": "train", "queue": "q", "shard": "default", "priority": 50, "preemptible": true, "state": "Waiting",
        "pods": {"min": 1, "wanted": 1, "running": 0, "waiting": 1, "gated": 0, "leaving": 0, "ended": 0},
        "requested": {"gpu": 1.0, "cpu": 1.0, "memory": 0.0}, "verdict": verdict,
    }]});
    let subject = json!({"kind": "PodGroup", "namespace": "team", "name": "train"});
    let explained =
        json!({"meta": meta, "subject": subject, "verdict": verdict, "evidence": [NAMED], "commands": [NAMED]});
    let router = Router::new()
        .route("/api/v1/workloads", get(move || async move { Json(list) }))
        .route("/api/v1/explain", get(move || async move { Json(explained) }));
    let client = served(router).await;
    let look = Look {
        terminal: false,
        wide: true,
        now: Timestamp::UNIX_EPOCH,
    };
    let escaped = r"\u{1b}]0;x\u{7}\nteam  other  q  Running";
    let list: WorkloadList = client.list("/workloads").await.unwrap();
    let table = jobs::words(&list.workloads, &look);
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(
        table.ends_with(&format!("  Topology {escaped} does not exist\n")),
        "{table}"
    );
    let explained: Explanation = client.get("/explain").await.unwrap();
    assert_eq!(
        explain::words(&explained, &look),
        format!("Topology {escaped} does not exist.\nCause: topology_missing\n  {escaped}.\n\n{escaped}\n")
    );

    // Serializers of JSON and YAML escape by themselves.
    let client = client.printing(Output::Json);
    let list: WorkloadList = client.list("/workloads").await.unwrap();
    let said = list.workloads[0].verdict.as_ref().unwrap();
    assert_eq!(said.sentence, format!("Topology {NAMED} does not exist"));
}
