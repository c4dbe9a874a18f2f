//! The claims of pods, and which events a change produces.

use serde::de::DeserializeOwned;

use super::*;
use crate::engine::input::PodInput;
use crate::kinds::Object;
use crate::mirror::{PackedChange, PackedObject, Settings};

fn read<K: DeserializeOwned>(yaml: &str) -> Arc<K> {
    Arc::new(serde_yaml_ng::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}")))
}

struct World(Mirror);

impl World {
    fn new() -> Self {
        Self(Mirror::new(Settings::default()))
    }

    fn tell(&mut self, object: PackedObject) -> Vec<Event> {
        self.0.apply(&PackedChange::Applied(object)).events.into_vec()
    }

    fn gone(&mut self, object: PackedObject) -> Vec<Event> {
        self.0.apply(&PackedChange::Deleted(object)).events.into_vec()
    }

    fn pod(&mut self, name: &str, volumes: &str) -> Vec<Event> {
        let pod = format!(
            "{{metadata: {{name: {name}, namespace: ns, uid: {name}}}, spec: {{schedulerName: kai-scheduler, containers: [], \
             volumes: [{volumes}]}}, status: {{phase: Pending}}}}"
        );
        self.0
            .apply(&PackedChange::Applied(PackedObject::Pod(read(&pod))))
            .events
            .into_vec()
    }
}

const USES_C: &str = "{name: data, persistentVolumeClaim: {claimName: c}}";

fn claim(rest: &str) -> PackedObject {
    PackedObject::PersistentVolumeClaim(read(&format!(
        "{{metadata: {{name: c, namespace: ns, uid: c}}, {rest}}}"
    )))
}

fn wanting(class: &str, more: &str) -> PackedObject {
    claim(&format!(
        "spec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Ki}}}}{more}}}"
    ))
}

fn class(rest: &str) -> PackedObject {
    PackedObject::StorageClass(read(&format!("{{metadata: {{name: late}}, provisioner: csi, {rest}}}")))
}

const LATE: &str = "volumeBindingMode: WaitForFirstConsumer";

fn volume(rest: &str) -> PackedObject {
    PackedObject::PersistentVolume(read(&format!(
        "{{metadata: {{name: v, labels: {{topology.kubernetes.io/zone: a__b}}}}, spec: {{capacity: {{storage: 2Ki}}, {rest}"
    )))
}

/// The pods that events tell of, each with what it misses or where its claims stand.
fn told(events: &[Event]) -> Vec<String> {
    let pod = |pod: &PodInput| {
        let volumes = pod.volumes.as_ref().expect("pods here have claims");
        let state = |claim: &Claim| match &*claim.state {
            ClaimState::Bound(reach) => format!("{} bound {:?}", claim.key, reach.zones.len()),
            ClaimState::Lost => format!("{} lost", claim.key),
            ClaimState::Waiting(asked) => format!("{} waits for {}", claim.key, asked.size),
        };
        let claims: Vec<_> = volumes.claims.iter().map(state).collect();
        let missing = volumes.missing.as_deref().unwrap_or_default();
        format!("{}: {missing}{}", pod.pod.name, claims.join(", "))
    };
    let word = |event: &Event| match event {
        Event::Pod(input) => pod(input),
        Event::Volume(volume) => format!("volume {} for {:?}", volume.name, volume.claim),
        Event::VolumeGone(name) => format!("volume {name} gone"),
        Event::Capacity(capacity) => format!("capacity {} {:?}", capacity.free, capacity.largest),
        Event::CapacityGone(key) => format!("capacity {key} gone"),
        Event::Node(node) => format!("node {} takes {:?}", node.name, node.attach_limits),
        other => panic!("{other:?}"),
    };
    events.iter().map(word).collect()
}

#[test]
fn a_claim_from_missing_to_bound() {
    let mut world = World::new();
    assert_eq!(
        told(&world.pod("p", USES_C)),
        ["p: persistentvolumeclaim \"c\" not found"]
    );
    let unbound = "p: pod has unbound immediate PersistentVolumeClaims";
    assert_eq!(told(&world.tell(wanting("late", ""))), [unbound]);
    assert_eq!(told(&world.tell(class(LATE))), ["p: ns/c waits for 1024"]);
    assert!(world.tell(class(LATE)).is_empty(), "nothing new");
    let bound = wanting("late", ", volumeName: v}, status: {phase: Bound");
    assert_eq!(told(&world.tell(bound)), ["p: ns/c lost"]);
    let there = volume("csi: {driver: csi, volumeHandle: h}}, status: {phase: Bound}}");
    assert_eq!(told(&world.tell(there.clone())), ["p: ns/c bound 1"]);
    assert_eq!(told(&world.gone(there)), ["p: ns/c lost"]);
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_found_by_the_whole_name_of_the_volume() {
    let mut world = World::new();
    world.tell(class(LATE));
    let waits =
        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-kube-api-access-data\"";
    let events = world.pod("p", "{name: kube-api-access-data, ephemeral: {}}");
    assert_eq!(told(&events), [format!("p: {waits}")]);
    let claim = "{metadata: {name: p-kube-api-access-data, namespace: ns, uid: c,
                   ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: p, controller: true}]},
                  spec: {storageClassName: late, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Ki}}}}";
    let events = world.tell(PackedObject::PersistentVolumeClaim(read(claim)));
    assert_eq!(told(&events), ["p: ns/p-kube-api-access-data waits for 1024"]);
}

