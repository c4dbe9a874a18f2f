//! GPU groups: created for the first bind, kept while there are users or open binds, removed after.

mod events;

use serde_json::{Value, json};

use super::*;

struct World {
    /// The term for commands.
    term: Option<u64>,
    groups: Groups,
    now: Instant,
    /// The reservation pods as last seen, by group.
    reservations: BTreeMap<String, Pod>,
    /// The number of the last command for each group.
    numbers: BTreeMap<GroupId, u64>,
    /// Users recorded on them and removed again, in order: group, added, removed.
    written: Vec<(String, Vec<String>, Vec<String>)>,
}

fn id(group: &str) -> GroupId {
    GroupId {
        node: "n1".into(),
        group: group.into(),
    }
}

fn object(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

fn reservation(group: &str, device: Option<&str>) -> Pod {
    let annotations = device.map(|device| json!({"run.ai/reserve_for_gpu_index": device}));
    object(json!({
        "metadata": {"namespace": "kai-resource-reservation", "name": format!("r-{group}"), "uid": format!("r-{group}"),
            "labels": {"app": "kai-resource-reservation", "runai-gpu-group": group}, "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [], "serviceAccountName": "kai-resource-reservation"}, "status": {"phase": "Running"},
    }))
}

fn user(name: &str, labels: &Value, phase: &str) -> Pod {
    object(json!({
        "metadata": {"namespace": "team", "name": name, "uid": name, "labels": labels, "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": phase},
    }))
}

/// The request of a pod of [`user`].
fn half() -> Share {
    Share::of([("gpu-fraction", "0.5")].into_iter())
}

fn reference(name: &str) -> PodRef {
    PodRef::new("team", name, name)
}

impl World {
    fn new() -> Self {
        Self {
            groups: Groups::new(Duration::from_secs(40), OwnPods::default()),
            now: Instant::now(),
            term: Some(1),
            reservations: BTreeMap::new(),
            numbers: BTreeMap::new(),
            written: Vec::new(),
        }
    }

    fn ask(&mut self, pod: &str, group: &str) -> oneshot::Receiver<Result<String, NoDevice>> {
        let (answer, device) = oneshot::channel();
        self.groups.open(&pod.into(), &[id(group)]);
        let user = User {
            namespace: "team".to_owned(),
            name: pod.to_owned(),
            share: half(),
        };
        let user = (pod.to_owned(), user);
        self.groups.ask(&id(group), user, Vec::new(), answer, self.now);
        device
    }

    fn see(&mut self, pod: &Pod) {
        if reservation::is_reservation_pod(pod, &OwnPods::default()) {
            self.reservations
                .insert(pod.labels()["runai-gpu-group"].clone(), pod.clone());
        }
        self.groups.pod(pod, self.now);
    }

    fn due(&mut self) -> Vec<Command> {
        let due = self.groups.due(self.now, |_| self.term);
        let commands = due.into_iter().map(|due| {
            self.numbers.insert(due.command.id().clone(), due.number);
            due.command
        });
        commands.collect()
    }

    /// The last command for `g` has created its reservation pod, or not.
    fn made(&mut self, made: Result<&Pod, NoDevice>) {
        self.groups.made(&id("g"), self.numbers[&id("g")], made, self.now);
    }

    /// The last command for `g` has recorded users, or not.
    fn recorded(&mut self, recorded: Result<&Pod, String>) {
        self.groups
            .recorded(&id("g"), self.numbers[&id("g")], recorded, self.now);
    }

    /// The last command for `g` has deleted or evicted what it could.
    fn given_up(&mut self) {
        self.groups.given_up(&id("g"), self.numbers[&id("g")], self.now);
    }

    /// The commands that are due, without those that record users, which are carried out at once.
    fn after(&mut self, time: Duration) -> Vec<Command> {
        self.now += time;
        let mut commands = Vec::new();
        loop {
            let (records, others): (Vec<_>, Vec<_>) = self
                .due()
                .into_iter()
                .partition(|command| matches!(command, Command::Record { .. }));
            commands.extend(others);
            if records.is_empty() {
                return commands;
            }
            records.into_iter().for_each(|command| self.write(command));
        }
    }

    fn write(&mut self, command: Command) {
        let Command::Record { id, add, gone, .. } = command else {
            unreachable!("only these are passed");
        };
        let pod = self.reservations.get_mut(&*id.group).expect("it is there");
        let annotations = pod.annotations_mut();
        annotations.extend(add.iter().map(|(uid, user)| users::annotation(uid, user)));
        gone.iter().for_each(|uid| drop(annotations.remove(&users::key(uid))));
        let pod = pod.clone();
        self.groups.recorded(&id, self.numbers[&id], Ok(&pod), self.now);
        self.written
            .push((id.group.to_string(), add.into_keys().collect(), gone));
    }

    /// A restarted process that sees the existing objects.
    fn restarted(&self, users: &[Pod]) -> Self {
        let mut world = Self::new();
        self.reservations.values().for_each(|pod| world.see(pod));
        users.iter().for_each(|pod| world.see(pod));
        world
    }

    fn at_once(&mut self) -> Vec<Command> {
        self.after(Duration::ZERO)
    }

    /// The commands of the next minutes.
    fn in_the_end(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        for _ in 0..100 {
            commands.extend(self.after(Duration::from_secs(1)));
        }
        commands
    }
}

fn is_removal(commands: &[Command]) -> bool {
    matches!(commands, [Command::Remove { unless_used: true, .. }])
}

#[test]
fn the_first_bind_creates_the_reservation_and_later_binds_wait_for_it() {
    let mut world = World::new();
    let (mut first, mut second) = (world.ask("a", "g"), world.ask("b", "g"));
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    assert!(world.at_once().is_empty(), "once");
    world.made(Ok(&reservation("g", None)));
    assert!(world.at_once().is_empty());
    assert!(first.try_recv().is_err(), "the device is not known yet");
    world.see(&reservation("g", Some("GPU-1")));
    world.at_once();
    assert_eq!(first.try_recv(), Ok(Ok("GPU-1".to_owned())));
    assert_eq!(second.try_recv(), Ok(Ok("GPU-1".to_owned())));
}

#[test]
fn a_bind_uses_an_existing_reservation_of_any_origin() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    let mut joins = world.ask("b", "g");
    assert!(world.at_once().is_empty());
    assert_eq!(joins.try_recv(), Ok(Ok("GPU-1".to_owned())));
}

#[test]
fn a_failed_reservation_fails_all_waiting_binds() {
    let mut world = World::new();
    let mut waits = world.ask("a", "g");
    world.at_once();
    world.made(Ok(&reservation("g", None)));
    let mut refused = reservation("g", None);
    refused.status = serde_json::from_value(json!({"phase": "Failed", "reason": "UnexpectedAdmissionError"})).unwrap();
    world.see(&refused);
    assert!(is_removal(&world.at_once()));
    let no_device = waits.try_recv().unwrap().unwrap_err();
    assert!(no_device.why.contains("UnexpectedAdmissionError"), "{no_device:?}");
    assert!(no_device.of_node);
}

#[test]
fn a_reservation_pod_that_reports_nothing_times_out() {
    let mut world = World::new();
    let mut waits = world.ask("a", "g");
    world.at_once();
    world.made(Ok(&reservation("g", None)));
    assert!(world.after(Duration::from_secs(39)).is_empty());
    assert!(is_removal(&world.after(Duration::from_secs(2))));
    assert!(waits.try_recv().unwrap().unwrap_err().of_node);
}

#[test]
fn a_pod_that_may_have_been_bound_and_was_not_uses_nothing() {
    // It is bound elsewhere then, or its bind fails for certain, or its bind request is deleted.
    let endings: [fn(&mut World); 3] = [
        |world| world.groups.close(&reference("a"), &[id("other")], true, world.now),
        |world| world.groups.close(&reference("a"), &[id("g")], false, world.now),
        |world| world.groups.not_bound(&"a".into(), &[], world.now),
    ];
    for ending in endings {
        let mut world = World::new();
        world.see(&reservation("g", Some("GPU-1")));
        let device = world.ask("a", "g");
        world.at_once();
        drop(device);
        world.groups.close(&reference("a"), &[id("g")], true, world.now);
        assert!(world.in_the_end().is_empty());
        ending(&mut world);
        let removals = world.in_the_end();
        let is_of_group = |command: &Command| matches!(command, Command::Remove { id: of, .. } if *of == id("g"));
        assert!(removals.iter().any(is_of_group), "{removals:?}");
    }
}

#[test]
fn a_pod_that_the_watch_showed_bound_before_its_bind_ended_stays_a_user() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    drop(world.ask("a", "g"));
    world.at_once();
    world.see(&user("a", &json!({"runai-gpu-group": "g"}), "Running"));
    world.groups.close(&reference("a"), &[id("g")], true, world.now);
    world.groups.shown_bound(&"a".into());
    // The end of another bind, and the deletion of the bind request.
    world.groups.close(&reference("a"), &[id("g")], false, world.now);
    world.groups.not_bound(&"a".into(), &[], world.now);
    assert!(world.in_the_end().is_empty());
}

