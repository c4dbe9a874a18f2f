//! Events about a GPU group: what counts as a change, from when waiting times count, and what is forgotten at the end.

use super::*;

const LABELS: [(&str, &str); 1] = [("runai-gpu-group", "g")];

/// The only user of most tests.
fn a() -> Pod {
    user("a", &json!(BTreeMap::from(LABELS)), "Running")
}

/// The reservation pod of `g`, at a version.
fn at_version(version: &str, device: Option<&str>) -> Pod {
    let mut pod = reservation("g", device);
    pod.metadata.resource_version = Some(version.to_owned());
    pod
}

/// A reservation pod that has failed, with the device that it reported before.
fn failed(device: Option<&str>) -> Pod {
    let mut pod = reservation("g", device);
    pod.status = serde_json::from_value(json!({"phase": "Failed", "reason": "Evicted"})).unwrap();
    pod
}

/// A reserved group with the user `a`.
fn used() -> World {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    world.see(&a());
    assert!(world.in_the_end().is_empty());
    world
}

#[test]
fn an_unchanged_reservation_pod_causes_no_command() {
    let mut world = World::new();
    let now = world.now;
    assert_eq!(world.groups.pod(&at_version("4", Some("GPU-1")), now), [id("g")]);
    assert_eq!(world.groups.pod(&at_version("4", Some("GPU-1")), now), []);
    assert_eq!(
        world.groups.pod(&at_version("5", Some("GPU-1")), now),
        [],
        "only the version is new"
    );
    assert_eq!(world.groups.pod(&at_version("6", Some("GPU-2")), now), [id("g")]);
    assert_eq!(world.groups.pod(&a(), now), [id("g")]);
    assert_eq!(world.groups.pod(&a(), now), []);
}

#[test]
fn an_older_view_of_a_reservation_pod_changes_nothing() {
    let mut world = World::new();
    world.see(&at_version("5", Some("GPU-1")));
    world.groups.pod(&at_version("4", None), world.now);
    let mut asks = world.ask("a", "g");
    world.at_once();
    assert_eq!(asks.try_recv(), Ok(Ok("GPU-1".to_owned())));
}

#[test]
fn the_deletion_of_a_former_reservation_pod_does_not_affect_the_new_one() {
    let mut world = used();
    let mut next = reservation("g", Some("GPU-1"));
    next.metadata.uid = Some("next".to_owned());
    world.see(&next);
    world.groups.pod_gone(&reservation("g", None), world.now);
    let mut asks = world.ask("b", "g");
    assert!(world.at_once().is_empty());
    assert_eq!(asks.try_recv(), Ok(Ok("GPU-1".to_owned())));
}

#[test]
fn a_pod_with_both_forms_of_label_for_a_group_is_one_user_of_it() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    let labels = json!({"runai-gpu-group": "g", "runai-gpu-group/g": "g"});
    let pod = user("a", &labels, "Running");
    assert_eq!(world.groups.pod(&pod, world.now), [id("g")]);
    assert!(world.in_the_end().is_empty());
    world.groups.pod_gone(&pod, world.now);
    assert!(world.at_once().is_empty());
    assert!(is_removal(&world.after(IDLE)));
}

#[test]
fn a_second_bind_does_not_make_a_second_reservation_while_the_first_is_on_its_way() {
    let mut world = World::new();
    let _first = world.ask("a", "g");
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    let mut second = world.ask("b", "g");
    assert!(world.at_once().is_empty());
    world.see(&reservation("g", Some("GPU-1")));
    world.made(Ok(&reservation("g", Some("GPU-1"))));
    world.at_once();
    assert_eq!(second.try_recv(), Ok(Ok("GPU-1".to_owned())));
}

#[test]
fn a_reservation_pod_tolerates_what_the_pod_tolerates_that_it_is_made_for() {
    let mut world = World::new();
    let toleration = Toleration {
        key: Some("gpu".to_owned()),
        ..Toleration::default()
    };
    let (answer, _device) = oneshot::channel();
    let user = User {
        namespace: "team".to_owned(),
        name: "a".to_owned(),
        share: half(),
    };
    world.groups.ask(
        &id("g"),
        ("a".to_owned(), user),
        vec![toleration.clone()],
        answer,
        world.now,
    );
    let commands = world.at_once();
    assert!(matches!(&commands[..], [Command::Make { tolerations, .. }] if *tolerations == [toleration]));
}

#[test]
fn a_refused_reservation_pod_fails_the_waiting_binds() {
    let mut world = World::new();
    let mut waits = world.ask("a", "g");
    world.at_once();
    world.made(Err(NoDevice::passing("forbidden")));
    assert_eq!(waits.try_recv(), Ok(Err(NoDevice::passing("forbidden"))));
    world.groups.close(&reference("a"), &[id("g")], false, world.now);
    assert!(world.in_the_end().is_empty(), "there is nothing to delete");
    assert!(world.groups.groups.is_empty(), "the group is forgotten");
}

