//! The joins: which events a change of one object produces for others, and which changes produce none.

mod bounds;
mod drafts;
mod history;
mod room;

use serde::de::DeserializeOwned;

use super::*;
use crate::engine::input::{PodInput, PodStatus};

/// A mirror, and short ways to apply changes in YAML.
struct World(Mirror);

impl World {
    fn new(settings: Settings) -> Self {
        Self(Mirror::new(settings))
    }

    fn apply(&mut self, object: PackedObject) -> Vec<Event> {
        self.0.apply(&PackedChange::Applied(object)).events.into_vec()
    }

    fn delete(&mut self, object: PackedObject) -> Vec<Event> {
        self.0.apply(&PackedChange::Deleted(object)).events.into_vec()
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

fn read<K: DeserializeOwned>(yaml: &str) -> Arc<K> {
    Arc::new(serde_yaml_ng::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}")))
}

fn pod(uid: &str, metadata: &str) -> PackedObject {
    let spec = "{schedulerName: kai-scheduler, containers: []}";
    PackedObject::Pod(read(&format!(
        "{{metadata: {{name: p, namespace: ns, uid: {uid}, {metadata}}}, spec: {spec}, status: {{phase: Pending}}}}"
    )))
}

fn node(name: &str, rest: &str) -> PackedObject {
    PackedObject::Node(read(&format!("{{metadata: {{name: {name}{rest}}}}}")))
}

fn group(metadata: &str, spec: &str) -> PackedObject {
    PackedObject::PodGroup(read(&format!(
        "{{metadata: {{name: g, namespace: ns, {metadata}}}, spec: {{{spec}}}}}"
    )))
}

fn class(value: i32) -> PackedObject {
    PackedObject::PriorityClass(read(&format!("{{metadata: {{name: train}}, value: {value}}}")))
}

fn bind_request(owner: &str, node: &str) -> PackedObject {
    let owners = if owner.is_empty() {
        String::new()
    } else {
        format!(", ownerReferences: [{{apiVersion: v1, kind: Pod, name: p, uid: {owner}}}]")
    };
    PackedObject::BindRequest(read(&format!(
        "{{metadata: {{name: p, namespace: ns{owners}}}, spec: {{podName: p, selectedNode: {node}}}}}"
    )))
}

fn grouping(uid: &str, group: &str, sub_group: Option<&str>) -> PackedChange {
    PackedChange::Grouped(GroupDraft {
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
        uid: uid.to_owned(),
        group: read(&format!(
            "{{metadata: {{name: {group}, namespace: ns}}, spec: {{queue: drafted}}}}"
        )),
        sub_group: sub_group.map(ToOwned::to_owned),
    })
}

/// Events in a word each: what, of whom, and what matters in these tests.
fn words(events: &[Event]) -> Vec<String> {
    let pod = |pod: &PodInput| {
        let place = pod.group.as_ref().map_or("-", |group| group.name());
        format!(
            "pod {} {:?} in {place} on {}",
            pod.pod.uid,
            pod.status,
            pod.node.as_deref().unwrap_or("-")
        )
    };
    let word = |event: &Event| match event {
        Event::Node(node) => format!("node {}", node.name),
        Event::NodeGone(name) => format!("node {name} gone"),
        Event::Queue(queue) => format!("queue {}", queue.name),
        Event::QueueGone(name) => format!("queue {name} gone"),
        Event::Group(group) => format!("group {} in {} at {}", group.key.name(), group.queue, group.priority),
        Event::GroupGone(key) => format!("group {} gone", key.name()),
        Event::Pod(input) => pod(input),
        Event::PodGone(uid) => format!("pod {uid} gone"),
        Event::Topology(topology) => format!("topology {}", topology.name),
        Event::TopologyGone(name) => format!("topology {name} gone"),
        Event::Budget(budget) => format!("budget {}/{}", budget.namespace, budget.name),
        Event::BudgetGone { namespace, name } => format!("budget {namespace}/{name} gone"),
        Event::Volume(volume) => format!("volume {}", volume.name),
        Event::VolumeGone(name) => format!("volume {name} gone"),
        Event::Capacity(capacity) => format!("capacity {} of {}", capacity.key, capacity.free),
        Event::CapacityGone(key) => format!("capacity {key} gone"),
        Event::Attachment(attachment) => format!("attachment {} to {}", attachment.key, attachment.node),
        Event::AttachmentGone(key) => format!("attachment {key} gone"),
        Event::Pool(pool) => format!("pool {} of {}", pool.pool, pool.driver),
        Event::PoolGone(driver, pool) => format!("pool {pool} of {driver} gone"),
        Event::Claim(claim) => format!("claim {}", claim.key),
        Event::ClaimGone(key) => format!("claim {key} gone"),
        Event::Unbound { .. } | Event::SharingFailed { .. } | Event::Unevicted { .. } | Event::Usage(_) => {
            panic!("not the mirror's: {event:?}")
        }
    };
    events.iter().map(word).collect()
}

#[track_caller]
fn check(events: &[Event], expected: &[&str]) {
    assert_eq!(words(events), expected);
}

#[test]
fn pod_groups_are_updated_when_their_queue_changes_its_allowed_namespaces() {
    let queue = |name: &str, parent: &str, allowed: &str| {
        let annotations = match allowed {
            "" => String::new(),
            allowed => format!(", annotations: {{unikai.dev/allowed-namespaces: '{allowed}'}}"),
        };
        PackedObject::Queue(read(&format!(
            "{{metadata: {{name: {name}{annotations}}}, spec: {{parentQueue: {parent}}}}}"
        )))
    };
    let refused = |events: Vec<Event>| -> Vec<Option<String>> {
        let groups = events.into_iter().filter_map(|event| match event {
            Event::Group(group) => Some(group.refused.map(|why| why.to_string())),
            _ => None,
        });
        groups.collect()
    };
    let mut world = World::default();
    assert_eq!(refused(world.apply(group("", "queue: q"))), [None]);
    assert_eq!(refused(world.apply(queue("q", "top", ""))), []);
    let closed = "Queue q is not open to namespace ns: the annotation unikai.dev/allowed-namespaces of queue top above it does not name it";
    assert_eq!(
        refused(world.apply(queue("top", "''", "other"))),
        [Some(closed.to_owned())]
    );
    assert_eq!(refused(world.apply(queue("unrelated", "''", "other"))), []);
    assert_eq!(refused(world.apply(queue("top", "''", "n*"))), [None]);
    assert_eq!(refused(world.apply(queue("q", "top", "x"))).len(), 1);
    assert_eq!(refused(world.delete(queue("q", "top", "x"))), [None]);
}

#[test]
fn pod_groups_are_updated_when_a_hold_changes() {
    let queue = |name: &str, parent: &str, hold: &str| {
        PackedObject::Queue(read(&format!(
            "{{metadata: {{name: {name}, annotations: {{{hold}}}}}, spec: {{parentQueue: {parent}}}}}"
        )))
    };
    let held = |events: Vec<Event>| -> Vec<String> {
        let groups = events.into_iter().filter_map(|event| match event {
            Event::Group(group) => Some(group.held.map_or_else(String::new, |hold| {
                let text = |name: Option<Name>| name.map_or_else(|| "-".to_owned(), |name| name.to_string());
                format!("{} {}", text(hold.queue), text(hold.reason))
            })),
            _ => None,
        });
        groups.collect()
    };
    let mut world = World::default();
    let hold = "unikai.dev/hold: 'for data'";
    let own = format!("annotations: {{{hold}}}");
    assert_eq!(held(world.apply(group("", "queue: q"))), [""]);
    assert_eq!(held(world.apply(group(&own, "queue: q"))), ["- for data"]);
    assert_eq!(
        held(world.apply(group("annotations: {unikai.dev/hold: 'false'}", "queue: q"))),
        [""]
    );
    assert_eq!(held(world.apply(queue("q", "top", ""))).len(), 0);
    assert_eq!(
        held(world.apply(queue("top", "''", "unikai.dev/hold: 'true'"))),
        ["top -"]
    );
    assert_eq!(held(world.apply(queue("other", "''", hold))).len(), 0);
    assert_eq!(held(world.apply(queue("q", "top", hold))), ["q for data"]);
    assert_eq!(held(world.apply(group(&own, "queue: q"))), ["- for data"]);
    assert_eq!(held(world.apply(group("", "queue: q"))), ["q for data"]);
    assert_eq!(held(world.apply(queue("q", "other", ""))), ["other for data"]);
    assert_eq!(held(world.delete(queue("other", "''", hold))), [""]);
    assert_eq!(held(world.delete(queue("top", "''", ""))).len(), 0);
}

#[test]
fn a_change_that_scheduling_does_not_see_makes_no_event() {
    let mut world = World::default();
    check(&world.apply(pod("u", "")), &["pod u Pending in - on -"]);
    check(&world.apply(pod("u", "annotations: {note: hello}")), &[]);
    check(
        &world.apply(pod("u", "annotations: {pod-group-name: g}")),
        &["pod u Pending in g on -"],
    );
    check(&world.apply(node("n", "")), &["node n"]);
    check(&world.apply(node("n", ", annotations: {heartbeat: now}")), &[]);
    check(&world.apply(group("", "queue: q")), &["group g in q at 50"]);
    check(&world.apply(group("annotations: {note: hello}", "queue: q")), &[]);
    let queue = |status: &str| {
        PackedObject::Queue(read(&format!(
            "{{metadata: {{name: q}}, spec: {{}}, status: {{{status}}}}}"
        )))
    };
    check(&world.apply(queue("")), &["queue q"]);
    check(&world.apply(queue("allocated: {cpu: 1}")), &[]);
    check(&world.delete(queue("")), &["queue q gone"]);
}

#[test]
fn a_failed_or_recreated_pod_is_removed() {
    let mut world = World::default();
    world.apply(pod("u1", ""));
    check(
        &world.apply(pod("u2", "")),
        &["pod u1 gone", "pod u2 Pending in - on -"],
    );
    check(&world.delete(pod("u1", "")), &[]);
    let failed = PackedObject::Pod(read(
        "{metadata: {name: p, namespace: ns, uid: u2}, status: {phase: Failed}}",
    ));
    check(&world.apply(failed.clone()), &["pod u2 gone"]);
    check(&world.apply(failed), &[]);
}

#[test]
fn a_group_follows_its_priority_class() {
    let mut world = World::default();
    check(
        &world.apply(group("", "queue: q, priorityClassName: train")),
        &["group g in q at 50"],
    );
    check(&world.apply(class(70)), &["group g in q at 70"]);
    check(&world.apply(class(70)), &[]);
    check(&world.delete(class(70)), &["group g in q at 50"]);
}

#[test]
fn a_group_follows_the_aliases_of_its_topology() {
    let mut world = World::default();
    world.apply(group(
        "",
        "queue: q, topologyConstraint: {topology: net, requiredTopologyLevel: rack}",
    ));
    let topology = |label: &str| {
        PackedObject::Topology(read(&format!(
            "{{metadata: {{name: net}}, spec: {{levels: [{{nodeLabel: {label}, alias: rack}}]}}}}"
        )))
    };
    check(&world.apply(topology("a")), &["topology net", "group g in q at 50"]);
    check(&world.apply(topology("a")), &[]);
    check(
        &world.delete(topology("a")),
        &["topology net gone", "group g in q at 50"],
    );
}

#[test]
fn a_pod_follows_its_bind_request_while_the_node_is_known() {
    let mut world = World::default();
    world.apply(pod("u", ""));
    check(&world.apply(bind_request("u", "n")), &[]);
    check(&world.apply(node("n", "")), &["node n", "pod u Binding in - on n"]);
    check(&world.apply(node("n", ", labels: {a: b}")), &["node n"]);
    check(
        &world.delete(node("n", "")),
        &["pod u Pending in - on -", "node n gone"],
    );
    check(&world.apply(node("n", "")), &["node n", "pod u Binding in - on n"]);
    check(&world.delete(bind_request("u", "n")), &["pod u Pending in - on -"]);
}

#[test]
fn a_pod_of_two_bind_requests_follows_the_one_that_is_left() {
    let mut world = World::default();
    world.apply(pod("u", ""));
    let request = |name: &str, node: &str| {
        PackedObject::BindRequest(read(&format!(
            "{{metadata: {{name: {name}, namespace: ns}}, spec: {{podName: p, selectedNode: {node}}}}}"
        )))
    };
    world.apply(request("a", "n"));
    world.apply(request("b", "n"));
    world.delete(request("b", "n"));
    check(&world.apply(node("n", "")), &["node n", "pod u Binding in - on n"]);
    check(&world.apply(request("a", "m")), &["pod u Pending in - on -"]);
    check(&world.delete(node("n", "")), &["node n gone"]);
    check(&world.apply(node("m", "")), &["node m", "pod u Binding in - on m"]);
}

#[test]
fn a_bind_request_of_a_former_pod_or_one_that_failed_does_not_count() {
    let mut world = World::default();
    world.apply(node("n", ""));
    world.apply(pod("u", ""));
    check(&world.apply(bind_request("former", "n")), &[]);
    check(&world.apply(bind_request("", "n")), &["pod u Binding in - on n"]);
    let status = |attempts: u8, limit: &str| {
        let yaml = format!(
            "{{metadata: {{name: p, namespace: ns}}, spec: {{podName: p, selectedNode: n{limit}}}, status: {{phase: Failed, failedAttempts: {attempts}}}}}"
        );
        PackedObject::BindRequest(read(&yaml))
    };
    check(&world.apply(status(0, "")), &["pod u Pending in - on -"]);
    check(
        &world.apply(status(2, ", backoffLimit: 5")),
        &["pod u Binding in - on n"],
    );
    check(
        &world.apply(status(5, ", backoffLimit: 5")),
        &["pod u Pending in - on -"],
    );
}

#[test]
fn a_grouping_counts_until_the_pod_group_is_shown() {
    let mut world = World::default();
    world.apply(pod("u", ""));
    check(
        &world.0.apply(&grouping("u", "g", None)).events,
        &["group g in drafted at 50", "pod u Pending in g on -"],
    );
    check(&world.apply(group("", "queue: real")), &["group g in real at 50"]);
    check(
        &world.0.apply(&grouping("u", "g", Some("leaf"))).events,
        &["pod u Pending in g on -"],
    );
    check(
        &world.apply(pod(
            "u",
            "annotations: {pod-group-name: g}, labels: {kai.scheduler/subgroup-name: leaf}",
        )),
        &["pod u Pending in g on -"],
    );
    check(&world.delete(pod("u", "")), &["pod u gone"]);
    check(&world.delete(group("", "queue: real")), &["group g gone"]);
}

#[test]
fn a_group_that_is_not_written_yet_is_as_old_as_its_first_pod() {
    let created = |events: &[Event]| {
        let groups = events.iter().filter_map(|event| match event {
            Event::Group(group) => Some(group.created.0 / 1000),
            _ => None,
        });
        groups.collect::<Vec<_>>()
    };
    let of = |name: &str, second: u8| {
        let stamp = format!("1970-01-01T00:00:{second}Z");
        PackedObject::Pod(read(&format!(
            "{{metadata: {{name: {name}, namespace: ns, uid: {name}, creationTimestamp: '{stamp}'}}, \
             spec: {{schedulerName: kai-scheduler, containers: []}}, status: {{phase: Pending}}}}"
        )))
    };
    let grouped = |name: &str| {
        let PackedChange::Grouped(grouping) = grouping(name, "g", None) else {
            panic!("a grouping")
        };
        let pod = name.to_owned();
        PackedChange::Grouped(GroupDraft { pod, ..grouping })
    };
    let mut world = World::default();
    for (name, second) in [("b", 20), ("a", 10), ("c", 30)] {
        world.apply(of(name, second));
    }
    assert_eq!(created(&world.0.apply(&grouped("b")).events), [20]);
    assert_eq!(created(&world.0.apply(&grouped("a")).events), [10]);
    assert!(created(&world.0.apply(&grouped("c")).events).is_empty());
    let written = group("creationTimestamp: '1970-01-01T00:00:40Z'", "queue: drafted");
    assert_eq!(created(&world.apply(written)), [40], "then its object says");
}

#[test]
fn a_grouping_of_a_pod_that_is_gone_leaves_nothing() {
    let mut world = World::default();
    world.apply(pod("u", ""));
    check(&world.delete(pod("u", "")), &["pod u gone"]);
    check(&world.0.apply(&grouping("u", "g", None)).events, &[]);
    check(&world.apply(pod("u", "")), &["pod u Pending in - on -"]);
}

#[test]
fn a_pod_that_is_not_grouped_any_more_is_in_the_group_that_it_names() {
    let owner = "{apiVersion: batch/v1, kind: Job, name: j, uid: j}";
    let owned = format!("annotations: {{pod-group-name: said}}, ownerReferences: [{owner}]");
    let mut world = World::default();
    check(&world.apply(pod("u", &owned)), &["pod u Pending in said on -"]);
    check(
        &world.0.apply(&grouping("u", "g", None)).events,
        &["group g in drafted at 50", "pod u Pending in g on -"],
    );
    let ungrouped = PackedChange::Ungrouped(PodRef::new("ns", "p", "u"));
    check(
        &world.0.apply(&ungrouped).events,
        &["pod u Pending in said on -", "group g gone"],
    );
    assert!(world.0.drafts.iter().next().is_none() && world.0.memberships.is_empty());
    check(&world.0.apply(&ungrouped).events, &[]);
}

#[test]
fn an_unwritten_pod_group_is_removed_with_its_last_pod() {
    let mut world = World::default();
    world.apply(pod("u", ""));
    world.0.apply(&grouping("u", "g", None));
    check(
        &world.0.apply(&grouping("u", "h", None)).events,
        &["group h in drafted at 50", "group g gone", "pod u Pending in h on -"],
    );
    check(&world.delete(pod("u", "")), &["pod u gone", "group h gone"]);
    assert!(
        world.0.groups.iter().next().is_none()
            && world.0.drafts.iter().next().is_none()
            && world.0.memberships.is_empty()
    );
}

#[test]
fn a_shard_sees_its_own_nodes_queues_and_groups_only() {
    let shard = Shard {
        key: "pool".to_owned(),
        value: "a".to_owned(),
    };
    let mut world = World::new(Settings {
        shard,
        ..Settings::default()
    });
    check(&world.apply(node("n", ", labels: {pool: b}")), &[]);
    check(&world.apply(node("n", ", labels: {pool: a}")), &["node n"]);
    check(&world.apply(node("n", "")), &["node n gone"]);
    check(&world.apply(group("labels: {pool: b}", "queue: q")), &[]);
    check(
        &world.apply(group("labels: {pool: a}", "queue: q")),
        &["group g in q at 50"],
    );
    check(&world.apply(group("", "queue: q")), &["group g gone"]);
    let queue = |labels: &str| {
        PackedObject::Queue(read(&format!(
            "{{metadata: {{name: q, labels: {{{labels}}}}}, spec: {{}}}}"
        )))
    };
    check(&world.apply(queue("pool: a")), &["queue q"]);
    check(&world.apply(queue("")), &["queue q gone"]);
}

#[test]
fn restricted_scheduling_sees_worker_nodes_only() {
    let mut world = World::new(Settings {
        restrict_nodes: true,
        ..Settings::default()
    });
    check(&world.apply(node("n", "")), &[]);
    check(
        &world.apply(node("n", ", labels: {node-role.kubernetes.io/gpu-worker: 'false'}")),
        &["node n"],
    );
    check(
        &world.apply(node("c", ", labels: {node-role.kubernetes.io/cpu-worker: ''}")),
        &["node c"],
    );
}

#[test]
fn a_flat_hierarchy_brings_its_own_root() {
    let mut world = World::new(Settings {
        full_hierarchy: false,
        ..Settings::default()
    });
    let queue = |name: &str, parent: &str| {
        PackedObject::Queue(read(&format!(
            "{{metadata: {{name: {name}}}, spec: {{parentQueue: '{parent}'}}}}"
        )))
    };
    check(&world.apply(queue("top", "")), &["queue default"]);
    check(&world.apply(queue("leaf", "top")), &["queue leaf"]);
}

#[test]
fn malformed_objects_are_reported_and_affect_no_others() {
    let mut world = World::default();
    let nameless = world
        .0
        .apply(&PackedChange::Applied(PackedObject::Pod(read("{metadata: {}}"))));
    assert_eq!((nameless.events.len(), nameless.rejections.len()), (0, 1));
    let odd = world.0.apply(&PackedChange::Applied(PackedObject::Node(read(
        "{metadata: {name: n}, status: {allocatable: {cpu: lots, pods: 5}}}",
    ))));
    check(&odd.events, &["node n"]);
    let told: Vec<_> = odd.rejections.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["Node n: status.allocatable: quantity \"lots\" of cpu cannot be used"]
    );
    let pod = world
        .0
        .apply(&PackedChange::Applied(pod("u", "annotations: {gpu-fraction: half}")));
    let told: Vec<_> = pod.rejections.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["Pod ns/p: annotation gpu-fraction: \"half\" is not a decimal number above 0 and below 1, such as 0.5"]
    );
    let Some(Event::Pod(input)) = pod.events.first() else {
        panic!("{:?}", pod.events)
    };
    assert_eq!(input.status, PodStatus::Pending);
}

