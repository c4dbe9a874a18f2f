use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn kind() -> Arc<Kind> {
    Arc::new(Kind {
        resource: ApiResource::erase::<ConfigMap>(&()),
        namespaced: true,
    })
}

fn owner(name: &str) -> OwnerReference {
    let block_owner_deletion = Some(true);
    OwnerReference {
        uid: name.to_owned(),
        name: name.to_owned(),
        block_owner_deletion,
        ..OwnerReference::default()
    }
}

fn meta(name: &str, owners: &[&str]) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        owner_references: Some(owners.iter().map(|name| owner(name)).collect()),
        ..ObjectMeta::default()
    }
}

fn deleting(name: &str, finalizer: &str) -> ObjectMeta {
    ObjectMeta {
        deletion_timestamp: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
        finalizers: Some(vec![finalizer.to_owned()]),
        ..meta(name, &[])
    }
}

fn uid(name: &str) -> Uid {
    Uid(name.to_owned())
}

/// A graph of `a`, without an owner, and `b` and `c`, owned by `a`.
fn family() -> Graph {
    let mut graph = Graph::default();
    assert!(graph.observe(&kind(), &meta("a", &[])).is_empty());
    assert_eq!(graph.observe(&kind(), &meta("b", &["a"])), [uid("b")]);
    assert_eq!(graph.observe(&kind(), &meta("c", &["a"])), [uid("c")]);
    graph
}

#[test]
fn dependents_of_a_deleted_owner_are_looked_at() {
    let mut graph = family();
    assert!(matches!(graph.plan(&uid("b")), Plan::Nothing));
    assert_eq!(graph.remove(&uid("a")), [uid("b"), uid("c")]);
    let Plan::CheckOwners {
        live,
        waiting,
        unknown,
        has_dependents,
    } = graph.plan(&uid("b"))
    else {
        panic!("its owner is not known");
    };
    assert_eq!(
        (live.len(), waiting.len(), unknown.len(), has_dependents),
        (0, 0, 1, false)
    );
}

#[test]
fn a_foreground_deletion_waits_for_those_that_block_it() {
    let mut graph = family();
    graph.observe(&kind(), &deleting("a", FOREGROUND));
    assert!(matches!(graph.plan(&uid("a")), Plan::Await { dependents } if dependents == [uid("b"), uid("c")]));
    assert!(matches!(graph.plan(&uid("b")), Plan::CheckOwners { waiting, .. } if waiting.len() == 1));
    assert_eq!(graph.remove(&uid("b")), [uid("a")]);
    graph.remove(&uid("c"));
    assert!(matches!(graph.plan(&uid("a")), Plan::LetGo { finalizer: FOREGROUND }));
}

#[test]
fn an_orphaning_deletion_frees_the_dependents_first() {
    let mut graph = family();
    graph.observe(&kind(), &deleting("a", ORPHAN));
    assert!(matches!(graph.plan(&uid("a")), Plan::Orphan { dependents } if dependents.len() == 2));
    graph.observe(&kind(), &meta("b", &[]));
    graph.observe(&kind(), &meta("c", &[]));
    assert!(matches!(graph.plan(&uid("a")), Plan::Orphan { dependents } if dependents.is_empty()));
}

#[test]
fn a_namespace_knows_its_objects() {
    let mut graph = family();
    assert_eq!(graph.in_namespace("ns").len(), 3);
    graph.remove(&uid("b"));
    assert_eq!(graph.in_namespace("ns").len(), 2);
    assert!(graph.in_namespace("other").is_empty());
}
