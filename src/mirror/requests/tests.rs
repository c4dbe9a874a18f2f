use super::*;

const GIB: i64 = 1 << 30;
const GIGA: i64 = 1_000_000_000;
const MIB: i64 = 1 << 20;

fn gpus() -> Vec<String> {
    crate::mirror::Settings::default().gpu_resources
}

fn pod(yaml: &str) -> Pod {
    serde_yaml_ng::from_str(yaml).expect("a pod")
}

fn request(yaml: &str) -> (Amounts, GpuRequest, Vec<Problem>) {
    let mut problems = Vec::new();
    let (amounts, gpu) = of_pod(&pod(yaml), true, &gpus(), &mut problems);
    (amounts, gpu, problems)
}

/// (milli-cores, bytes, GPUs)
fn check_containers(spec: &str, expected: (i64, i64, i64)) {
    let (amounts, gpu, problems) = request(&format!("spec: {spec}"));
    assert_eq!((amounts.cpu, amounts.memory, gpu.count), expected, "{spec}");
    assert_eq!(problems, [], "{spec}");
}

#[test]
fn containers_add_up_and_init_containers_peak() {
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1G}}}, {name: b, resources: {requests: {cpu: 2000m, memory: 1G}}}],
          initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 2000m, memory: 5G}}}, {name: i, resources: {requests: {cpu: 2000m, memory: 1G}}}]}",
        (5000, 7 * GIGA, 0),
    );
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1G}}}, {name: b, resources: {requests: {cpu: 2000m, memory: 1G}}}],
          initContainers: [{name: i, resources: {requests: {cpu: 2000m, memory: 5G}}}, {name: j, resources: {requests: {cpu: 2000m, memory: 1G}}}]}",
        (3000, 5 * GIGA, 0),
    );
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 4000m, memory: 8Gi}}}],
          initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 250m, memory: 256Mi}}}, {name: i, resources: {requests: {cpu: 500m, memory: 1G}}}]}",
        (4250, 8 * GIB + 256 * MIB, 0),
    );
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1Gi}}}],
          initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 500m, memory: 256Mi}}}, {name: i, resources: {requests: {cpu: 5000m, memory: 1Gi}}}]}",
        (5500, GIB + 256 * MIB, 0),
    );
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 1000m}}}],
          initContainers: [{name: i, resources: {requests: {cpu: 5000m}}}, {name: s, restartPolicy: Always, resources: {requests: {cpu: 500m}}}]}",
        (5000, 0, 0),
    );
}

#[test]
fn sidecars_bring_their_gpus_and_overhead_brings_none() {
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 4000m, memory: 8Gi, nvidia.com/gpu: 2}}}],
          initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 250m, memory: 256Mi, nvidia.com/gpu: 1}}}]}",
        (4250, 8 * GIB + 256 * MIB, 3),
    );
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1G, nvidia.com/gpu: 1}}}, {name: b, resources: {requests: {cpu: 2000m, memory: 1G}}}],
          overhead: {cpu: 1000m, memory: 1G, nvidia.com/gpu: 1}}",
        (4000, 3 * GIGA, 1),
    );
}

#[test]
fn quantities_are_added_before_rounding_and_gpus_of_all_vendors_are_summed() {
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 500u, amd.com/gpu: 1}}}, {name: b, resources: {requests: {cpu: 500u, nvidia.com/gpu: 2}}}]}",
        (1, 0, 3),
    );
    check_containers(
        "{containers: [{name: a, resources: {requests: {nvidia.com/gpu: 0}}}]}",
        (0, 0, 0),
    );
}