/// The annotation that makes a mirror under test panic, as a fault of ours would.
const FAULT: &str = "example.com/fault";

/// Panics if the pod or node says so.
pub(super) fn panic_if_told(change: &PackedChange) {
    let fault = match change {
        PackedChange::Applied(PackedObject::Pod(pod)) => pod.annotations.get(FAULT),
        PackedChange::Applied(PackedObject::Node(node)) => node.annotations().get(FAULT).map(String::as_str),
        _ => None,
    };
    if let Some(fault) = fault {
        panic!("{fault}");
    }
}

/// The annotation of objects that cannot be packed.
const UNPACKABLE: &str = "example.com/unpackable";

/// Panics if the pod or pod group says so.
pub(super) fn panic_if_unpackable(object: &Object) {
    let annotations = match object {
        Object::Pod(pod) => pod.annotations(),
        Object::PodGroup(group) => group.annotations(),
        _ => return,
    };
    assert!(!annotations.contains_key(UNPACKABLE), "the fault");
}

/// Settings with which pods of unknown pod groups are charged.
fn charging() -> Settings {
    Settings {
        fallback_queue: Some(FallbackQueue {
            label: "kai.scheduler/queue".into(),
            default: "default".into(),
        }),
        ..Settings::default()
    }
}

#[test]
fn pods_on_nodes_of_the_shard_are_charged_whatever_pool_their_group_names() {
    let charged_to = |objects: Vec<PackedObject>| {
        let mut world = World::new(charging());
        let events: Vec<Event> = objects.into_iter().flat_map(|object| world.apply(object)).collect();
        let pods = events.into_iter().filter_map(|event| match event {
            Event::Pod(pod) => Some(pod.fallback_queue.map(|fallback_queue| fallback_queue.to_string())),
            _ => None,
        });
        pods.last().expect("the pod was told of")
    };
    let bound = || {
        PackedObject::Pod(read(
            "{metadata: {name: p, namespace: ns, uid: u, annotations: {pod-group-name: g}, labels: {kai.scheduler/queue: q}},
              spec: {schedulerName: kai-scheduler, nodeName: n0, containers: []}, status: {phase: Running}}",
        ))
    };
    let elsewhere = || group("labels: {kai.scheduler/node-pool: elsewhere}", "queue: q");
    let here = || node("n0", "");
    let there = || node("n0", ", labels: {kai.scheduler/node-pool: elsewhere}");
    let own = Some("q".to_owned());
    assert_eq!(charged_to(vec![here(), elsewhere(), bound()]), own);
    assert_eq!(charged_to(vec![elsewhere(), bound(), here()]), own, "in any order");
    assert_eq!(
        charged_to(vec![there(), elsewhere(), bound()]),
        None,
        "that is another shard's"
    );
}