/// As on a node that is gone.
#[test]
fn reservation_pods_that_are_deleted_at_once_are_not_created_without_end() {
    let mut world = World::new();
    for bind in 0..2 {
        let mut waits = world.ask("a", "g");
        for round in 0..3 {
            assert!(matches!(&world.at_once()[..], [Command::Make { .. }]), "{round}");
            let pod = reservation("g", None);
            world.made(Ok(&pod));
            world.see(&pod);
            assert!(world.at_once().is_empty());
            world.groups.pod_gone(&pod, world.now);
        }
        assert!(world.at_once().is_empty(), "{bind}");
        let why = "all 3 GPU reservation pods were deleted before they held a GPU";
        assert_eq!(waits.try_recv(), Ok(Err(NoDevice::of_node(why.to_owned()))));
    }
}

/// A bind for several groups ends with the first that fails.
#[test]
fn users_are_evicted_after_reservation_pods_vanished_though_no_bind_waits_any_more() {
    let mut world = World::new();
    world.see(&user("u", &json!({"runai-gpu-group": "g"}), "Running"));
    let waits = world.ask("a", "g");
    world.groups.close(&reference("a"), &[id("g")], false, world.now);
    drop(waits);
    for _ in 0..3 {
        assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
        let pod = reservation("g", None);
        world.made(Ok(&pod));
        world.see(&pod);
        world.groups.pod_gone(&pod, world.now);
    }
    let commands = world.in_the_end();
    assert!(matches!(&commands[..], [Command::Evict { .. }, ..]), "{commands:?}");
}

