use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use axum::extract::Query;
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use tokio::net::TcpListener;

use super::*;
use crate::api::views::{Meta, Node};

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
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/api/v1/nodes", get(page));
    tokio::spawn(async { axum::serve(listener, router).await });
    let client = Client {
        way: Way::Direct(url),
        token: "secret".to_owned(),
        cluster: None,
    };
    for (path, shard) in [("/nodes", ""), ("/nodes?shard=blue", "blue")] {
        let list: NodeList = client.list(path).await.unwrap();
        let nodes: Vec<_> = list.nodes.iter().map(|node| (&*node.name, &*node.shard)).collect();
        assert_eq!(nodes, [("a", shard), ("b", shard), ("c", shard)]);
        assert_eq!(list.next, None);
    }
}