#[test]
fn a_pod_is_charged_without_a_pod_group_from_its_bind_request_on() {
    let mut world = World::new(charging());
    world.apply(node("n0", ""));
    let waiting = || {
        PackedObject::Pod(read(
            "{metadata: {name: p, namespace: ns, uid: u, labels: {kai.scheduler/queue: q}},
              spec: {schedulerName: kai-scheduler, containers: []}, status: {phase: Pending}}",
        ))
    };
    let request = |annotations: &str| {
        PackedObject::BindRequest(read(&format!(
            "{{metadata: {{name: p, namespace: ns, annotations: {annotations},
                ownerReferences: [{{apiVersion: v1, kind: Pod, name: p, uid: u}}]}},
              spec: {{podName: p, selectedNode: n0}}}}",
        )))
    };
    let charged = |events: Vec<Event>| {
        let pods = events.into_iter().filter_map(|event| match event {
            Event::Pod(pod) => Some(pod.fallback_queue.zip(pod.group)),
            _ => None,
        });
        let pods = pods.map(|pod| pod.map(|(queue, group)| format!("{} charged to {queue}", group.name())));
        pods.last()
    };
    assert_eq!(charged(world.apply(waiting())), Some(None));
    assert_eq!(
        charged(world.apply(request("{}"))),
        Some(Some("pg-p-u charged to q".to_owned()))
    );
    assert_eq!(charged(world.delete(request("{}"))), Some(None));
    let decided = || request("{pod-group-name: gang}");
    assert_eq!(
        charged(world.apply(decided())),
        Some(Some("gang charged to q".to_owned()))
    );
}

