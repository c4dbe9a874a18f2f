use super::{Node, Weight};
use crate::api::limits;
use crate::engine::input::{Amounts, GPU, GpuKind, GpuRequest, WHOLE};
use crate::engine::model::ids::PodId;
use crate::engine::model::resources::{CPU, GPUS, PODS, ResourceNames, Resources};
use crate::engine::model::shape::Shape;
use crate::engine::tests::node;

fn half(cpu: i64, portion: i64) -> Shape {
    let request = Amounts {
        cpu,
        memory: 1,
        gpu: 0,
        other: Vec::new(),
    };
    let gpu = GpuRequest {
        kind: GpuKind::Fraction,
        count: 1,
        portion: portion * WHOLE / 10,
        ..GpuRequest::default()
    };
    Shape::new(&request, &gpu, &mut ResourceNames::default())
}

fn one_gpu() -> Node {
    let mut one = Node::unknown("n".into());
    let mut allocatable = Resources::default();
    allocatable.set(CPU, 8000);
    allocatable.set(GPUS, GPU);
    allocatable.set(PODS, 110);
    one.set_allocatable(allocatable);
    one.input = Some(Box::new(node("n", "1")));
    one
}

/// (idle GPUs, GPUs being released, idle cpu).
fn resources(node: &Node) -> (i64, i64, i64) {
    (
        node.idle.get(GPUS) / GPU,
        (node.future.get(GPUS) - node.idle.get(GPUS)) / GPU,
        node.idle.get(CPU),
    )
}

#[test]
fn a_shared_gpu_is_released_only_as_a_whole() {
    let mut node = one_gpu();
    let group = node.group(&"g".into());
    let (a, b, c) = (half(1000, 5), half(1000, 2), half(500, 5));
    node.account(PodId::of(1), (&a, &a.vector), &[group], false, Weight::Leaving, 1);
    assert_eq!(resources(&node), (0, 1, 7000), "its only user leaves");
    node.account(PodId::of(2), (&b, &b.vector), &[group], false, Weight::Staying, 1);
    assert_eq!(resources(&node), (0, 0, 6000), "somebody stays");
    node.account(PodId::of(3), (&c, &c.vector), &[group], false, Weight::Planned, 1);
    assert_eq!(resources(&node), (0, 0, 6000));
    let gpu = &node.groups[group as usize];
    assert_eq!(
        (gpu.used_memory(), gpu.free_now(100), gpu.free_later(100)),
        (120, 30, 30)
    );
    for (id, shape, weight) in [
        (3, &c, Weight::Planned),
        (2, &b, Weight::Staying),
        (1, &a, Weight::Leaving),
    ] {
        node.account(PodId::of(id), (shape, &shape.vector), &[group], false, weight, -1);
    }
    assert_eq!(resources(&node), (1, 0, 8000));
}

#[test]
fn a_pipelined_pod_uses_the_gpu_that_is_being_released() {
    let mut node = one_gpu();
    let (old, new) = (node.group(&"old".into()), node.group(&"new".into()));
    let (a, b) = (half(1000, 5), half(500, 5));
    node.account(PodId::of(1), (&a, &a.vector), &[old], false, Weight::Leaving, 1);
    node.account(PodId::of(2), (&b, &b.vector), &[new], false, Weight::Planned, 1);
    assert_eq!(resources(&node), (0, 0, 7000));
}

#[test]
fn a_reservation_pod_takes_no_gpu_itself() {
    let mut node = one_gpu();
    let request = Amounts {
        cpu: 1000,
        memory: 1,
        gpu: 0,
        other: Vec::new(),
    };
    let gpu = GpuRequest {
        count: 1,
        portion: WHOLE,
        ..GpuRequest::default()
    };
    let shape = Shape::new(&request, &gpu, &mut ResourceNames::default());
    node.account(PodId::of(1), (&shape, &shape.vector), &[], true, Weight::Staying, 1);
    assert_eq!(resources(&node), (1, 0, 7000));
    assert_eq!(node.idle.get(PODS), 109);
}

#[test]
fn unused_gpu_groups_are_removed_for_others() {
    let mut node = one_gpu();
    let shape = half(1, 1);
    let user = |node: &mut Node, group, sign| {
        node.account(
            PodId::of(1),
            (&shape, &shape.vector),
            &[group],
            false,
            Weight::Staying,
            sign,
        );
    };
    let kept = node.group_of_bound(&"kept".into()).unwrap();
    node.account(
        PodId::of(0),
        (&shape, &shape.vector),
        &[kept],
        false,
        Weight::Staying,
        1,
    );
    for number in 0..70_000 {
        let name = format!("g{number}").into();
        node.forget_unused_groups();
        let group = node.group_of_bound(&name).unwrap();
        user(&mut node, group, 1);
        assert_eq!(node.groups[group as usize].name, name);
        user(&mut node, group, -1);
    }
    assert!(node.groups.len() <= 3, "{}", node.groups.len());
    assert_eq!(node.group(&"kept".into()), kept, "whoever is used stays where it is");
}

#[test]
fn a_gpu_group_that_a_rollback_could_restore_is_kept() {
    let mut node = one_gpu();
    let opened = node.group(&"opened".into());
    let other = node.group(&"other".into());
    assert_ne!(opened, other, "nobody uses the first, but what is taken back may");
    node.forget_unused_groups();
    assert!(node.groups.is_empty());
}

#[test]
fn no_more_groups_are_kept_than_a_node_can_have() {
    let mut node = one_gpu();
    let shape = half(1, 1);
    for number in 0..limits::GPU_GROUPS_PER_NODE {
        let group = node.group_of_bound(&format!("g{number}").into()).unwrap();
        let pod = PodId::of(number);
        node.account(pod, (&shape, &shape.vector), &[group], false, Weight::Staying, 1);
    }
    assert_eq!(node.group_of_bound(&"one more".into()), None);
    assert!(
        node.group_of_bound(&"g7".into()).is_some(),
        "one that is there can be joined"
    );
    let before = node.idle.get(GPUS);
    node.charge_whole(2, Weight::Staying, 1);
    assert_eq!(before - node.idle.get(GPUS), 2 * GPU);
}