#[test]
fn a_reservation_is_kept_while_it_has_users_or_open_binds() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    world.groups.open(&"a".into(), &[id("g")]);
    assert!(world.in_the_end().is_empty(), "a bind is open");
    world.groups.close(&reference("a"), &[id("g")], true, world.now);
    assert!(
        world.in_the_end().is_empty(),
        "bound, though the watch has not shown it"
    );
    let mut unbound = user("a", &json!({"runai-gpu-group": "g"}), "Pending");
    unbound.spec.as_mut().unwrap().node_name = None;
    world.see(&unbound);
    assert!(world.in_the_end().is_empty(), "the watch is behind");
    world.see(&user("a", &json!({"runai-gpu-group": "g"}), "Running"));
    assert!(world.in_the_end().is_empty(), "in use");
    world.see(&user("a", &json!({"runai-gpu-group": "g"}), "Succeeded"));
    assert!(world.at_once().is_empty(), "not in the same moment");
    assert!(is_removal(&world.after(Duration::from_secs(1))));
}

#[test]
fn each_device_of_a_pod_with_several_is_given_back() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    world.see(&reservation("h", Some("GPU-2")));
    let labels = json!({"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"});
    world.see(&user("a", &labels, "Running"));
    assert!(world.in_the_end().is_empty());
    world.groups.pod_gone(&user("a", &labels, "Running"), world.now);
    assert_eq!(world.after(Duration::ZERO).len(), 0);
    assert_eq!(world.after(Duration::from_secs(1)).len(), 2);
}

#[test]
fn users_of_a_lost_device_are_evicted_after_a_second_check() {
    let mut world = World::new();
    world.see(&user("a", &json!({"runai-gpu-group": "g"}), "Running"));
    assert!(world.at_once().is_empty());
    assert!(world.after(Duration::from_secs(1)).is_empty());
    let commands = world.after(Duration::from_secs(2));
    assert!(matches!(&commands[..], [Command::Evict { users, .. }] if users == &[reference("a")]));
}

