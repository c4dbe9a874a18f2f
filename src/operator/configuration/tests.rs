//! Config and SchedulingShards on an API server in this process, on virtual time.

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::components::Settings;
use crate::components::figures::Figures;
use crate::components::tests::lab::{Lab, seconds};
use crate::config::tests::flags;
use crate::devcluster::apiserver::{Effect, Match, Times};

#[tokio::test(start_paused = true)]
async fn conditions_whose_write_is_not_answered_delay_no_change() {
    let lab = Lab::start(Settings::default(), &[]).await;
    lab.install_definitions().await;
    let (in_force, mut effective) = watch::channel(None);
    let configuration = Configuration {
        watches: lab.context.watches.clone(),
        config: watcher::Config::default(),
        leader: Leader {
            writes: lab.context.writes.clone(),
            leading: lab.context.leading.clone(),
            readiness: lab.context.readiness.clone(),
            follows: watch::Sender::default().subscribe(),
            missing: watch::Sender::default().subscribe(),
            prometheus: watch::Sender::default().subscribe(),
            figures: Figures::default(),
        },
        resolver: Resolver::new(flags()),
        in_force,
    };
    let write = Match {
        subresource: Some("status".to_owned()),
        ..Match::verb_on("patch", "schedulingshards")
    };
    let unanswered = lab.fault(write, Effect::Hang, Times::Always);
    tokio::spawn(configuration.run());
    while lab.struck(unanswered) == 0 {
        tokio::time::sleep(seconds(1)).await;
    }
    effective.mark_unchanged();
    let shard = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "default"}});
    lab.patch(&shard, json!({"spec": {"placementStrategy": {"gpu": "spread"}}}))
        .await;
    let changed = timeout(seconds(1), effective.changed()).await;
    changed.expect("the change is in force").expect("it runs");
}
