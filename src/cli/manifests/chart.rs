//! The Helm chart, generated from the same templates as the plain manifests, so that both install the same objects.
//!
//! The namespace of the release is created by Helm (`--create-namespace`). CustomResourceDefinitions are in `crds/`: Helm installs them first, and
//! neither changes nor removes them later.

use super::{
    AFFINITY, CONFIG_MAPS, DISRUPTION_BUDGET, GPU_SHARING, KAI_SERVICES, MONITORING, NUMA_EXPORTER, TEMPLATES, Values,
    crds, fill,
};

const FOLDER: &str = "chart";
/// Cluster-scoped objects and rights are installed by an administrator.
const ADMINISTRATORS: &str = ".Values.clusterObjects.enabled";
/// The rest can be installed by anyone who may write in the namespace of the release.
const OPERATORS: &str = ".Values.operator.enabled";

/// The files of the chart.
pub fn files() -> Vec<(String, String)> {
    let version = env!("CARGO_PKG_VERSION");
    let about = format!(
        "apiVersion: v2\nname: unikai\ndescription: A Kubernetes scheduler for AI workloads\ntype: application\nversion: {version}\nappVersion: {version}\nkubeVersion: \">=1.30.0-0\"\n"
    );
    let mut files = vec![
        ("Chart.yaml".to_owned(), about),
        ("values.yaml".to_owned(), include_str!("chart/values.yaml").to_owned()),
        (
            "templates/_helpers.tpl".to_owned(),
            include_str!("chart/helpers.tpl").replace("${AFFINITY}", AFFINITY),
        ),
        (
            "templates/50-shard.yaml".to_owned(),
            only_if(ADMINISTRATORS, include_str!("chart/shard.yaml")),
        ),
    ];
    files.extend(
        crds::files()
            .into_iter()
            .map(|(name, text)| (format!("crds/{name}"), text)),
    );
    let values = values();
    for (name, text) in TEMPLATES {
        let text = fill(text, &values);
        let text = if name.contains("priority-classes") {
            // A pod group whose class is gone would become preemptible.
            only_if(".Values.defaultPriorityClasses.enabled", &kept("PriorityClass", &text))
        } else if name.contains("critical-pods") {
            only_if(".Values.global.priorityClassName", &text)
        } else {
            text
        };
        let whose = if name.contains("operator") {
            OPERATORS
        } else {
            ADMINISTRATORS
        };
        files.push((format!("templates/{name}"), only_if(whose, &text)));
    }
    let conditional = [
        (
            "45-gpu-sharing.yaml",
            ADMINISTRATORS,
            ".Values.global.gpuSharing",
            // Pods in these namespaces hold GPUs of running pods.
            kept("Namespace", GPU_SHARING),
        ),
        (
            "45-disruption-budget.yaml",
            OPERATORS,
            "gt (int .Values.operator.replicaCount) 1",
            DISRUPTION_BUDGET.to_owned(),
        ),
        (
            "45-config-maps.yaml",
            ADMINISTRATORS,
            ".Values.configMaps.enabled",
            CONFIG_MAPS.to_owned(),
        ),
        (
            "45-kai-services.yaml",
            OPERATORS,
            ".Values.kaiServices.enabled",
            KAI_SERVICES.to_owned(),
        ),
        (
            "45-numa-exporter.yaml",
            ADMINISTRATORS,
            ".Values.numaPlacementExporter.rights",
            NUMA_EXPORTER.to_owned(),
        ),
    ];
    for (name, whose, condition, text) in conditional {
        let text = only_if(whose, &only_if(condition, &fill(&text, &values)));
        files.push((format!("templates/{name}"), text));
    }
    for (name, text) in MONITORING {
        let text = only_if(".Values.monitoring.enabled", &fill(&literal(text), &values));
        let text = only_if(OPERATORS, &text);
        files.push((format!("templates/55-{name}"), text));
    }
    let mut files: Vec<_> = files
        .into_iter()
        .map(|(name, text)| (format!("{FOLDER}/{name}"), text))
        .collect();
    files.sort();
    files
}

/// A template that is empty unless the condition holds.
fn only_if(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

/// Objects of the kind that Helm does not delete.
fn kept(kind: &str, text: &str) -> String {
    let plain = format!("kind: {kind}\nmetadata:\n");
    let annotated = format!("{plain}  annotations:\n    helm.sh/resource-policy: keep\n");
    text.replace(&plain, &annotated)
}

/// Escapes braces that are not Helm's.
fn literal(text: &str) -> String {
    text.split("{{").collect::<Vec<_>>().join("{{ \"{{\" }}")
}

/// Values of the placeholders in the chart: Helm expressions.
fn values() -> Values {
    let value = |path: &str| format!("{{{{ .Values.{path} }}}}");
    let block = |name: &str, spaces: usize| {
        format!(
            "\n{}{{{{- include \"unikai.{name}\" . | nindent {spaces} }}}}",
            " ".repeat(spaces)
        )
    };
    Values::from([
        ("NAMESPACE", "{{ .Release.Namespace }}".to_owned()),
        ("SCHEDULER_NAME", value("global.schedulerName")),
        ("QUEUE_LABEL_KEY", value("podgrouper.queueLabelKey")),
        ("NODE_POOL_LABEL_KEY", value("global.nodePoolLabelKey")),
        ("RESERVATION_NAMESPACE", value("global.resourceReservation.namespace")),
        (
            "RESERVATION_ACCOUNT",
            value("global.resourceReservation.serviceAccount"),
        ),
        ("SCALING_NAMESPACE", value("global.scaleAdjust.namespace")),
        ("SCALING_ACCOUNT", value("global.scaleAdjust.serviceAccount")),
        ("IMAGE", "{{ include \"unikai.image\" . | quote }}".to_owned()),
        ("PULL_POLICY", value("global.imagePullPolicy")),
        ("PRIORITY_CLASS", value("global.priorityClassName")),
        ("REPLICAS", format!("\n  replicas: {}", value("operator.replicaCount"))),
        (
            "LOG_FORMAT",
            "{{ ternary \"json\" \"text\" .Values.global.jsonLog }}".to_owned(),
        ),
        ("FLAGS", String::new()),
        ("AFFINITY", block("affinity", 8)),
        ("RESOURCES", " {{ toJson .Values.operator.resources }}".to_owned()),
        ("POD", block("pod", 6)),
        ("MOUNTS", block("mounts", 8)),
        ("ENV", block("env", 8)),
    ])
}