#[test]
fn a_replica_that_does_not_lead_writes_nothing() {
    let mut world = World::new();
    world.term = None;
    world.see(&reservation("g", Some("GPU-1")));
    let mut asks = world.ask("a", "h");
    assert!(world.in_the_end().is_empty());
    assert!(!asks.try_recv().unwrap().unwrap_err().of_node);
    world.term = Some(1);
    assert!(world.in_the_end().is_empty(), "nobody has told it that it leads");
    world.groups.evaluate_all(world.now);
    assert!(world.at_once().is_empty());
    assert!(is_removal(&world.after(IDLE)), "what is left over is found");
}

#[test]
fn gpu_group_labels_on_pods_without_shared_gpus_are_ignored() {
    let mut world = World::new();
    let mut plain = user("a", &json!({"runai-gpu-group": "g"}), "Running");
    plain.metadata.annotations = None;
    world.see(&plain);
    assert!(world.in_the_end().is_empty());
}

/// A group that is used, and whose reservation pod has just gone.
fn lost() -> World {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    world.see(&user("a", &json!({"runai-gpu-group": "g"}), "Running"));
    assert!(world.in_the_end().is_empty());
    world.groups.pod_gone(&reservation("g", None), world.now);
    assert!(matches!(&world.at_once()[..], [Command::Make { .. }]));
    world
}

#[test]
fn a_recreated_reservation_with_the_same_device_keeps_its_users() {
    let mut world = lost();
    world.made(Ok(&reservation("g", None)));
    assert!(world.after(Duration::from_secs(30)).is_empty(), "it may take its time");
    world.see(&reservation("g", Some("GPU-1")));
    assert!(world.in_the_end().is_empty());
}

#[test]
fn a_late_response_does_not_restore_a_deleted_reservation() {
    let evicts = |world: &mut World| {
        let commands = world.after(LOST);
        matches!(&commands[..], [Command::Evict { users, .. }] if users == &[reference("a")])
    };
    let mut world = lost();
    world.see(&reservation("g", None));
    world.groups.pod_gone(&reservation("g", None), world.now);
    world.made(Ok(&reservation("g", None)));
    assert!(world.at_once().is_empty(), "not at the first look");
    assert!(evicts(&mut world), "made, and gone before the answer came");

    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    world.see(&user("a", &json!({"runai-gpu-group": "g"}), "Running"));
    assert!(matches!(&world.due()[..], [Command::Record { .. }]));
    world.groups.pod_gone(&reservation("g", None), world.now);
    world.recorded(Ok(&reservation("g", Some("GPU-1"))));
    assert!(
        matches!(&world.at_once()[..], [Command::Make { .. }]),
        "gone while its users were written down"
    );
}

#[test]
fn a_recreated_reservation_with_another_device_is_deleted_and_users_are_evicted() {
    let mut world = lost();
    let mut joins = world.ask("b", "g");
    world.made(Ok(&reservation("g", Some("GPU-2"))));
    assert!(matches!(
        &world.at_once()[..],
        [Command::Remove { unless_used: false, .. }]
    ));
    assert!(joins.try_recv().unwrap().is_err());
    world.groups.pod_gone(&reservation("g", None), world.now);
    world.given_up();
    let commands = world.after(Duration::from_secs(5));
    assert!(commands.is_empty(), "not at the first look");
    let commands = world.after(Duration::from_secs(5));
    assert!(matches!(&commands[..], [Command::Evict { users, .. }] if users == &[reference("a")]));
}

#[test]
fn users_are_evicted_if_the_reservation_cannot_be_recreated() {
    let mut world = lost();
    world.made(Err(NoDevice::passing("forbidden")));
    assert!(world.at_once().is_empty());
    assert!(matches!(
        &world.after(Duration::from_secs(3))[..],
        [Command::Evict { .. }]
    ));
}

#[test]
fn a_pod_that_names_more_groups_than_there_can_be_devices_stays_where_it_was() {
    let mut world = World::new();
    world.see(&reservation("a", Some("GPU-1")));
    world.see(&user("p", &json!({"runai-gpu-group": "a"}), "Running"));
    let many: serde_json::Map<String, Value> = (0..5_000)
        .map(|number| (format!("runai-gpu-group/g{number}"), json!(format!("g{number}"))))
        .collect();
    let concerned = world.groups.pod(&user("p", &json!(many), "Running"), world.now);
    assert_eq!(concerned, [], "nothing is to be done for it");
    assert_eq!(world.groups.groups.len(), 1);
    assert!(world.groups.groups[&id("a")].users.contains_key("p"));
    world.see(&user("p", &json!(many), "Succeeded"));
    assert!(
        world.groups.groups[&id("a")].users.is_empty(),
        "it has ended all the same"
    );
}

