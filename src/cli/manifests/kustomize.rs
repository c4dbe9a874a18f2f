//! `Kustomization` files: `manifests/` is a kustomize base, and its folders are components of it. `kubectl apply -f` ignores these files, as their
//! name has no extension.

/// A component's change of the operator's Deployment.
enum Change {
    Nothing,
    /// An environment variable is set to `true`.
    SwitchedOn(&'static str),
    Replicas(u32),
}

const COMPONENTS: [(&str, Change); 7] = [
    ("config-maps", Change::SwitchedOn("UNIKAI_CONFIG_MAPS")),
    ("gpu-sharing", Change::SwitchedOn("UNIKAI_GPU_SHARING")),
    ("kai-services", Change::Nothing),
    ("monitoring", Change::Nothing),
    ("network-policy", Change::Nothing),
    ("numa-exporter", Change::Nothing),
    ("two-replicas", Change::Replicas(2)),
];

/// The `Kustomization` of the base, which has these files.
pub fn base(manifests: &[(String, String)]) -> (String, String) {
    let resources = resources(manifests.iter().map(|(name, _)| name.as_str()));
    let text = format!("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{resources}");
    ("Kustomization".to_owned(), text)
}

/// The `Kustomization` of each folder that has some of these files.
pub fn components(files: &[(String, String)]) -> Vec<(String, String)> {
    let component = |(folder, change): &(&str, Change)| {
        let inside = |(name, _): &'_ (String, String)| name.strip_prefix(*folder)?.strip_prefix('/').map(str::to_owned);
        let names: Vec<String> = files.iter().filter_map(inside).collect();
        let resources = resources(names.iter().map(String::as_str));
        let change = match change {
            Change::Nothing => String::new(),
            Change::SwitchedOn(variable) => switched_on(variable),
            Change::Replicas(count) => format!("replicas:\n- name: unikai\n  count: {count}\n"),
        };
        let text = format!("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n{resources}{change}");
        (format!("{folder}/Kustomization"), text)
    };
    COMPONENTS.iter().map(component).collect()
}

fn resources<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let items: String = names.map(|name| format!("- {name}\n")).collect();
    format!("resources:\n{items}")
}

fn switched_on(variable: &str) -> String {
    format!(
        "\
patches:
- target:
    kind: Deployment
    name: unikai
  patch: |
    - op: add
      path: /spec/template/spec/containers/0/env/-
      value:
        name: {variable}
        value: \"true\"
"
    )
}