#[test]
fn every_resource_is_counted_in_its_unit_and_zeros_are_dropped() {
    let (amounts, gpu, problems) = request(
        "spec: {containers: [{name: a, resources: {requests: {ephemeral-storage: 1Ki, example.com/nic: 2, hugepages-2Mi: 4Mi, aliyun.com/gpu: 1,
           nvidia.com/gpu.shared: 1, example.com/none: 0, odd: 5, pods: 7, nvidia.com/mig-1g.5gb: 2, nvidia.com/mig-2g.10gb: 0}}}]}",
    );
    let expected = [
        ("aliyun.com/gpu", 1000),
        ("ephemeral-storage", 1024),
        ("example.com/nic", 2000),
        ("hugepages-2Mi", 4 * MIB),
        ("nvidia.com/gpu.shared", 1000),
    ];
    assert_eq!(
        amounts.other,
        expected.map(|(resource, amount)| (name(resource), amount))
    );
    assert_eq!(
        (gpu.kind, gpu.count, gpu.mig),
        (GpuKind::Mig, 0, vec![(name("nvidia.com/mig-1g.5gb"), 2)])
    );
    assert_eq!(problems, []);
}

#[test]
fn unreadable_requests_are_reported() {
    let (amounts, _, problems) =
        request("spec: {containers: [{name: a, resources: {requests: {cpu: lots, memory: 1Gi}}}]}");
    assert_eq!((amounts.cpu, amounts.memory), (0, GIB));
    assert_eq!(
        problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["spec.containers: quantity \"lots\" of cpu cannot be used"]
    );
}

/// (kind, devices, portion in thousandths, memory), of a pod with so many whole GPUs; and what is told.
fn check_annotations(annotations: &str, whole: u32, expected: (GpuKind, i64, i64, i64), told: &[&str]) {
    let requests = if whole == 0 {
        String::new()
    } else {
        format!("nvidia.com/gpu: {whole}")
    };
    let (_, gpu, problems) = request(&format!(
        "{{metadata: {{annotations: {{{annotations}}}}}, spec: {{containers: [{{name: a, resources: {{requests: {{{requests}}}}}}}]}}}}"
    ));
    assert_eq!(
        (gpu.kind, gpu.count, gpu.portion / (WHOLE / 1000), gpu.memory),
        expected,
        "{annotations}"
    );
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, told, "{annotations}");
}

#[test]
fn annotations_ask_for_shares_of_gpus() {
    use GpuKind::{Fraction, Memory, Regular};
    check_annotations("", 2, (Regular, 2, 1000, 0), &[]);
    check_annotations("gpu-fraction: '0.5'", 0, (Fraction, 1, 500, 0), &[]);
    check_annotations("gpu-fraction: '5e-1'", 0, (Fraction, 1, 500, 0), &[]);
    check_annotations(
        "gpu-fraction: '0.5', gpu-fraction-num-devices: '3'",
        0,
        (Fraction, 3, 500, 0),
        &[],
    );
    check_annotations("gpu-memory: '1024'", 0, (Memory, 1, 0, 1024), &[]);
    check_annotations(
        "gpu-memory: '1024', gpu-fraction-num-devices: '2'",
        0,
        (Memory, 2, 0, 1024),
        &[],
    );
    check_annotations("gpu-memory: '9223372036854775808'", 0, (Memory, 1, 0, 1 << 28), &[]);
}

#[test]
fn whole_gpus_count_whatever_annotations_say_beside_them() {
    use GpuKind::Regular;
    let both = "cannot have both GPU fraction request and whole GPU resource request/limit";
    check_annotations("gpu-fraction: '0.01'", 8, (Regular, 8, 1000, 0), &[both]);
    check_annotations(
        "gpu-memory: '1'",
        8,
        (Regular, 8, 1000, 0),
        &["cannot request both GPU and GPU memory"],
    );
    let mig = "cannot have both a whole GPU resource request/limit and MIG instances in annotations (nvidia.com/mig-…)";
    check_annotations("nvidia.com/mig-none: '1'", 8, (Regular, 8, 1000, 0), &[mig]);
}

