use serde_json::json;

use super::*;
use crate::components::Settings;
use crate::components::bus::channels;
use crate::components::tests::lab::{Lab, read};
use crate::components::write_slots::WriteSlots;

fn group() -> PodGroup {
    read(json!({"metadata": {"namespace": "team", "name": "g", "uid": "1"}, "spec": {"minMember": 1}}))
}

async fn writer() -> (Lab, PodGroupWriter) {
    let lab = Lab::start(Settings::default(), &["team"]).await;
    let (bus, _) = channels(1);
    let writer = PodGroupWriter::new(lab.context.clone(), Arc::clone(&lab.stores), bus);
    (lab, writer)
}

#[tokio::test(start_paused = true)]
async fn times_of_a_group_that_is_gone_are_not_kept() {
    let (lab, mut writer) = writer().await;
    let times = || {
        vec![Times {
            group: GroupKey::new("team", "g"),
            stale_since: None,
            last_start: None,
            last_eviction: None,
        }]
    };
    writer.times(1, times());
    assert_eq!(writer.desired_groups.len(), 0);
    lab.stores.pod_groups.insert(group());
    writer.times(1, times());
    assert_eq!(writer.desired_groups.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_late_answer_to_the_creation_of_a_group_that_was_deleted_meanwhile_does_not_count() {
    let (_lab, mut writer) = writer().await;
    let (key, pods) = (GroupKey::new("team", "g"), GroupedPods::default());
    for deleted in [false, true] {
        writer.desire(&key, &group(), &pods);
        tokio::time::sleep(CREATE_AFTER).await;
        assert_eq!(writer.agenda.start(Instant::now()), Some(key.clone()));
        if deleted {
            writer.drop_group(&key);
            writer.desire(&key, &group(), &pods);
        }
        writer.group_written(&key, Ok(Some(Arc::new(group()))));
        assert_eq!(writer.existing(&key).is_none(), deleted);
        writer.drop_group(&key);
    }
}

/// Most pods are bound before their annotation is due.
#[tokio::test(start_paused = true)]
async fn annotations_that_are_not_needed_do_not_pile_up_while_groups_are_written() {
    let (lab, mut writer) = writer().await;
    let (key, mut pods) = (GroupKey::new("team", "g"), GroupedPods::default());
    let pod: Pod = read(json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "a"},
        "spec": {"containers": []}, "status": {"phase": "Running"},
    }));
    pods.record(&pod);
    pods.assign(&pod, key.clone(), None);
    writer.desire(&key, &group(), &pods);
    for at in 0..100 {
        let gone = Member {
            namespace: "team".into(),
            uid: format!("gone-{at}").into(),
        };
        writer.mark_late(&gone);
    }
    tokio::time::sleep(MARK_LATE).await;
    let mut slots = WriteSlots::new(&lab.context.background);
    let slot = slots.due(writer.next_due()).await;
    writer.write_next(slot, &pods);
    assert_eq!(writer.writes.len(), 1, "the group");
    assert_eq!(writer.next_due(), None);
}
