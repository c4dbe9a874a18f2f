mod attributes;
mod disks;
mod skip;

use std::sync::Arc;

use super::*;
use crate::engine::Engine;
use crate::engine::decision::{Bind, Decisions};
use crate::engine::input::{
    CapacityInput, Event, Name, NodeRequirement, NodeTerm, PodInput, PodStatus, Reach, SelectorOp, Time, VolumeInput,
};
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::tests::scenario::{NOW, group, node, open_queue, placed, pod};

/// `zone=a|b`, or `zone` for any value; several with `+`.
fn requirements(text: &str) -> Vec<NodeRequirement> {
    let one = |part: &str| {
        let (key, values) = part.split_once('=').unwrap_or((part, ""));
        NodeRequirement {
            key: key.into(),
            op: if values.is_empty() {
                SelectorOp::Exists
            } else {
                SelectorOp::In
            },
            values: values
                .split('|')
                .filter(|value| !value.is_empty())
                .map(Name::from)
                .collect(),
        }
    };
    text.split('+').map(one).collect()
}

fn terms(text: &str) -> Vec<NodeTerm> {
    vec![NodeTerm {
        labels: requirements(text),
        fields: Vec::new(),
    }]
}

fn modes(text: &str) -> u8 {
    match text {
        "rox" => 2,
        "rwx" => 4,
        "rwop" => 8,
        _ => 1,
    }
}

/// A claim: `NAME bound|lost|wait words…`. Words: `on zone=a` (the volume's node affinity), `in zone=a` (its zone labels), `id=x` (its handle, of the driver
/// `csi`), `rwx`, `rwop`, `owned`, `size=10`, `class=fast`, `block`, `attributes=gold`, `like tier=gold` (labels of the volume), `node=n0` (a volume is being
/// made for it), `made` (volumes can be made), `made=zone=a` (for these nodes), `tracked` (the driver says how much it has left).
fn claim(text: &str) -> Claim {
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    let after = |word: &str| words.iter().position(|other| *other == word).map(|at| words[at + 1]);
    let given = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
    let class: Name = given("class=").unwrap_or("local").into();
    let size = given("size=").map_or(10, |size| size.parse().unwrap());
    let state = match words[1] {
        "bound" => ClaimState::Bound(Reach {
            nodes: after("on").map(terms),
            zones: after("in")
                .map(requirements)
                .into_iter()
                .flatten()
                .map(|one| (one.key, one.values))
                .collect(),
        }),
        "lost" => ClaimState::Lost,
        _ => ClaimState::Waiting(Waiting {
            class: class.clone(),
            size,
            modes: words.iter().map(|word| modes(word)).max().unwrap_or(1),
            block: has("block"),
            attributes_class: given("attributes=").unwrap_or_default().into(),
            labels: after("like").map(requirements).unwrap_or_default(),
            node: given("node=").map(Name::from),
            provisioning: (has("made") || given("made=").is_some()).then(|| Provisioning {
                nodes: given("made=").map(terms).unwrap_or_default(),
                tracked: has("tracked"),
            }),
        }),
    };
    let handle = given("id=").or((words[1] == "wait").then_some(words[0]));
    Claim {
        key: format!("ns/{}", words[0]).into(),
        exclusive: has("rwop"),
        owned: has("owned"),
        attach: handle.map(|handle| ("csi".into(), handle.into())),
        class,
        size,
        state: Arc::new(state),
    }
}

/// A volume: `NAME size [rwx] [block] [class=fast] [attributes=gold] [on zone=a] [tier=gold] [for NAME]`.
fn volume(text: &str) -> Event {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |word: &str| words.iter().position(|other| *other == word).map(|at| words[at + 1]);
    let given = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
    let tier = given("tier=").map(|tier| ("tier".into(), tier.into()));
    Event::Volume(Box::new(VolumeInput {
        name: words[0].into(),
        class: given("class=").unwrap_or("local").into(),
        size: words[1].parse().unwrap(),
        modes: words.iter().map(|word| modes(word)).fold(0, |all, bit| all | bit),
        block: words.contains(&"block"),
        attributes_class: given("attributes=").unwrap_or_default().into(),
        labels: tier.into_iter().collect(),
        nodes: after("on").map(terms),
        claim: after("for").map(|claim| format!("ns/{claim}").into()),
    }))
}

