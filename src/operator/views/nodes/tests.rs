use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::super::body::{Body, body};
use super::*;
use crate::api::views::Meta;
use crate::components::watches::Stores;
use crate::engine::input::{GroupKey, PodRef};

/// So many nodes with eight GPUs, each held by a pod of one of two namespaces.
fn busy(nodes: usize) -> Overview {
    let user = |node: usize, gpu: usize| UserSeen {
        pod: PodRef::new(
            if gpu < 6 { "team" } else { "other" },
            &format!("train-{node}-{gpu}"),
            "uid",
        ),
        group: Some(GroupKey::new("team", &format!("pg-train-{node}"))),
        queue: Some("team".into()),
        gpus: 1_000_000,
        shared: Vec::new(),
        leaving: false,
    };
    let node = |number: usize| NodeSeen {
        name: format!("gpu-node-{number:05}").into(),
        ready: true,
        cordoned: false,
        total: [128_000, 1 << 40, 8_000_000],
        free: [number as i64 % 128_000, 1 << 30, 0],
        free_later: [0; 3],
        pods: 12,
        gpu_memory: Some(81_900),
        shared: Vec::new(),
        users: (0..8).map(|gpu| user(number, gpu)).collect(),
    };
    let meta = Meta {
        as_of: Timestamp::UNIX_EPOCH,
        leads: true,
        leader: None,
        namespaces_left_out: 0,
    };
    let shard = Shard {
        name: "default".into(),
        leads: true,
        nodes: (0..nodes).map(node).collect(),
        queues: Vec::new(),
        groups: Vec::new(),
        positions: HashMap::new(),
        shown_queues: std::sync::OnceLock::new(),
    };
    Overview::new(meta, vec![shard], Arc::new(Stores::default()), Duration::ZERO)
}

const ALL: Asked = Asked {
    shard: None,
    after: None,
    limit: None,
};

#[tokio::test]
async fn ten_thousand_nodes_with_all_their_users_are_less_than_two_mebibytes() {
    let list = list(&busy(10_000), &ALL, &Namespaces::All);
    assert_eq!(list.nodes.len(), 10_000);
    let sent = body(serde_json::to_vec(&list).unwrap(), true).await;
    assert!(sent.bytes.len() < 2 << 20, "{}", sent.bytes.len());
}

#[test]
fn of_pods_that_the_caller_may_not_see_only_the_sum_is_shown() {
    let visible = Namespaces::These(["team".to_owned()].into());
    let list = list(&busy(1), &ALL, &visible);
    let gpus = list.nodes[0].gpus.as_ref().unwrap();
    assert_eq!((gpus.users.len(), gpus.used_by_others), (6, 2.0));
    assert!(gpus.users.iter().all(|user| user.namespace == "team"));
}

#[test]
fn cached_responses_are_bounded_in_number_and_bytes() {
    let keep = |bytes: usize| {
        let overview = busy(0);
        let body = Body {
            bytes: vec![b'x'; bytes].into(),
            compressed: false,
            tag: None,
        };
        for number in 0..100 {
            overview.keep(number.to_string(), body.clone(), Duration::ZERO);
        }
        (0..100)
            .filter(|number| overview.rendered(&number.to_string()).is_some())
            .count()
    };
    assert_eq!(keep(1), 64);
    // Up to 32 MiB, with their keys.
    assert_eq!(keep(1 << 20), 31);
}
