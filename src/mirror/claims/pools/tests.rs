use serde_json::json;

use super::*;

/// A slice of a pool of its own name, with so many GPUs on a node.
fn slice(pool: &str, node: &str, gpus: usize) -> Arc<ResourceSlice> {
    let devices: Vec<_> = (0..gpus).map(|gpu| json!({"name": format!("gpu-{gpu}")})).collect();
    let spec = json!({
        "driver": "gpu.nvidia.com", "nodeName": node, "devices": devices,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
    });
    Arc::new(serde_json::from_value(json!({"metadata": {"name": pool}, "spec": spec})).unwrap())
}

/// Counts the changed pools: the nodes whose GPUs changed, and the GPUs of two nodes then.
fn after(slices: &mut Slices, changed: BTreeSet<PoolKey>) -> (Vec<(Name, i64)>, [i64; 2]) {
    let told = changed.iter().flat_map(|key| slices.count(key)).collect();
    (told, ["n0", "n1"].map(|node| slices.gpus_on(node)))
}

#[test]
fn gpus_of_a_node_are_those_of_all_its_pools() {
    let mut slices = Slices::default();
    let changed = slices.put(slice("a", "n0", 2));
    assert_eq!(after(&mut slices, changed), (vec![("n0".into(), 2)], [2, 0]));
    let changed = slices.put(slice("b", "n0", 3));
    assert_eq!(after(&mut slices, changed), (vec![("n0".into(), 3)], [5, 0]));
    let changed = slices.put(slice("b", "n0", 3));
    assert_eq!(after(&mut slices, changed), (vec![], [5, 0]), "nothing is new");
    let changed = slices.put(slice("a", "n1", 1));
    let moved = vec![("n0".into(), -2), ("n1".into(), 1)];
    assert_eq!(after(&mut slices, changed), (moved, [3, 1]), "it moved");
    let changed = slices.remove("b");
    assert_eq!(after(&mut slices, changed), (vec![("n0".into(), -3)], [0, 1]));
    let changed = slices.remove("a");
    assert_eq!(after(&mut slices, changed), (vec![("n1".into(), -1)], [0, 0]));
    assert!(slices.gpus.is_empty() && slices.counted.is_empty(), "nothing is kept");
}
