use serde_json::json;

use super::*;
use crate::components::Settings;
use crate::components::bus::{ToEvents, channels};
use crate::components::tests::lab::{Lab, read};
use crate::components::write_slots::WriteSlots;

fn group() -> PodGroup {
    read(json!({"metadata": {"namespace": "team", "name": "g", "uid": "1"}, "spec": {"minMember": 1}}))
}

/// The same with another minimum.
fn group_of(minimum: i32) -> PodGroup {
    let mut group = group();
    group.spec.min_member = Some(minimum);
    group
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

/// A mutating policy of the cluster, or fields that the definition does not have.
#[tokio::test(start_paused = true)]
async fn a_group_that_the_api_server_changes_is_written_again_ever_more_rarely() {
    let (lab, mut writer) = writer().await;
    let (key, pods) = (GroupKey::new("team", "g"), GroupedPods::default());
    let mut changed = group();
    changed.spec.min_member = Some(2);
    lab.stores.pod_groups.insert(changed.clone());
    writer.desire(&key, &group(), &pods);
    let mut waits = Vec::new();
    for _ in 0..5 {
        tokio::time::sleep_until(writer.next_due().expect("it differs")).await;
        assert_eq!(writer.agenda.start(Instant::now()), Some(key.clone()));
        writer.group_seen(&changed);
        writer.group_written(&key, Ok(Some(Arc::new(changed.clone()))));
        waits.push(writer.next_due().expect("it differs") - Instant::now());
    }
    assert_eq!(waits, [50, 200, 400, 800, 1_600].map(Duration::from_millis));

    writer.desire(&key, &group(), &pods);
    assert_eq!(
        writer.next_due(),
        Some(Instant::now() + WRITE_AFTER),
        "what pods or owners change does not wait"
    );
    tokio::time::sleep(WRITE_AFTER).await;
    assert_eq!(writer.agenda.start(Instant::now()), Some(key.clone()));
    lab.stores.pod_groups.insert(group());
    writer.group_written(&key, Ok(Some(Arc::new(group()))));
    assert_eq!(writer.next_due(), None);
    writer.desire(&key, &changed, &pods);
    assert_eq!(writer.agenda.start(Instant::now() + WRITE_AFTER), Some(key.clone()));
    writer.group_written(&key, Ok(Some(Arc::new(group()))));
    assert_eq!(
        writer.next_due(),
        Some(Instant::now() + RETRY.first),
        "a write that had its effect counts as the first one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_group_that_becomes_non_preemptible_after_its_pods_were_bound_is_left_as_it_is() {
    let lab = Lab::start(Settings::default(), &["team"]).await;
    let (bus, mut inboxes) = channels(1);
    let mut writer = PodGroupWriter::new(lab.context.clone(), Arc::clone(&lab.stores), bus);
    lab.stores.pod_groups.insert(group());
    let (key, mut pods) = (GroupKey::new("team", "g"), GroupedPods::default());
    let pod = |node: Option<&str>| -> Pod {
        read(json!({
            "metadata": {"namespace": "team", "name": "a", "uid": "a"},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Pending"},
        }))
    };
    pods.record(&pod(None));
    pods.assign(&pod(None), key.clone(), None);
    let mut desired = group();
    desired.spec.preemptibility = Some("non-preemptible".to_owned());
    writer.desire(&key, &desired, &pods);
    pods.record(&pod(Some("n1")));

    let mut slots = WriteSlots::new(&lab.context.background);
    let slot = slots.due(writer.next_due()).await;
    writer.write_next(slot, &pods);
    assert_eq!(writer.writes.len(), 0, "nothing is left to write");
    assert_eq!(writer.next_due(), None);
    let Ok(ToEvents::SeenByAll(note)) = inboxes.events.try_recv() else {
        panic!("nobody is told");
    };
    assert_eq!(note.reason, reason::CHANGE_IGNORED);
    writer.group_seen(&group());
    assert_eq!(writer.next_due(), None, "it is not wanted any more");
    assert!(inboxes.events.try_recv().is_err());
}

/// Another controller that sets what we write to its own value, each time a moment later.
#[tokio::test(start_paused = true)]
async fn a_group_that_others_change_back_is_written_again_ever_more_rarely() {
    let (lab, mut writer) = writer().await;
    let (key, pods) = (GroupKey::new("team", "g"), GroupedPods::default());
    let show = |writer: &mut PodGroupWriter, group: PodGroup| {
        lab.stores.pod_groups.insert(group.clone());
        writer.group_seen(&group);
    };
    show(&mut writer, group_of(1));
    writer.desire(&key, &group_of(1), &pods);
    assert_eq!(writer.next_due(), None);
    let mut waits = Vec::new();
    for _ in 0..13 {
        show(&mut writer, group_of(2));
        let due = writer.next_due().expect("it differs");
        waits.push(due - Instant::now());
        // Its status changes meanwhile.
        show(&mut writer, group_of(2));
        assert_eq!(writer.next_due(), Some(due));
        tokio::time::sleep_until(due).await;
        assert_eq!(writer.agenda.start(Instant::now()), Some(key.clone()));
        writer.group_written(&key, Ok(Some(Arc::new(group_of(1)))));
        show(&mut writer, group_of(1));
        assert_eq!(writer.next_due(), None);
    }
    let doubled = [
        50, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000, 60_000,
    ];
    assert_eq!(waits, doubled.map(Duration::from_millis));

    tokio::time::sleep(CALM).await;
    show(&mut writer, group_of(2));
    let at_once = Instant::now() + WRITE_AFTER;
    assert_eq!(writer.next_due(), Some(at_once), "after a calm time");
}

/// As a mutating policy of the cluster may do.
#[tokio::test(start_paused = true)]
async fn minimums_that_the_api_server_changes_are_sent_to_the_scheduler_as_it_has_them() {
    let (lab, mut writer) = writer().await;
    let (key, pods) = (GroupKey::new("team", "g"), GroupedPods::default());
    let desire = |writer: &mut PodGroupWriter, minimum: i32| {
        let sent = writer.desire(&key, &group_of(minimum), &pods);
        sent.spec.min_member
    };
    let begin = |writer: &mut PodGroupWriter| {
        assert_eq!(writer.agenda.start(Instant::now() + RETRY.longest), Some(key.clone()));
        drop(writer.write(&key, &pods).expect("it differs"));
    };
    let answer = |writer: &mut PodGroupWriter, minimum: i32| {
        let told = writer.group_written(&key, Ok(Some(Arc::new(group_of(minimum)))));
        told.and_then(|group| group.spec.min_member)
    };
    lab.stores.pod_groups.insert(group_of(1));
    assert_eq!(desire(&mut writer, 8), Some(8), "until it is written");
    begin(&mut writer);
    assert_eq!(answer(&mut writer, 4), Some(4));
    assert_eq!(desire(&mut writer, 8), Some(4), "for the next pod, too");
    begin(&mut writer);
    assert_eq!(answer(&mut writer, 8), Some(8), "it takes them now");

    assert_eq!(desire(&mut writer, 16), Some(16));
    begin(&mut writer);
    assert_eq!(desire(&mut writer, 32), Some(32));
    assert_eq!(answer(&mut writer, 16), None, "others were computed during the write");
    begin(&mut writer);
    assert_eq!(answer(&mut writer, 32), None);
}
