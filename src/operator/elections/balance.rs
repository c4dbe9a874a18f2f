//! The division of shards among replicas. Pure: all replicas compute the same from the same input.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// The replica that is to lead each shard. Each leads at most an equal part, rounded up; for the cluster's leader the default node pool is included
/// in it. A change of replicas moves few shards. Nothing is assigned before the cluster has a leader. A leader that is none of the replicas, as before it has
/// listed everything, gets shards only if there are no replicas.
#[must_use]
pub fn assign<'a>(shards: &[&'a str], replicas: &'a [String], leader: Option<&'a str>) -> BTreeMap<&'a str, &'a str> {
    let Some(leader) = leader else { return BTreeMap::new() };
    let mut replicas: Vec<&str> = replicas.iter().map(String::as_str).collect();
    if replicas.is_empty() {
        replicas.push(leader);
    }
    replicas.sort_unstable();
    replicas.dedup();
    let mut leads: BTreeMap<&str, usize> = BTreeMap::new();
    if replicas.contains(&leader) {
        leads.insert(leader, 1);
    }
    let most = (shards.len() + leads.len()).div_ceil(replicas.len());
    let mut shards = shards.to_vec();
    shards.sort_unstable();
    let mut assigned = BTreeMap::new();
    for shard in shards {
        let free = replicas
            .iter()
            .filter(|replica| leads.get(*replica).copied().unwrap_or(0) < most);
        let Some(&replica) = free.max_by_key(|replica| weight(shard, replica)) else {
            continue;
        };
        *leads.entry(replica).or_default() += 1;
        assigned.insert(shard, replica);
    }
    assigned
}

/// Rendezvous hashing: the replica with the highest value wins, so that removing one does not move the shards of others.
fn weight(shard: &str, replica: &str) -> [u8; 32] {
    Sha256::new()
        .chain_update(shard)
        .chain_update([0])
        .chain_update(replica)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_assigned_before_the_cluster_is_led() {
        assert!(assign(&["a"], &["one".to_owned()], None).is_empty());
        assert_eq!(assign(&["a"], &[], Some("one")), [("a", "one")].into());
    }

    #[test]
    fn a_leader_that_does_not_count_as_a_replica_gets_nothing_from_those_that_do() {
        let shards = ["a", "b", "c", "d"];
        let replicas = ["two".to_owned(), "three".to_owned()];
        let assigned = assign(&shards, &replicas, Some("one"));
        let of = |name: &str| assigned.values().filter(|replica| **replica == name).count();
        assert_eq!((of("one"), of("two"), of("three")), (0, 2, 2));
    }

    proptest! {
        #[test]
        fn every_shard_has_one_replica_and_no_replica_more_than_its_part(shards in 0_usize..20, replicas in 1_usize..6) {
            let shards: Vec<String> = (0..shards).map(|shard| format!("shard-{shard}")).collect();
            let shards: Vec<&str> = shards.iter().map(String::as_str).collect();
            let replicas: Vec<String> = (0..replicas).map(|replica| format!("replica-{replica}")).collect();
            let assigned = assign(&shards, &replicas, Some("replica-0"));
            prop_assert_eq!(assigned.len(), shards.len());
            let most = (shards.len() + 1).div_ceil(replicas.len());
            for replica in &replicas {
                let leads = assigned.values().filter(|other| *other == replica).count();
                let with_default = leads + usize::from(replica == "replica-0");
                prop_assert!(with_default <= most, "{} leads {}", replica, with_default);
            }
        }
    }
}