#[test]
fn annotations_of_pods_of_other_schedulers_mean_nothing() {
    for annotation in [
        "gpu-fraction: '0.01'",
        "gpu-memory: nonsense",
        "nvidia.com/mig-none: '1'",
    ] {
        let pod = pod(&format!(
            "{{metadata: {{annotations: {{{annotation}}}}}, spec: {{containers: [{{name: a, resources: {{requests: {{nvidia.com/gpu: 8}}}}}}]}}}}"
        ));
        let mut problems = Vec::new();
        let (_, gpu) = of_pod(&pod, false, &gpus(), &mut problems);
        assert_eq!(
            (gpu.kind, gpu.count, gpu.portion),
            (GpuKind::Regular, 8, WHOLE),
            "{annotation}"
        );
        assert_eq!(problems, [], "{annotation}");
    }
}

#[test]
fn invalid_annotations_are_reported() {
    use crate::api::gpu_request::InvalidRequest;
    use GpuKind::Regular;
    let nothing = (Regular, 0, 0, 0);
    for text in ["1", "1.5", "0", "-0.5", "abc", "inf", "500m", ""] {
        let fraction = InvalidRequest::Fraction(text.to_owned()).to_string();
        check_annotations(&format!("gpu-fraction: '{text}'"), 0, nothing, &[&fraction]);
    }
    for text in ["2Gi", "-5", "0"] {
        let memory = InvalidRequest::Memory(text.to_owned()).to_string();
        check_annotations(&format!("gpu-memory: '{text}'"), 0, nothing, &[&memory]);
    }
    for text in ["x", "0"] {
        let annotations = format!("gpu-fraction: '0.25', gpu-fraction-num-devices: '{text}'");
        let devices = InvalidRequest::Devices(text.to_owned()).to_string();
        check_annotations(&annotations, 0, nothing, &[&devices]);
    }
    check_annotations(
        "gpu-fraction: '0.5', gpu-memory: '1024'",
        0,
        nothing,
        &["cannot request both GPU and GPU memory"],
    );
}

#[test]
fn mig_profiles_in_annotations_are_asked_for() {
    let (_, gpu, problems) = request(
        "{metadata: {annotations: {nvidia.com/mig-1g.5gb: '2', nvidia.com/mig-2g.10gb: many}}, spec: {containers: [{name: a}]}}",
    );
    assert_eq!(
        gpu,
        GpuRequest {
            kind: GpuKind::Mig,
            mig: vec![(name("nvidia.com/mig-1g.5gb"), 2)],
            legacy_mig: true,
            ..GpuRequest::default()
        }
    );
    assert_eq!(problems, []);
}

#[test]
fn whole_gpus_beside_mig_profiles_contradict_one_another() {
    let (_, _, problems) = request(
        "spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 1, nvidia.com/mig-1g.5gb: 1}}}]}",
    );
    assert!(matches!(problems[..], [Problem::Contradiction(_)]), "{problems:?}");
}

#[test]
fn a_node_adds_up_its_vendors_and_keeps_its_profiles() {
    let resources = serde_yaml_ng::from_str(
        "{cpu: 7500m, memory: 16Gi, pods: 110, nvidia.com/gpu: 8, amd.com/gpu: 2, nvidia.com/mig-1g.5gb: 3, a.b/c: 1}",
    );
    let mut problems = Vec::new();
    let Allocatable {
        amounts,
        pods,
        gpu_resources,
    } = allocatable(&resources.expect("resources"), &gpus(), &mut problems);
    assert_eq!(gpu_resources, [name("amd.com/gpu"), name("nvidia.com/gpu")]);
    let other = vec![(name("a.b/c"), 1000), (name("nvidia.com/mig-1g.5gb"), 3)];
    assert_eq!(
        (amounts, pods),
        (
            Amounts {
                cpu: 7500,
                memory: 16 * GIB,
                gpu: 10 * GPU,
                other
            },
            110
        )
    );
    assert_eq!(problems, []);
}