#[test]
fn bound_pods_follow_the_queue_label_of_their_namespace() {
    let namespace = |name: &str, labels: &str| {
        PackedObject::Namespace(read(&format!("{{metadata: {{name: {name}, labels: {{{labels}}}}}}}")))
    };
    let bound = |name: &str, labels: &str| {
        PackedObject::Pod(read(&format!(
            "{{metadata: {{name: {name}, namespace: ns, uid: {name}, labels: {{{labels}}}}},
              spec: {{schedulerName: kai-scheduler, nodeName: n0, containers: []}}, status: {{phase: Running}}}}"
        )))
    };
    let charged = |events: Vec<Event>| -> Vec<String> {
        let pods = events.into_iter().filter_map(|event| match event {
            Event::Pod(pod) => Some((pod.pod.name.clone(), pod.fallback_queue?)),
            _ => None,
        });
        pods.map(|(pod, queue)| format!("{pod} to {queue}")).collect()
    };
    let mut world = World::new(charging());
    world.apply(node("n0", ""));
    world.apply(pod("waiting", ""));
    assert_eq!(
        charged(world.apply(bound("own", "kai.scheduler/queue: q"))),
        ["own to q"]
    );
    assert_eq!(charged(world.apply(bound("plain", ""))), ["plain to default"]);
    let labelled = |queue: &str| namespace("ns", &format!("kai.scheduler/queue: {queue}"));
    assert_eq!(charged(world.apply(labelled("team"))), ["plain to team"]);
    assert_eq!(charged(world.apply(labelled("other"))), ["plain to other"]);
    let elsewhere = namespace("elsewhere", "kai.scheduler/queue: third");
    assert_eq!(charged(world.apply(elsewhere)).len(), 0);
    assert_eq!(charged(world.apply(labelled("other, app: a"))).len(), 0);
    assert_eq!(charged(world.apply(labelled("''"))), ["plain to default"]);
    assert_eq!(charged(world.apply(labelled("team"))), ["plain to team"]);
    assert_eq!(charged(world.delete(labelled("team"))), ["plain to default"]);
}

