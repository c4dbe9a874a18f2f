use super::*;

fn queue(yaml: &str) -> (QueueInput, Vec<Problem>) {
    let queue: Queue = serde_yaml_ng::from_str(yaml).expect("a queue");
    let mut problems = Vec::new();
    let read = read(&queue, true, &mut problems).expect("a queue of a full hierarchy");
    (read, problems)
}

#[test]
fn amounts_are_converted_to_integers_and_negative_ones_are_unlimited() {
    let (read, problems) = queue(
        "{metadata: {name: team-a, creationTimestamp: '2026-01-01T00:00:00Z'},
          spec: {displayName: Team A, parentQueue: all, priority: 7, reclaimMinRuntime: 1h30m,
                 resources: {cpu: {quota: 1500, limit: -1, overQuotaWeight: 2}, memory: {quota: 4096, limit: -5}, gpu: {quota: 0.5, limit: 0, overQuotaWeight: 0.25}}}}",
    );
    assert_eq!(
        (&*read.name, &*read.display, read.parent.as_deref(), read.priority),
        ("team-a", "Team A", Some("all"), 7)
    );
    assert_eq!(read.created, Time(1_767_225_600_000));
    assert_eq!(
        read.cpu,
        Share {
            quota: Some(1500),
            limit: None,
            weight: 2_000_000
        }
    );
    assert_eq!(
        read.memory,
        Share {
            quota: Some(4_096_000_000),
            limit: None,
            weight: 0
        }
    );
    assert_eq!(
        read.gpu,
        Share {
            quota: Some(GPU / 2),
            limit: Some(0),
            weight: 250_000
        }
    );
    assert_eq!(
        (read.preempt_min_runtime, read.reclaim_min_runtime),
        (None, Some(5_400_000))
    );
    assert_eq!(problems, []);
}

#[test]
fn a_negative_weight_is_zero() {
    let (read, _) = queue("{metadata: {name: q}, spec: {resources: {gpu: {overQuotaWeight: -1}}}}");
    assert_eq!(read.gpu.weight, 0);
}

#[test]
fn absent_amounts_are_zero() {
    let (read, problems) = queue("{metadata: {name: bare}, spec: {preemptMinRuntime: soon}}");
    let nothing = Share {
        quota: Some(0),
        limit: Some(0),
        weight: 0,
    };
    assert_eq!((read.cpu, read.memory, read.gpu), (nothing, nothing, nothing));
    assert_eq!(
        (&*read.display, read.parent, read.priority, read.preempt_min_runtime),
        ("bare", None, 100, None)
    );
    assert_eq!(
        problems,
        [Problem::Duration {
            field: "spec.preemptMinRuntime",
            value: "soon".to_owned()
        }]
    );
}

#[test]
fn a_flat_hierarchy_puts_queues_with_a_parent_below_one_root() {
    let parent = |yaml: &str| {
        let queue: Queue = serde_yaml_ng::from_str(yaml).expect("a queue");
        read(&queue, false, &mut Vec::new()).map(|queue| queue.parent)
    };
    assert_eq!(parent("{metadata: {name: top}, spec: {}}"), None);
    assert_eq!(
        parent("{metadata: {name: leaf}, spec: {parentQueue: mid}}"),
        Some(Some(name("default")))
    );
    assert_eq!(parent("{metadata: {name: default}, spec: {parentQueue: mid}}"), None);
    assert_eq!((flat_root().gpu.quota, flat_root().gpu.limit), (None, None));
}