#[test]
fn a_recorded_user_gets_the_device_also_if_the_watch_showed_it_first() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    let mut asks = world.ask("a", "g");
    let commands = world.due();
    let [Command::Record { add, .. }] = &commands[..] else {
        panic!("{commands:?}");
    };
    let mut written = reservation("g", Some("GPU-1"));
    written
        .annotations_mut()
        .extend(add.iter().map(|(uid, user)| users::annotation(uid, user)));
    world.see(&written);
    assert!(world.due().is_empty(), "the answer is still out");
    world.recorded(Ok(&written));
    assert!(world.due().is_empty());
    assert_eq!(asks.try_recv(), Ok(Ok("GPU-1".to_owned())));
}

#[test]
fn removing_a_user_from_a_reservation_pod_is_retried() {
    let mut world = used();
    let _asks = world.ask("b", "g");
    world.at_once();
    world.groups.close(&reference("b"), &[id("g")], false, world.now);
    assert!(matches!(&world.due()[..], [Command::Record { gone, .. }] if gone == &["b"]));
    world.recorded(Err("conflict".to_owned()));
    assert!(world.due().is_empty(), "not at once");
    world.now += LOST;
    assert!(matches!(&world.due()[..], [Command::Record { gone, .. }] if gone == &["b"]));
}

#[test]
fn a_user_that_the_watch_shows_bound_stays_recorded_after_a_failed_bind() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    let _asks = world.ask("a", "g");
    world.at_once();
    world.see(&a());
    world.groups.close(&reference("a"), &[id("g")], false, world.now);
    world.at_once();
    let added = ("g".to_owned(), vec!["a".to_owned()], Vec::new());
    assert_eq!(world.written, [added], "it is not taken off");
}

#[test]
fn a_pod_whose_bind_failed_is_no_user_despite_its_labels() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    world.groups.open(&"a".into(), &[id("g")]);
    world.groups.close(&reference("a"), &[id("g")], false, world.now);
    let mut unbound = a();
    unbound.spec.as_mut().unwrap().node_name = None;
    world.see(&unbound);
    assert!(world.at_once().is_empty());
    assert!(is_removal(&world.after(IDLE)));
}

#[test]
fn the_first_user_of_a_gpu_has_opened_it() {
    let mut world = World::new();
    let opened = |world: &World| world.groups.is_only_user(&reference("a"), &[id("g")]);
    assert!(!opened(&world), "nobody uses it");
    world.see(&a());
    assert!(opened(&world));
    assert!(!world.groups.is_only_user(&reference("b"), &[id("g")]), "another has");
    world.see(&user("b", &json!(BTreeMap::from(LABELS)), "Running"));
    assert!(!opened(&world), "there are two");
}

#[test]
fn a_change_of_a_gpu_group_resets_the_delay_of_its_next_command() {
    // The API server sees a user that the watches do not, so that the reservation pod stays.
    let refused = |world: &mut World| {
        let mut seconds = 0;
        while !is_removal(&world.after(SECOND)) {
            seconds += 1;
            assert!(seconds < 400, "it is asked about again");
        }
        world.given_up();
        seconds
    };
    let weary = || {
        let mut world = World::new();
        world.see(&reservation("g", Some("GPU-1")));
        for _ in 0..8 {
            refused(&mut world);
        }
        world
    };
    assert!(refused(&mut weary()) > 200, "without news");
    let mut changed = weary();
    changed.see(&a());
    changed.groups.pod_gone(&a(), changed.now);
    refused(&mut changed);
    assert!(refused(&mut changed) < 10, "a pod has come and gone");
    let mut reported = weary();
    reported.see(&reservation("g", Some("GPU-2")));
    refused(&mut reported);
    assert!(refused(&mut reported) < 10, "the device is another");
    let mut shown = weary();
    shown.see(&a());
    shown.at_once();
    shown.groups.groups.get_mut(&id("g")).unwrap().without_effect = 8;
    shown.groups.pod_gone(&a(), shown.now);
    refused(&mut shown);
    assert!(refused(&mut shown) < 10, "a pod has gone");
}

#[test]
fn each_bind_waits_for_a_device_as_long_as_the_first() {
    let mut world = World::new();
    for _ in 0..2 {
        let mut waits = world.ask("a", "g");
        assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
        world.made(Ok(&reservation("g", None)));
        assert!(world.after(Duration::from_secs(39)).is_empty());
        assert!(waits.try_recv().is_err(), "it may still come");
        assert!(is_removal(&world.after(SECOND)), "after 40 seconds, not later");
        assert!(waits.try_recv().unwrap().is_err());
        world.groups.pod_gone(&reservation("g", None), world.now);
        world.given_up();
        world.after(Duration::from_secs(10));
    }
}

