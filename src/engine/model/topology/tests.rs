use super::*;
use crate::engine::tests::scenario::node;

/// A topology of nodes given by their labels, and the ids of those nodes.
fn sorted(levels: &[&str], labels: &[&str]) -> (Topology, Vec<NodeId>) {
    let mut nodes = Arena::<NodeId, Node>::default();
    let ids: Vec<NodeId> = labels
        .iter()
        .enumerate()
        .map(|(number, labels)| {
            let name = format!("n{number}");
            let mut known = Node::unknown(name.as_str().into());
            known.input = Some(Box::new(node(&name, &format!("1 {labels}"))));
            nodes.insert(known)
        })
        .collect();
    let mut topology = Topology::new(levels.iter().map(|level| Name::from(*level)).collect());
    topology.sort_nodes(&nodes, &ids);
    (topology, ids)
}

fn common(labels: &[&str], deepest: usize) -> String {
    let (topology, _) = sorted(&["zone", "rack"], labels);
    topology.domains[topology.common_domain(None, deepest)].name.to_string()
}

#[test]
fn racks_of_the_same_name_in_two_zones_are_two_domains() {
    let (topology, ids) = sorted(&["zone", "rack"], &["zone=a rack=r", "zone=b rack=r", "zone=a rack=r"]);
    let name = |id: NodeId, level| {
        topology.domains[topology.domain_of(id, level).unwrap()]
            .name
            .to_string()
    };
    assert_eq!(name(ids[0], 2), "a.r");
    assert_eq!(name(ids[1], 2), "b.r");
    assert_eq!(name(ids[1], 1), "b");
    assert_eq!(
        topology.nodes_of(topology.domain_of(ids[0], 1).unwrap()),
        [ids[0], ids[2]]
    );
    assert_eq!(topology.nodes_of(0), [ids[0], ids[2], ids[1]]);
}

#[test]
fn dots_in_labels_do_not_mix_domains_up() {
    let (topology, ids) = sorted(&["zone", "rack"], &["zone=a.b rack=c", "zone=a rack=b.c"]);
    assert_ne!(topology.domain_of(ids[0], 2), topology.domain_of(ids[1], 2));
}

#[test]
fn a_node_without_one_of_the_labels_is_in_no_domain() {
    let (topology, ids) = sorted(&["zone", "rack"], &["zone=a rack=r", "zone=a"]);
    assert_eq!(topology.domain_of(ids[1], 1), None);
    assert_eq!(topology.nodes, [ids[0]]);
}

#[test]
fn the_common_domain_is_the_narrowest_that_holds_all_but_no_narrower_than_asked() {
    for (labels, deepest, wanted) in [
        (&["zone=z1 rack=r1", "zone=z1 rack=r1"][..], 2, "z1.r1"),
        (&["zone=z1 rack=r1", "zone=z1 rack=r1"], 1, "z1"),
        (&["zone=z1 rack=r1", "zone=z1 rack=r1"], 0, "root"),
        (&["zone=z1 rack=r1", "zone=z1 rack=r2"], 2, "z1"),
        (&["zone=z1 rack=r1", "zone=z2 rack=r1"], 2, "root"),
        (&["zone=z1 rack=r1", "zone=z1"], 2, "z1.r1"),
        (&["zone=z1", "rack=r1"], 2, "root"),
        (&[], 2, "root"),
    ] {
        assert_eq!(common(labels, deepest), wanted, "{labels:?} down to {deepest}");
    }
}

#[test]
fn the_common_domain_of_some_nodes() {
    let (topology, ids) = sorted(&["zone", "rack"], &["zone=a rack=1", "zone=a rack=2", "zone=b rack=1"]);
    let mut among = NodeSet::default();
    among.add(ids[0].at());
    among.add(ids[1].at());
    assert_eq!(&*topology.domains[topology.common_domain(Some(&among), 2)].name, "a");
    assert_eq!(topology.node_set(0, Some(&among)).count(), 2);
}