#[test]
fn only_the_pods_of_a_claim_are_updated() {
    let mut world = World::new();
    world.pod("p", USES_C);
    world.pod("q", "{name: data, persistentVolumeClaim: {claimName: d}}");
    world.pod("r", "{name: tmp, emptyDir: {}}");
    world.tell(class(LATE));
    assert_eq!(told(&world.tell(wanting("late", ""))), ["p: ns/c waits for 1024"]);
    assert_eq!(
        told(&world.gone(wanting("late", ""))),
        ["p: persistentvolumeclaim \"c\" not found"]
    );
}

#[test]
fn a_deleted_pod_whose_last_state_cannot_be_packed_is_no_user_of_its_claims_any_more() {
    let mut world = World::new();
    world.pod("p", USES_C);
    assert!(!world.0.volumes.users.is_empty());
    let last = Object::Pod(read("{metadata: {name: p, namespace: ns, uid: p}}"));
    world.0.apply(&packed::bare_deletion(last));
    assert!(world.0.volumes.users.is_empty());
}

#[test]
fn errors_of_claims_have_the_messages_of_kubernetes() {
    let cases = [
        (
            "spec: {volumeName: v}, status: {phase: Lost}",
            "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"",
        ),
        ("spec: {storageClassName: late}", ""),
        (
            "spec: {storageClassName: other}",
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        ("spec: {}", "pod has unbound immediate PersistentVolumeClaims"),
        (
            "spec: {storageClassName: late, volumeName: v}",
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ];
    for (text, wanted) in cases {
        let mut world = World::new();
        world.tell(class(LATE));
        world.tell(claim(text));
        let events = world.pod("p", USES_C);
        let Some(Event::Pod(pod)) = events.first() else {
            panic!()
        };
        let missing = pod.volumes.as_ref().unwrap().missing.as_deref().unwrap_or_default();
        assert_eq!(missing, wanted, "{text}");
    }
    let mut world = World::new();
    let going = "{metadata: {name: c, namespace: ns, deletionTimestamp: 2026-01-01T00:00:00Z}, spec: {volumeName: v}, status: {phase: Bound}}";
    world.tell(PackedObject::PersistentVolumeClaim(read(going)));
    assert!(told(&world.pod("p", USES_C))[0].contains("persistentvolumeclaim \"c\" is being deleted"));
}

#[test]
fn a_volume_made_for_one_pod_belongs_to_it() {
    let ephemeral = "{name: data, ephemeral: {volumeClaimTemplate: {spec: {}}}}";
    let owned = |uid: &str| {
        PackedObject::PersistentVolumeClaim(read(&format!(
            "{{metadata: {{name: p-data, namespace: ns, ownerReferences: [{{apiVersion: v1, kind: Pod, name: p, uid: {uid}, controller: true}}]}}, \
             spec: {{storageClassName: late}}}}"
        )))
    };
    let mut world = World::new();
    world.tell(class(LATE));
    let waits = "p: waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-data\"";
    assert_eq!(told(&world.pod("p", ephemeral)), [waits]);
    let other = "p: PVC ns/p-data was not created for pod ns/p (pod is not owner)ns/p-data waits for 0";
    assert_eq!(told(&world.tell(owned("x"))), [other]);
    assert_eq!(told(&world.tell(owned("p"))), ["p: ns/p-data waits for 0"]);
}

#[test]
fn volumes_are_offered_until_they_have_their_claim() {
    let mut world = World::new();
    let phase = |text: &str, claim: &str| volume(&format!("{claim}}}, status: {{phase: {text}}}}}"));
    assert!(world.tell(phase("Pending", "")).is_empty());
    assert_eq!(told(&world.tell(phase("Available", ""))), ["volume v for None"]);
    let meant = "claimRef: {namespace: ns, name: c}";
    assert_eq!(
        told(&world.tell(phase("Available", meant))),
        ["volume v for Some(\"ns/c\")"]
    );
    assert_eq!(told(&world.tell(phase("Bound", meant))), ["volume v gone"]);
    assert!(world.tell(phase("Released", meant)).is_empty());
    world.tell(wanting("late", ""));
    let of_another = "claimRef: {namespace: ns, name: c, uid: x}";
    assert!(
        world.tell(phase("Available", of_another)).is_empty(),
        "that claim is gone"
    );
}

#[test]
fn a_volume_meant_for_a_deleted_claim_is_not_offered_to_its_successor() {
    let mut world = World::new();
    let meant = |uid: &str| {
        let meant = format!("claimRef: {{namespace: ns, name: c, uid: {uid}}}");
        volume(&format!("{meant}}}, status: {{phase: Available}}}}"))
    };
    let successor = PackedObject::PersistentVolumeClaim(read(
        "{metadata: {name: c, namespace: ns, uid: d}, spec: {storageClassName: late}}",
    ));
    let offered = ["volume v for Some(\"ns/c\")"];
    world.tell(wanting("late", ""));
    assert_eq!(told(&world.tell(meant("c"))), offered);
    assert_eq!(told(&world.tell(successor.clone())), ["volume v gone"]);
    assert_eq!(told(&world.tell(meant("d"))), offered, "its claim is the successor now");
    assert_eq!(
        told(&world.tell(wanting("late", ""))),
        ["volume v gone"],
        "the claim is seen late"
    );
    assert_eq!(told(&world.tell(successor)), offered);
    world.gone(meant("d"));
    assert!(world.0.volumes.meant_for.is_empty());
}

#[test]
fn the_attributes_classes_of_claims_and_volumes_are_read() {
    let gold = "volumeAttributesClassName: gold";
    let none = "volumeAttributesClassName: ''";
    for (asked, offered, wanted) in [
        ("", "", ["", ""]),
        (none, "", ["", ""]),
        (gold, gold, ["gold", "gold"]),
        (gold, "", ["gold", ""]),
        ("", gold, ["", "gold"]),
    ] {
        let mut world = World::new();
        world.tell(class(LATE));
        world.tell(wanting("late", &format!(", {asked}")));
        let told = world.pod("p", USES_C);
        let Some(Event::Pod(pod)) = told.first() else { panic!() };
        let ClaimState::Waiting(claim) = &*pod.volumes.as_ref().unwrap().claims[0].state else {
            panic!("it is not bound")
        };
        let told = world.tell(volume(&format!("{offered}}}, status: {{phase: Available}}}}")));
        let Some(Event::Volume(volume)) = told.first() else {
            panic!()
        };
        assert_eq!([&*claim.attributes_class, &*volume.attributes_class], wanted);
    }
}

#[test]
fn storage_capacity_and_attach_limits_are_read() {
    let mut world = World::new();
    let capacity = |rest: &str| {
        PackedObject::CsiStorageCapacity(read(&format!(
            "{{metadata: {{name: k, namespace: ns}}, storageClassName: late, nodeTopology: {{matchLabels: {{zone: a}}}}{rest}}}"
        )))
    };
    assert_eq!(told(&world.tell(capacity(", capacity: 1Ki"))), ["capacity 1024 None"]);
    assert!(world.tell(capacity(", capacity: 1Ki")).is_empty());
    assert_eq!(told(&world.gone(capacity(""))), ["capacity ns/k gone"]);
    assert_eq!(told(&world.tell(capacity(""))), ["capacity 0 None"]);
    let drivers = "drivers: [{name: csi, nodeID: n, allocatable: {count: 3}}, {name: other, nodeID: n}]";
    let csi = PackedObject::CsiNode(read(&format!("{{metadata: {{name: n}}, spec: {{{drivers}}}}}")));
    assert!(world.tell(csi.clone()).is_empty(), "the node is not known yet");
    let node = world.0.apply(&PackedChange::Applied(PackedObject::Node(read(
        "{metadata: {name: n}}",
    ))));
    assert_eq!(told(&node.events), ["node n takes [(\"csi\", 3)]"]);
    assert_eq!(told(&world.gone(csi)), ["node n takes []"]);
}

#[test]
fn changes_of_a_claim_that_are_not_read_concern_no_pod() {
    let claim = |metadata: &str| -> Arc<PersistentVolumeClaim> {
        read(&format!("{{metadata: {{name: c, namespace: ns, {metadata}}}}}"))
    };
    let known = claim("uid: c");
    let other = claim("uid: c, resourceVersion: '2', labels: {a: b}, annotations: {note: x}");
    assert!(reads_alike(&known, &other));
    for metadata in [
        "uid: d",
        "uid: c, deletionTimestamp: '2026-01-01T00:00:00Z'",
        "uid: c, annotations: {volume.kubernetes.io/selected-node: n}",
        "uid: c, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: p}]",
    ] {
        assert!(!reads_alike(&known, &claim(metadata)), "{metadata}");
    }
}
