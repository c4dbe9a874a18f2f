use std::sync::Arc;

use serde_json::json;
use tokio::time::advance;

use super::*;
use crate::api::names::label;
use crate::components::bus::{self, GroupReport};
use crate::components::leadership::{Scope, Term};
use crate::components::tests::lab::{Lab, read, seconds};
use crate::components::{Pools, Settings};
use crate::engine::decision::{Cause, Verdict};

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_node_pool_says_why_it_waits_though_its_group_is_written_late() {
    let pools = Pools {
        with_shard: std::iter::once("blue".into()).collect(),
        ..Pools::default()
    };
    let settings = Settings {
        pools,
        ..Settings::default()
    };
    let lab = Lab::start(settings, &["ns"]).await;
    let term = lab.context.leading.borrow().of(&Scope::Cluster).cloned();
    let Term { writes, .. } = term.expect("a term");
    lab.lose();
    let blue = Term { number: 2, writes };
    lab.leading
        .send_modify(|terms| terms.begin(&Scope::Pool("blue".into()), blue));

    let pod: Pod = read(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p", "resourceVersion": "1"},
        "spec": {"schedulerName": "kai-scheduler", "containers": []},
    }));
    lab.stores.pods.insert(pod.clone());
    let (bus, _inboxes) = bus::channels(1);
    let mut statuses = PodGroups::new(lab.context.clone(), Arc::clone(&lab.stores), bus);
    statuses.missing.clear();
    let pod = pods::pod_ref(&pod);
    let key = GroupKey::new("ns", "pg");
    statuses.waiting(
        2,
        GroupReport {
            group: key.clone(),
            not_ready: false,
            partly_runs: false,
            reasons: Vec::new(),
            verdict: Verdict::new(Cause::QueueLimit, "no"),
            message: "no".to_owned(),
            pods: vec![(pod.clone(), "no".into())],
        },
    );
    advance(seconds(1)).await;
    let due = |statuses: &mut PodGroups| {
        std::iter::from_fn(|| statuses.agenda.start(Instant::now()))
            .filter(|target| *target == Target::Pod(pod.clone()))
            .count()
    };
    assert_eq!(due(&mut statuses), 1);
    assert!(statuses.write_pod(&pod).is_none(), "the group's node pool is not known");
    statuses.agenda.finish(&Target::Pod(pod.clone()));

    lab.stores.pod_groups.insert(read(json!({
        "metadata": {"name": "pg", "namespace": "ns", "labels": {label::NODE_POOL: "blue"}}, "spec": {"minMember": 1},
    })));
    advance(seconds(60)).await;
    assert_eq!(due(&mut statuses), 1, "it is handled again");
    assert!(statuses.write_pod(&pod).is_some());
}