#[test]
fn a_bound_pod_stays_in_the_group_that_it_names_when_its_pod_group_is_deleted() {
    let bound = || {
        PackedObject::Pod(read(
            "{metadata: {name: p, namespace: ns, uid: u, annotations: {pod-group-name: g}},
              spec: {schedulerName: kai-scheduler, nodeName: n0, containers: []}, status: {phase: Running}}",
        ))
    };
    let mut world = World::new(charging());
    world.apply(node("n0", ""));
    world.apply(pod("u", ""));
    world.0.apply(&grouping("u", "own", None));
    world.apply(group("", "queue: q"));
    check(&world.apply(bound()), &["pod u Running in g on n0"]);
    check(&world.delete(group("", "queue: q")), &["group g gone"]);
    let mut anew = World::new(charging());
    anew.apply(node("n0", ""));
    check(&anew.apply(bound()), &["pod u Running in g on n0"]);
    let events = anew.0.adopt(world.0.groupings()).events;
    check(&events, &["group own in drafted at 50"]);
}

#[test]
fn a_bound_pod_is_charged_without_a_pod_group_only_while_its_node_is_there() {
    let mut world = World::new(charging());
    let mut charged = |object: PackedObject, there: bool| -> Vec<bool> {
        let events = if there {
            world.apply(object)
        } else {
            world.delete(object)
        };
        let pods = events.into_iter().filter_map(|event| match event {
            Event::Pod(pod) => Some(pod.fallback_queue.is_some() && pod.group.is_some()),
            _ => None,
        });
        pods.collect()
    };
    let bound = PackedObject::Pod(read(
        "{metadata: {name: p, namespace: ns, uid: u}, spec: {schedulerName: kai-scheduler, nodeName: n0, containers: []}, \
          status: {phase: Running}}",
    ));
    assert_eq!(charged(bound, true), [false]);
    assert_eq!(charged(node("n0", ""), true), [true]);
    assert_eq!(charged(node("n0", ""), false), [false]);
    assert_eq!(charged(node("n0", ""), true), [true]);
}

#[test]
fn a_bind_request_that_names_another_pod_leaves_the_first_one() {
    let mut world = World::default();
    world.apply(node("n", ""));
    world.apply(pod("u", ""));
    assert_eq!(words(&world.apply(bind_request("", "n"))), ["pod u Binding in - on n"]);
    let other = PackedObject::BindRequest(read(
        "{metadata: {name: p, namespace: ns}, spec: {podName: other, selectedNode: n}}",
    ));
    assert_eq!(words(&world.apply(other.clone())), ["pod u Pending in - on -"]);
    assert!(world.delete(other).is_empty());
    assert!(world.0.requests.pods_bound_for("n").is_empty());
}