/// Room: `NAME free on zone=a [largest]`; `on -`: for no node.
fn capacity(text: &str) -> Event {
    let words: Vec<&str> = text.split_whitespace().collect();
    Event::Capacity(Box::new(CapacityInput {
        key: words[0].into(),
        class: "local".into(),
        free: words[1].parse().unwrap(),
        largest: words.get(4).map(|largest| largest.parse().unwrap()),
        nodes: (words[3] != "-").then(|| requirements(words[3])),
    }))
}

/// A pod of a group of its own with these claims and disks; `;` between them.
pub fn claiming(number: usize, claims: &str) -> PodInput {
    let mut made = pod(&group(&format!("g{number}"), "q", number), number, "0");
    let words = claims.split(';').map(str::trim).filter(|text| !text.is_empty());
    let (disks, claims): (Vec<&str>, Vec<&str>) = words.partition(|text| text.starts_with("disk "));
    made.volumes = Some(Arc::new(PodVolumes {
        missing: None,
        claims: claims.into_iter().map(claim).collect(),
        disks: disks.into_iter().map(disks::disk).collect(),
    }));
    made
}

/// Four nodes: n0 and n1 in zone a, n2 in zone b, n3 in none; n0 takes two volumes.
fn nodes() -> impl Iterator<Item = Event> {
    const NODES: [(&str, &str); 4] = [
        ("n0", "zone=a topology.kubernetes.io/zone=a"),
        ("n1", "zone=a topology.kubernetes.io/zone=a"),
        ("n2", "zone=b topology.kubernetes.io/zone=b"),
        ("n3", ""),
    ];
    NODES.into_iter().map(|(name, labels)| {
        let mut node = node(name, &format!("1 {labels}"));
        if name == "n0" {
            node.attach_limits = vec![("csi".into(), 2)];
        }
        Event::Node(Box::new(node))
    })
}

fn engine(storage: &[&str], running: &[(&str, &str)], policy: Policy) -> Engine {
    let mut engine = Engine::new(policy);
    let storage = storage.iter().map(|text| match text.split_once(' ') {
        Some(("room", rest)) => capacity(rest),
        Some(("attached", rest)) => disks::attachment(rest),
        _ => volume(text),
    });
    for event in nodes().chain([open_queue("q")]).chain(storage) {
        engine.apply(event, NOW);
    }
    for (number, (on, claims)) in running.iter().enumerate() {
        let pod = placed(claiming(number, claims), on);
        engine.apply(Event::Group(Box::new(group(&format!("g{number}"), "q", number))), NOW);
        engine.apply(Event::Pod(Box::new(pod)), NOW);
    }
    engine
}

/// What it shows; volumes and `room`; pods that run (node, claims); the waiting pod's claims; a letter per node.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

/// A letter per node: fits now, fits later, or what is against it.
fn verdicts(case: &Case, booked: bool) -> String {
    let (_, storage, running, claims, _) = case;
    let policy = Policy {
        actions: Vec::new(),
        ..Policy::default()
    };
    let mut engine = engine(storage, running, policy);
    engine.apply(Event::Pod(Box::new(claiming(99, claims))), NOW);
    engine.cycle(NOW);
    let model = &engine.model;
    assert!(model.broken_rules().is_empty(), "{:?}", model.broken_rules());
    let waits = |pod: &PodId| model.pods()[*pod].input.node.is_none();
    let pod = model.pods().ids().find(waits).unwrap();
    let letter = |id: NodeId| match fit(model, pod, id, false, booked) {
        Ok(_) if fit(model, pod, id, true, booked).is_ok() => '.',
        Ok(_) => ',',
        Err(VolumeConflict::Unreachable(Unreachable::Affinity)) => 'A',
        Err(VolumeConflict::Unreachable(Unreachable::Zone)) => 'Z',
        Err(VolumeConflict::Unreachable(Unreachable::Lost)) => 'L',
        Err(VolumeConflict::Unreachable(Unreachable::Elsewhere)) => 'E',
        Err(VolumeConflict::NoVolume) => 'V',
        Err(VolumeConflict::NoRoom) => 'R',
        Err(VolumeConflict::NoRoomOf(_)) => 'r',
        Err(VolumeConflict::NoSourceOf(_)) => 's',
        Err(VolumeConflict::TooMany) => 'M',
        Err(VolumeConflict::InUse) => 'U',
        Err(VolumeConflict::DiskInUse) => 'D',
    };
    model.by_name().iter().map(|id| letter(*id)).collect()
}

