//! The Helm chart, made of the same templates as the plain manifests, so that both install the same objects.
//!
//! Absent: the namespace of the release, which Helm makes (`--create-namespace`). CustomResourceDefinitions are in `crds/`: Helm installs them
//! first, and neither changes nor removes them later.

use super::{
    AFFINITY, CONFIG_MAPS, DISRUPTION_BUDGET, GPU_SHARING, KAI_SERVICES, MONITORING, NUMA_EXPORTER, TEMPLATES, Values,
    crds, fill,
};

const FOLDER: &str = "chart";

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
            include_str!("chart/shard.yaml").to_owned(),
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
            only_if(".Values.defaultPriorityClasses.enabled", &text)
        } else {
            text
        };
        files.push((format!("templates/{name}"), text));
    }
    let conditional = [
        ("45-gpu-sharing.yaml", ".Values.global.gpuSharing", GPU_SHARING),
        (
            "45-disruption-budget.yaml",
            "gt (int .Values.operator.replicaCount) 1",
            DISRUPTION_BUDGET,
        ),
        ("45-config-maps.yaml", ".Values.configMaps.enabled", CONFIG_MAPS),
        (
            "45-numa-exporter.yaml",
            ".Values.numaPlacementExporter.rights",
            NUMA_EXPORTER,
        ),
        ("45-kai-services.yaml", ".Values.kaiServices.enabled", KAI_SERVICES),
    ];
    for (name, condition, text) in conditional {
        files.push((format!("templates/{name}"), only_if(condition, &fill(text, &values))));
    }
    for (name, text) in MONITORING {
        let text = only_if(".Values.monitoring.enabled", &fill(&literal(text), &values));
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

/// A text with braces that are not Helm's.
fn literal(text: &str) -> String {
    text.split("{{").collect::<Vec<_>>().join("{{ \"{{\" }}")
}

/// What the placeholders become in the chart: what Helm puts in their places.
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
        ("IMAGE", "{{ include \"unikai.image\" . | quote }}".to_owned()),
        ("PULL_POLICY", value("global.imagePullPolicy")),
        ("PRIORITY_CLASS", value("global.priorityClassName")),
        ("REPLICAS", value("operator.replicaCount")),
        (
            "LOG_FORMAT",
            "{{ ternary \"json\" \"text\" .Values.global.jsonLog }}".to_owned(),
        ),
        ("FLAGS", String::new()),
        ("AFFINITY", block("affinity", 8)),
        ("RESOURCES", " {{ toJson .Values.operator.resources }}".to_owned()),
        ("POD", block("pod", 6)),
        ("ENV", block("env", 8)),
    ])
}