/// The API server sees a user of the device that the watches do not count as one.
#[test]
fn a_refused_deletion_of_a_reservation_is_retried_with_backoff() {
    let mut world = World::new();
    let mut until_asked = |news: bool| {
        if news {
            world.see(&reservation("g", Some("GPU-1")));
        }
        let mut seconds = 0;
        while world.after(SECOND).is_empty() {
            seconds += 1;
            assert!(seconds < 400, "it is asked about again in the end");
        }
        world.given_up();
        seconds
    };
    let first = until_asked(true);
    let waits: Vec<u64> = (0..10).map(|_| until_asked(false)).collect();
    assert!(waits.is_sorted() && waits[0] >= first && waits[8] > 250, "{waits:?}");
    assert!(waits.iter().all(|seconds| *seconds <= 301), "{waits:?}");
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn users_are_recorded_on_the_reservation_pod_before_they_get_the_device() {
    let mut world = World::new();
    let mut first = world.ask("a", "g");
    let commands = world.at_once();
    let [Command::Make { users, .. }] = &commands[..] else {
        panic!("{commands:?}");
    };
    assert_eq!(
        users.keys().collect::<Vec<_>>(),
        ["a"],
        "the first is there from the start"
    );
    let mut made = reservation("g", Some("GPU-1"));
    made.annotations_mut()
        .extend(users.iter().map(|(uid, user)| users::annotation(uid, user)));
    world.see(&made);
    world.made(Ok(&made));
    world.at_once();
    assert_eq!(first.try_recv(), Ok(Ok("GPU-1".to_owned())));
    assert!(world.written.is_empty(), "nothing is written twice");
    let mut second = world.ask("b", "g");
    let commands = world.due();
    assert!(matches!(&commands[..], [Command::Record { .. }]));
    assert!(second.try_recv().is_err(), "not before it is written");
    commands.into_iter().for_each(|command| world.write(command));
    world.at_once();
    assert_eq!(second.try_recv(), Ok(Ok("GPU-1".to_owned())));
    assert_eq!(world.written, [("g".to_owned(), vec!["b".to_owned()], Vec::new())]);
}

#[test]
fn failed_binds_are_removed_from_the_record_at_once_and_deleted_pods_with_the_next_write() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    let _asks = (world.ask("a", "g"), world.ask("b", "g"));
    world.at_once();
    world.groups.close(&reference("a"), &[id("g")], true, world.now);
    world.groups.close(&reference("b"), &[id("g")], false, world.now);
    world.at_once();
    let all = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(world.written.last(), Some(&("g".to_owned(), all(&[]), all(&["b"]))));
    let _asks = world.ask("c", "g");
    world.at_once();
    world
        .groups
        .pod_gone(&user("a", &json!({"runai-gpu-group": "g"}), "Running"), world.now);
    let writes = world.written.len();
    world.at_once();
    assert_eq!(world.written.len(), writes, "that can wait");
    let _asks = world.ask("d", "g");
    world.at_once();
    assert_eq!(world.written.last(), Some(&("g".to_owned(), all(&["d"]), all(&["a"]))));
}

#[test]
fn a_bind_fails_if_its_pod_cannot_be_recorded() {
    let mut world = World::new();
    world.see(&reservation("g", Some("GPU-1")));
    let mut asks = world.ask("a", "g");
    assert!(matches!(&world.due()[..], [Command::Record { .. }]));
    world.recorded(Err("conflict".to_owned()));
    assert_eq!(asks.try_recv(), Ok(Err(NoDevice::passing("conflict"))));
}

#[test]
fn a_new_process_reads_the_device_from_a_failed_reservation_pod() {
    let labels = json!({"runai-gpu-group": "g"});
    let mut before = World::new();
    let mut leaving = reservation("g", Some("GPU-1"));
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    before.see(&leaving);
    let mut world = before.restarted(&[user("a", &labels, "Running")]);
    assert!(world.at_once().is_empty());
    world.groups.pod_gone(&leaving, world.now);
    assert!(
        matches!(&world.at_once()[..], [Command::Make { .. }]),
        "for the same device"
    );
}