fn check(cases: &[Case], booked: bool) {
    let wrong: Vec<_> = cases
        .iter()
        .map(|case| (case.0, verdicts(case, booked), case.4))
        .filter(|(_, got, wanted)| got != wanted)
        .map(|(name, got, wanted)| format!("{name}: wanted {wanted}, got {got}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn volumes_that_are_bound() {
    const CASES: &[Case] = &[
        ("no claim", &[], &[], "", "...."),
        ("a volume for everywhere", &[], &[], "c bound", "...."),
        ("a volume's node affinity", &[], &[], "c bound on zone=b", "AA.A"),
        ("any of the values", &[], &[], "c bound on zone=a|b", "...A"),
        ("the label alone", &[], &[], "c bound on zone", "...A"),
        (
            "on one node only",
            &[],
            &[],
            "c bound on kubernetes.io/hostname=n1",
            "A.AA",
        ),
        (
            "two volumes that meet",
            &[],
            &[],
            "c bound on zone=a; d bound on kubernetes.io/hostname=n0",
            ".AAA",
        ),
        (
            "two that never meet",
            &[],
            &[],
            "c bound on zone=a; d bound on zone=b",
            "AAAA",
        ),
        (
            "a zone, by its label",
            &[],
            &[],
            "c bound in topology.kubernetes.io/zone=b",
            "ZZ..",
        ),
        (
            "a volume in two zones",
            &[],
            &[],
            "c bound in topology.kubernetes.io/zone=a|b",
            "....",
        ),
        (
            "the older label, on a node with the newer",
            &[],
            &[],
            "c bound in failure-domain.beta.kubernetes.io/zone=a",
            "..Z.",
        ),
        (
            "a region that no node names",
            &[],
            &[],
            "c bound in topology.kubernetes.io/region=r",
            "ZZZ.",
        ),
        ("a volume that does not exist", &[], &[], "c lost", "LLLL"),
        (
            "shared, and used elsewhere",
            &[],
            &[("n1", "c bound rwx")],
            "c bound rwx",
            "....",
        ),
        (
            "for one pod, and free",
            &[],
            &[("n1", "d bound rwop")],
            "c bound rwop",
            "....",
        ),
        (
            "for one pod, and in use",
            &[],
            &[("n1", "c bound rwop")],
            "c bound rwop",
            "UUUU",
        ),
        (
            "for one pod, which leaves",
            &[],
            &[("n1!", "c bound rwop")],
            "c bound rwop",
            ",,,,",
        ),
        (
            "in use and out of reach",
            &[],
            &[("n1", "c bound rwop")],
            "c bound rwop on zone=b",
            "AAUA",
        ),
    ];
    check(CASES, false);
}

#[test]
fn volumes_that_a_node_can_attach() {
    const CASES: &[Case] = &[
        (
            "room for one more",
            &[],
            &[("n0", "a bound id=a")],
            "c bound id=c",
            "....",
        ),
        (
            "no room",
            &[],
            &[("n0", "a bound id=a; b bound id=b")],
            "c bound id=c",
            "M...",
        ),
        (
            "two at once",
            &[],
            &[("n0", "a bound id=a")],
            "c bound id=c; d bound id=d",
            "M...",
        ),
        (
            "more than it takes at all",
            &[],
            &[],
            "c bound id=c; d bound id=d; e bound id=e",
            "M...",
        ),
        (
            "one that is there already",
            &[],
            &[("n0", "a bound id=a; b bound id=b")],
            "b bound id=b",
            "....",
        ),
        (
            "there already, and a new one",
            &[],
            &[("n0", "a bound id=a; b bound id=b")],
            "b bound id=b; c bound id=c",
            "M...",
        ),
        (
            "two claims, one volume",
            &[],
            &[("n0", "a bound id=a")],
            "c bound id=c; d bound id=c",
            "....",
        ),
        (
            "two pods, one volume",
            &[],
            &[("n0", "a bound id=a"), ("n0", "a bound id=a")],
            "c bound id=c",
            "....",
        ),
        (
            "one leaves",
            &[],
            &[("n0", "a bound id=a"), ("n0!", "b bound id=b")],
            "c bound id=c",
            ",...",
        ),
        (
            "one leaves what another keeps",
            &[],
            &[("n0", "a bound id=a; b bound id=b"), ("n0!", "b bound id=b")],
            "c bound id=c",
            "M...",
        ),
        (
            "volumes that nobody attaches",
            &[],
            &[("n0", "a bound id=a; b bound id=b")],
            "c bound",
            "....",
        ),
        (
            "one that is yet to be made",
            &[],
            &[("n0", "a bound id=a; b bound id=b")],
            "c wait made",
            "M...",
        ),
        (
            "nodes without a limit",
            &[],
            &[("n1", "a bound id=a; b bound id=b; d bound id=d")],
            "c bound id=c",
            "....",
        ),
    ];
    check(CASES, false);
}

#[test]
fn claims_that_wait_for_a_node() {
    const CASES: &[Case] = &[
        ("nothing there, and nothing is made", &[], &[], "c wait", "VVVV"),
        ("a volume for everywhere", &["v 10"], &[], "c wait", "...."),
        ("a volume in a zone", &["v 10 on zone=a"], &[], "c wait", "..VV"),
        (
            "on one node",
            &["v 10 on kubernetes.io/hostname=n2"],
            &[],
            "c wait",
            "VV.V",
        ),
        ("too small", &["v 9"], &[], "c wait", "VVVV"),
        ("larger than asked for", &["v 90"], &[], "c wait", "...."),
        ("of another class", &["v 10 class=fast"], &[], "c wait", "VVVV"),
        ("read by many", &["v 10"], &[], "c wait rwx", "VVVV"),
        ("read by many, and it can", &["v 10 rwx"], &[], "c wait rwx", "...."),
        ("a block device", &["v 10"], &[], "c wait block", "VVVV"),
        (
            "a block device, and it is one",
            &["v 10 block"],
            &[],
            "c wait block",
            "....",
        ),
        ("a file system, and it is none", &["v 10 block"], &[], "c wait", "VVVV"),
        (
            "by label",
            &["v 10 tier=gold", "w 10 tier=tin on zone=a"],
            &[],
            "c wait like tier=tin",
            "..VV",
        ),
        ("meant for another claim", &["v 10 for d"], &[], "c wait", "VVVV"),
        (
            "meant for this claim",
            &["v 10 for c on zone=b", "w 10"],
            &[],
            "c wait",
            "VV.V",
        ),
        (
            "two are meant for this claim",
            &["v 10 for c on zone=b", "w 10 for c on zone=a"],
            &[],
            "c wait",
            "...V",
        ),
        (
            "meant for it and not there, but others can be made",
            &["v 10 for c on zone=b"],
            &[],
            "c wait made",
            "....",
        ),
        ("two claims, one volume", &["v 10"], &[], "c wait; d wait", "VVVV"),
        (
            "two claims, two volumes in one zone",
            &["v 10 on zone=a", "w 10 on zone=a"],
            &[],
            "c wait; d wait",
            "..VV",
        ),
        (
            "two claims, volumes in two zones",
            &["v 10 on zone=a", "w 10 on zone=b"],
            &[],
            "c wait; d wait",
            "VVVV",
        ),
        (
            "the large volume is left to the large claim",
            &["v 10", "w 20"],
            &[],
            "c wait size=20; d wait",
            "....",
        ),
        ("made anywhere", &[], &[], "c wait made", "...."),
        ("made in one zone", &[], &[], "c wait made=zone=b", "VV.V"),
        ("being made for a node", &[], &[], "c wait made node=n1", "E.EE"),
        (
            "being made by what makes none",
            &["v 10"],
            &[],
            "c wait node=n1",
            "EVEE",
        ),
        (
            "room in one zone",
            &["room a 10 on zone=a", "room b 9 on zone=b"],
            &[],
            "c wait made tracked",
            "..RR",
        ),
        (
            "room for no node",
            &["room a 10 on -"],
            &[],
            "c wait made tracked",
            "RRRR",
        ),
        (
            "room in all, but not for one so large",
            &["room a 100 on zone 9"],
            &[],
            "c wait made tracked",
            "RRRR",
        ),
        (
            "the better of two sources",
            &["room a 5 on zone=a", "room b 10 on zone"],
            &[],
            "c wait made tracked",
            "...R",
        ),
        (
            "room for one of two",
            &["room a 19 on zone"],
            &[],
            "c wait made tracked; d wait made tracked",
            "RRRR",
        ),
        (
            "room for both",
            &["room a 20 on zone"],
            &[],
            "c wait made tracked; d wait made tracked",
            "...R",
        ),
        (
            "what exists needs no room",
            &["v 10 on zone=b"],
            &[],
            "c wait made tracked",
            "RR.R",
        ),
        (
            "nobody says how much is left",
            &["room a 1 on zone"],
            &[],
            "c wait made",
            "....",
        ),
        (
            "room promised to a pod there",
            &["room a 19 on zone=a", "room b 10 on zone=b"],
            &[("n1", "d wait made tracked node=n1")],
            "c wait made tracked",
            "RR.R",
        ),
        (
            "room promised elsewhere",
            &["room a 19 on zone=a", "room b 10 on zone=b"],
            &[("n2", "d wait made tracked node=n2")],
            "c wait made tracked",
            "..RR",
        ),
        (
            "a claim that a pod on a node waits for too",
            &["room a 10 on zone"],
            &[("n1", "c wait made tracked node=n1")],
            "c wait made tracked",
            "V.VV",
        ),
    ];
    check(CASES, false);
}

#[test]
fn csi_storage_capacity_is_respected() {
    const CASES: &[Case] = &[
        ("enough", &["room a 100 on zone=a"], &[], "c wait made tracked", "..ss"),
        (
            "not enough",
            &["room a 100 on zone=a"],
            &[],
            "c wait made tracked size=110",
            "rrss",
        ),
        (
            "a bound claim is not taken off",
            &["room a 100 on zone=a"],
            &[("n0!", "d bound")],
            "c wait made tracked size=100",
            "..ss",
        ),
        (
            "what a leaving pod takes along is free later",
            &["room a 5 on zone=a"],
            &[("n0!", "d bound owned")],
            "c wait made tracked",
            ",,ss",
        ),
        (
            "what a leaving pod leaves behind is not",
            &["room a 5 on zone=a"],
            &[("n0!", "d bound")],
            "c wait made tracked",
            "rrss",
        ),
    ];
    check(CASES, true);
    let case: Case = (
        "",
        &["room a 5 on zone=a"],
        &[("n0!", "d bound owned")],
        "c wait made tracked",
        "",
    );
    assert_eq!(verdicts(&case, false), "RRRR", "off the books nothing is counted on");
}

/// Binds of pods with these claims, in order: `n0 c=v` for a volume, `n0 c=new` for one that is made.
fn decided(storage: &[&str], pods: &[&str]) -> (Engine, Decisions) {
    let mut engine = engine(storage, &[], Policy::default());
    for (number, claims) in pods.iter().enumerate() {
        engine.apply(Event::Group(Box::new(group(&format!("g{number}"), "q", number))), NOW);
        engine.apply(Event::Pod(Box::new(claiming(number, claims))), NOW);
    }
    let decisions = engine.cycle(NOW);
    let broken = engine.model().broken_rules();
    assert!(broken.is_empty(), "{broken:?}");
    (engine, decisions)
}

fn words(decisions: &Decisions) -> Vec<String> {
    let word = |bind: &Bind| {
        let volumes: Vec<_> = bind
            .volumes
            .iter()
            .map(|one| {
                let claim = one.claim.trim_start_matches("ns/");
                format!(" {claim}={}", one.volume.as_deref().unwrap_or("new"))
            })
            .collect();
        format!("{}{}", bind.node, volumes.concat())
    };
    decisions.bind.iter().map(word).collect()
}

#[test]
fn two_pods_of_one_cycle_never_use_the_same_volume() {
    let (_, decisions) = decided(&["v 10 on zone=b", "w 20 on zone=b"], &["c wait", "d wait", "e wait"]);
    assert_eq!(words(&decisions), ["n2 c=v", "n2 d=w"]);
    let said = &decisions.unschedulable[0].message;
    assert!(
        said.contains("4 node(s) didn't find available persistent volumes to bind"),
        "{said}"
    );
}

#[test]
fn two_pods_of_one_cycle_never_use_the_same_capacity() {
    let claims = ["c wait made tracked", "d wait made tracked", "e wait made tracked"];
    let (_, decisions) = decided(&["room b 25 on zone=b"], &claims);
    assert_eq!(words(&decisions), ["n2 c=new", "n2 d=new"]);
    let said = &decisions.unschedulable[0].message;
    assert!(said.contains("4 node(s) did not have enough free storage"), "{said}");
}

#[test]
fn pods_that_share_a_claim_go_to_one_node_while_its_volume_is_made() {
    let (_, decisions) = decided(&[], &["c wait made=zone=b", "c wait made=zone=b"]);
    assert_eq!(words(&decisions), ["n2 c=new", "n2 c=new"]);
}

#[test]
fn pods_that_share_a_claim_go_to_where_its_volume_is() {
    let (_, decisions) = decided(&["v 10 on zone=a"], &["c wait", "c wait"]);
    assert_eq!(words(&decisions), ["n0 c=v", "n0 c=v"]);
}

#[test]
fn a_claim_for_one_pod_is_given_to_one_pod() {
    let (_, decisions) = decided(&[], &["c bound rwop", "c bound rwop"]);
    assert_eq!(words(&decisions), ["n0"]);
    let said = &decisions.unschedulable[0].message;
    assert!(
        said.contains("4 node has pod using PersistentVolumeClaim with the same name"),
        "{said}"
    );
}

#[test]
fn a_bound_claim_uses_no_storage_capacity() {
    let claims = ["c wait made tracked", "d wait made tracked"];
    let (mut engine, decisions) = decided(&["room b 10 on zone=b"], &claims);
    assert_eq!(words(&decisions), ["n2 c=new"]);
    let bound = claiming(0, "c bound on zone=b");
    engine.apply(Event::Pod(Box::new(bound)), NOW);
    assert_eq!(words(&engine.cycle(NOW)), ["n2 d=new"], "the driver has the say again");
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn reserved_volumes_stay_reserved_when_the_bind_request_is_shown() {
    let (mut engine, decisions) = decided(&["v 10 on zone=b"], &["c wait"]);
    assert_eq!(words(&decisions), ["n2 c=v"]);
    let mut binding = claiming(0, "c wait");
    binding.status = PodStatus::Binding;
    binding.node = Some("n2".into());
    engine.apply(Event::Pod(Box::new(binding)), NOW);
    engine.apply(Event::Group(Box::new(group("g1", "q", 1))), NOW);
    engine.apply(Event::Pod(Box::new(claiming(1, "d wait"))), NOW);
    assert_eq!(
        words(&engine.cycle(NOW)),
        Vec::<String>::new(),
        "the volume is the other's"
    );
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn a_bind_that_fails_gives_its_volume_back() {
    let (mut engine, decisions) = decided(&["v 10 on zone=b"], &["c wait", "d wait"]);
    assert_eq!(words(&decisions), ["n2 c=v"]);
    let failed = Event::Unbound {
        pod: decisions.bind[0].pod.uid.clone(),
        retry_at: Some(Time(NOW.0 + 1000)),
    };
    engine.apply(failed, NOW);
    assert_eq!(words(&engine.cycle(NOW)), ["n2 d=v"]);
}

#[test]
fn a_missing_claim_is_reported_and_the_pod_is_placed_when_it_appears() {
    let mut pod = claiming(0, "");
    pod.volumes = Some(Arc::new(PodVolumes {
        missing: Some("persistentvolumeclaim \"c\" not found".into()),
        claims: Vec::new(),
        disks: Vec::new(),
    }));
    let mut engine = engine(&[], &[], Policy::default());
    engine.apply(Event::Group(Box::new(group("g0", "q", 0))), NOW);
    engine.apply(Event::Pod(Box::new(pod)), NOW);
    let told = engine.cycle(NOW);
    let said = &told.unschedulable[0].message;
    let wanted =
        "Scheduling conditions were not met for pod ns/g0-000:\nVolumeBinding: persistentvolumeclaim \"c\" not found.";
    assert!(said.contains(wanted), "{said}");
    engine.apply(Event::Pod(Box::new(claiming(0, "c bound on zone=b"))), NOW);
    assert_eq!(words(&engine.cycle(NOW)), ["n2"]);
}

#[test]
fn evictions_free_storage_capacity_if_it_is_published() {
    for (booked, wanted) in [(true, 1), (false, 0)] {
        let policy = Policy {
            actions: vec![ActionKind::Allocate, ActionKind::Preempt],
            csi_storage: booked,
            ..Policy::default()
        };
        let mut engine = engine(&["room b 0 on zone=b"], &[("n2", "d bound on zone=b owned")], policy);
        let mut urgent = group("g9", "q", 9);
        urgent.priority = 100;
        engine.apply(Event::Group(Box::new(urgent)), NOW);
        let mut pod = claiming(9, "c wait made tracked");
        pod.group = Some(group("g9", "q", 9).key);
        engine.apply(Event::Pod(Box::new(pod)), NOW);
        let decisions = engine.cycle(NOW);
        assert_eq!(decisions.evict.len(), wanted, "booked: {booked}: {decisions:?}");
        assert!(engine.model().broken_rules().is_empty());
    }
}