#[test]
fn a_reservation_pod_with_another_device_than_its_users_have_is_not_followed_by_a_third() {
    let mut world = used();
    let mut next = reservation("g", Some("GPU-2"));
    next.metadata.uid = Some("next".to_owned());
    world.see(&next);
    assert!(matches!(
        &world.at_once()[..],
        [Command::Remove { unless_used: false, .. }]
    ));
    world.groups.pod_gone(&next, world.now);
    world.given_up();
    let commands = world.in_the_end();
    assert!(matches!(&commands[..], [Command::Evict { users, .. }] if users == &[reference("a")]));
}

#[test]
fn a_reservation_pod_whose_users_have_left_is_kept_for_the_next_user() {
    let mut world = lost();
    world.groups.pod_gone(&a(), world.now);
    world.made(Ok(&reservation("g", None)));
    assert!(world.at_once().is_empty());
    world.groups.open(&"b".into(), &[id("g")]);
    world.groups.evaluate_all(world.now + Duration::from_secs(60));
    assert!(world.in_the_end().is_empty(), "a bind is open");
}

#[test]
fn a_replacement_of_a_reservation_pod_without_a_device_is_deleted_with_its_users() {
    let mut world = lost();
    world.made(Ok(&reservation("g", None)));
    assert!(world.after(Duration::from_secs(39)).is_empty());
    let late = world.after(SECOND);
    assert!(
        matches!(&late[..], [Command::Remove { unless_used: false, .. }]),
        "{late:?}"
    );
    world.groups.pod_gone(&reservation("g", None), world.now);
    world.given_up();
    let commands = world.in_the_end();
    assert!(matches!(&commands[..], [Command::Evict { users, .. }] if users == &[reference("a")]));
}

#[test]
fn a_failed_replacement_of_a_reservation_pod_is_deleted_before_its_users() {
    let mut world = lost();
    world.made(Ok(&failed(None)));
    assert!(world.at_once().is_empty(), "not at the first look");
    assert!(world.groups.next().is_some_and(|next| next == world.now + LOST));
    let commands = world.after(LOST);
    assert!(
        matches!(&commands[..], [Command::Remove { unless_used: false, .. }]),
        "{commands:?}"
    );
}

#[test]
fn a_second_loss_of_a_reservation_pod_has_the_same_grace_period() {
    let mut world = lost();
    world.made(Ok(&reservation("g", Some("GPU-1"))));
    world.see(&reservation("g", Some("GPU-1")));
    assert!(world.in_the_end().is_empty());
    world.groups.pod_gone(&reservation("g", None), world.now);
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    world.made(Err(NoDevice::passing("forbidden")));
    assert!(world.at_once().is_empty());
    assert!(matches!(&world.after(LOST)[..], [Command::Evict { .. }]));
}

#[test]
fn users_are_recorded_on_the_working_reservation_pod() {
    let mut world = World::new();
    let mut ended = failed(Some("GPU-1"));
    (ended.metadata.name, ended.metadata.uid) = (Some("first".to_owned()), Some("first".to_owned()));
    world.see(&ended);
    world.see(&reservation("g", Some("GPU-1")));
    let _asks = world.ask("a", "g");
    let commands = world.due();
    assert!(
        matches!(&commands[..], [Command::Record { pod: (name, _), .. }] if name == "r-g"),
        "{commands:?}"
    );
}

/// Its last user has ended while another process led the node's pool.
#[test]
fn the_gpus_of_a_node_that_comes_from_another_node_pool_are_given_back() {
    let mut world = used();
    world.term = None;
    world.groups.pod_gone(&a(), world.now);
    assert!(world.after(IDLE).is_empty());
    world.term = Some(1);
    assert!(world.after(IDLE).is_empty(), "nothing shows that the node has moved");
    world.groups.node("another", world.term, world.now);
    assert!(world.after(IDLE).is_empty());
    world.groups.node(&id("g").node, world.term, world.now);
    assert!(world.at_once().is_empty());
    assert!(is_removal(&world.after(IDLE)));
}

#[test]
fn a_gpu_stays_reserved_for_a_moment_after_its_last_user() {
    let mut world = used();
    world.groups.pod_gone(&a(), world.now);
    assert!(world.at_once().is_empty());
    assert!(world.groups.next().is_some_and(|next| next == world.now + IDLE));
    let _asks = world.ask("b", "g");
    assert!(world.after(IDLE / 2).is_empty());
    world.groups.close(&reference("b"), &[id("g")], false, world.now);
    assert!(world.at_once().is_empty());
    assert!(world.after(IDLE / 2).is_empty(), "the time counts from the last use");
    assert!(is_removal(&world.after(IDLE / 2)));
}

