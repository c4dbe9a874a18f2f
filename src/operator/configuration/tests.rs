//! Config and SchedulingShards on an API server in this process, on virtual time.

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::components::Settings;
use crate::components::figures::Figures;
use crate::components::tests::lab::{Lab, refuse, seconds};
use crate::components::tests::recorded::Warnings;
use crate::config::tests::flags;
use crate::devcluster::apiserver::{Effect, Match, Times};

/// The task of a process that leads, and what it publishes.
fn task(lab: &Lab) -> (Configuration, watch::Receiver<InForce>) {
    let (in_force, effective) = watch::channel(None);
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
    (configuration, effective)
}

#[tokio::test(start_paused = true)]
async fn conditions_whose_write_is_not_answered_delay_no_change() {
    let lab = Lab::start(Settings::default(), &[]).await;
    lab.install_definitions().await;
    let (configuration, mut effective) = task(&lab);
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

#[tokio::test(start_paused = true)]
async fn conditions_of_an_object_that_cannot_be_read_are_written_once() {
    let lab = Lab::start(Settings::default(), &[]).await;
    lab.install_definitions().await;
    let (configuration, _effective) = task(&lab);
    tokio::spawn(configuration.run());
    tokio::time::sleep(seconds(10)).await;
    let before = lab.writes().len();
    let config = json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": object::CONFIG}});
    // The schema accepts any field there.
    let context = json!({"runAsUser": "10000"});
    lab.patch(&config, json!({"spec": {"global": {"securityContext": context}}}))
        .await;
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(lab.writes().split_off(before), ["patch configs/status 200"]);
    let conditions = lab.see(&config).await["status"]["conditions"].clone();
    assert_eq!(conditions[0]["observedGeneration"], json!(2));
}

#[tokio::test(start_paused = true)]
async fn conditions_that_are_refused_are_written_again_after_a_minute_or_a_change() {
    let lab = Lab::start(Settings::default(), &[]).await;
    lab.install_definitions().await;
    let warnings = Warnings::from_now_on();
    let statuses = Match {
        verb: Some("patch".to_owned()),
        subresource: Some("status".to_owned()),
        ..Match::default()
    };
    let refused = lab.fault(statuses, refuse(422), Times::Always);
    let (configuration, _effective) = task(&lab);
    tokio::spawn(configuration.run());
    tokio::time::sleep(seconds(50)).await;
    assert_eq!(lab.struck(refused), 2, "of the Config and of the shard");
    let shard = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "default"}});
    lab.patch(&shard, json!({"spec": {"placementStrategy": {"gpu": "spread"}}}))
        .await;
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(lab.struck(refused), 3);
    tokio::time::sleep(seconds(65)).await;
    assert_eq!(lab.struck(refused), 5);
    let said = "the object or its conditions cannot be written; this is tried again at intervals";
    assert_eq!(warnings.of(said), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_was_deleted_is_not_created_again_in_the_next_term() {
    let lab = Lab::start(Settings::default(), &[]).await;
    lab.install_definitions().await;
    let (configuration, effective) = task(&lab);
    tokio::spawn(configuration.run());
    tokio::time::sleep(seconds(10)).await;
    let shard = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "default"}});
    assert!(!lab.see(&shard).await.is_null(), "the first term creates it");
    lab.delete(&shard).await;
    tokio::time::sleep(seconds(1)).await;
    lab.lose();
    tokio::time::sleep(seconds(1)).await;
    lab.lead(2);
    tokio::time::sleep(seconds(10)).await;
    assert!(lab.see(&shard).await.is_null());
    let resolved = effective.borrow().clone().expect("the configuration is known").1;
    assert_eq!(resolved.shards, [], "nothing is scheduled");
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_at_growing_intervals() {
    let lab = Lab::start(Settings::default(), &[]).await;
    lab.install_definitions().await;
    let lists = lab.fault(Match::verb_on("list", "configs"), refuse(500), Times::Always);
    let (configuration, _effective) = task(&lab);
    tokio::spawn(configuration.run());
    tokio::time::sleep(seconds(60)).await;
    let asked = lab.struck(lists);
    assert!((5..=20).contains(&asked), "{asked}");
    lab.server.faults().remove(lists);
    let created = lab.fault(Match::verb_on("create", "configs"), refuse(500), Times::Always);
    tokio::time::sleep(seconds(60)).await;
    let asked = lab.struck(created);
    assert!((5..=20).contains(&asked), "{asked}");
    lab.server.faults().remove(created);
    tokio::time::sleep(seconds(6)).await;
    let config = json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": object::CONFIG}});
    assert!(!lab.see(&config).await.is_null());
}