#[test]
fn amounts_of_a_node_above_the_maximum_count_as_the_maximum() {
    let resources = serde_yaml_ng::from_str(
        "{cpu: '9223372036854775807', memory: 100Ti, ephemeral-storage: 80Ti, hugepages-1Gi: 128Gi, example.com/bytes: 1Ti, example.com/less: '-1',
          nvidia.com/gpu: 2M}",
    );
    let mut problems = Vec::new();
    let Allocatable { amounts, .. } = allocatable(&resources.expect("resources"), &gpus(), &mut problems);
    let other = [
        ("ephemeral-storage", MOST),
        ("example.com/bytes", MOST),
        ("hugepages-1Gi", 128 * GIB),
    ];
    assert_eq!((amounts.cpu, amounts.memory, amounts.gpu), (MOST, MOST, 0));
    assert_eq!(amounts.other, other.map(|(resource, amount)| (name(resource), amount)));
    assert_eq!(
        problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "status.allocatable: quantity \"-1\" of example.com/less cannot be used",
            "status.allocatable: quantity \"2M\" of nvidia.com/gpu cannot be used"
        ]
    );
}

#[test]
fn a_pod_may_request_as_many_huge_pages_as_memory() {
    let (amounts, _, problems) = request(
        "spec: {containers: [{name: a, resources: {requests: {memory: 1Gi, hugepages-1Gi: 128Gi}}}], resources: {requests: {hugepages-2Mi: 70Gi}}}",
    );
    assert_eq!(problems, []);
    let other = [("hugepages-1Gi", 128 * GIB), ("hugepages-2Mi", 70 * GIB)];
    assert_eq!(amounts.other, other.map(|(resource, amount)| (name(resource), amount)));
    let (_, _, problems) = request("spec: {containers: [{name: a, resources: {requests: {hugepages-1Gi: 65Ti}}}]}");
    assert_eq!(
        problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["spec.containers: quantity \"65Ti\" of hugepages-1Gi cannot be used"]
    );
}

#[test]
fn other_vendors_count_as_gpus_where_the_settings_say_so() {
    let pod = pod("spec: {containers: [{name: a, resources: {requests: {gpu.intel.com/xe: 2, amd.com/gpu: 1}}}]}");
    let other = [gpus(), vec!["gpu.intel.com/xe".to_owned()]].concat();
    let (_, plain) = of_pod(&pod, true, &gpus(), &mut Vec::new());
    let (amounts, gpu) = of_pod(&pod, true, &other, &mut Vec::new());
    assert_eq!((plain.count, gpu.count), (1, 3));
    assert_eq!(amounts.other, []);
}

#[test]
fn pod_level_requests_are_counted() {
    check_containers(
        "{containers: [{name: a, resources: {requests: {cpu: 1, nvidia.com/gpu: 2}}}, {name: b}], overhead: {cpu: 250m},
          resources: {requests: {cpu: 64, memory: 8Gi, nvidia.com/gpu: 5}}}",
        (64_250, 8 * GIB, 2),
    );
}

#[test]
fn a_pod_that_is_resized_counts_for_the_most_that_it_may_hold() {
    let resized = |asked: &str, allocated: &str, has: &str, conditions: &str| {
        let (amounts, _, problems) = request(&format!(
            "{{spec: {{nodeName: n, containers: [{{name: a, resources: {{requests: {{cpu: {asked}, nvidia.com/gpu: 1}}}}}}]}},
              status: {{conditions: [{conditions}], containerStatuses: [{{name: a, image: '', imageID: '', ready: true, restartCount: 0,
                allocatedResources: {{cpu: {allocated}, nvidia.com/gpu: 1}}, resources: {{requests: {{cpu: {has}}}}}}}]}}}}"
        ));
        assert_eq!(problems, []);
        amounts.cpu
    };
    assert_eq!(resized("1", "8", "8", ""), 8_000, "made smaller, and not yet");
    assert_eq!(resized("16", "8", "8", ""), 16_000, "made larger: it may get it");
    assert_eq!(resized("1", "1", "8", ""), 8_000, "the kubelet is at it");
    let refused = "{type: PodResizePending, status: 'True', reason: Infeasible}";
    assert_eq!(
        resized("1000", "8", "8", refused),
        8_000,
        "what it will not get is nobody's"
    );
}