#[test]
fn in_another_term_interrupted_work_is_started_again() {
    let mut world = World::new();
    let mut first = world.ask("a", "g");
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    let mut second = world.in_another_term("a");
    assert!(first.try_recv().unwrap().is_err(), "ordered in a former term");
    world.made(Err(NoDevice::passing("the term is over")));
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    assert!(second.try_recv().is_err(), "what failed was of the former term");
}

impl World {
    /// Another term begins, in which a bind asks for the device of `g`.
    fn in_another_term(&mut self, pod: &str) -> oneshot::Receiver<Result<String, NoDevice>> {
        self.term = Some(2);
        self.groups.evaluate_all(self.now);
        assert!(self.at_once().is_empty());
        self.ask(pod, "g")
    }
}

/// The two would write to one reservation pod, and the first to end would count as the end of the other.
#[test]
fn in_another_term_no_command_begins_before_the_one_that_runs_has_ended() {
    let mut world = World::new();
    let _first = world.ask("a", "g");
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    let mut second = world.in_another_term("b");
    assert!(world.after(SECOND).is_empty(), "the first has not ended");
    world.see(&reservation("g", Some("GPU-1")));
    assert!(world.at_once().is_empty(), "nor is its end known");
    world.made(Ok(&reservation("g", Some("GPU-1"))));
    world.at_once();
    assert_eq!(second.try_recv(), Ok(Ok("GPU-1".to_owned())), "what it made is used");

    let mut world = used();
    let _asks = world.ask("b", "g");
    assert!(matches!(&world.due()[..], [Command::Record { .. }]));
    let mut third = world.in_another_term("c");
    assert!(world.due().is_empty());
    world.recorded(Err("the term is over".to_owned()));
    let commands = world.due();
    assert!(
        matches!(&commands[..], [Command::Record { add, .. }] if add.contains_key("c")),
        "{commands:?}"
    );
    assert!(third.try_recv().is_err(), "it is not recorded yet");
}

#[test]
fn the_end_of_a_command_that_does_not_run_any_more_changes_nothing() {
    let mut world = World::new();
    let _asks = world.ask("a", "g");
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    let former = world.numbers[&id("g")];
    world.made(Err(NoDevice::passing("no answer")));
    let mut asks = world.ask("a", "g");
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    world.groups.given_up(&id("g"), former, world.now);
    world
        .groups
        .made(&id("g"), former, Err(NoDevice::passing("no answer")), world.now);
    assert!(world.after(SECOND).is_empty(), "the second still runs");
    assert!(asks.try_recv().is_err(), "nobody has answered it");
}

#[test]
fn a_new_term_removes_users_that_the_former_left_on_a_reservation_pod() {
    let mut world = used();
    let _asks = world.ask("b", "g");
    world.at_once();
    world
        .groups
        .pod_gone(&user("b", &json!(BTreeMap::from(LABELS)), "Running"), world.now);
    world.groups.close(&reference("b"), &[id("g")], true, world.now);
    world
        .groups
        .pod_gone(&user("b", &json!(BTreeMap::from(LABELS)), "Running"), world.now);
    let writes = world.written.len();
    world.at_once();
    assert_eq!(world.written.len(), writes, "that can wait");
    world.term = Some(2);
    world.groups.evaluate_all(world.now);
    world.at_once();
    assert_eq!(
        world.written.last(),
        Some(&("g".to_owned(), Vec::new(), vec!["b".to_owned()]))
    );
}

#[test]
fn deleted_pods_and_gpu_groups_are_forgotten() {
    let mut world = World::new();
    let mut plain = a();
    plain.metadata.annotations = None;
    world.see(&plain);
    world.groups.close(&reference("plain"), &[], true, world.now);
    assert!(world.groups.members.is_empty() && world.groups.arrived.is_empty());

    for seen in [true, false] {
        let _asks = world.ask("a", "g");
        world.at_once();
        world.made(Ok(&reservation("g", Some("GPU-1"))));
        world.see(&reservation("g", Some("GPU-1")));
        world.at_once();
        world.groups.close(&reference("a"), &[id("g")], true, world.now);
        if seen {
            world.see(&a());
            assert!(world.groups.arrived.is_empty(), "the watch shows it");
        }
        world.groups.pod_gone(&a(), world.now);
        assert!(world.at_once().is_empty());
        assert!(is_removal(&world.after(IDLE)));
        world.groups.pod_gone(&reservation("g", None), world.now);
        world.given_up();
        assert!(world.in_the_end().is_empty());
        let Groups {
            groups,
            members,
            arrived,
            ..
        } = &world.groups;
        assert!(groups.is_empty() && members.is_empty() && arrived.is_empty());
    }
}
