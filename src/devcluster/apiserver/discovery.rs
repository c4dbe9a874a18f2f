//! Discovery: which groups, versions and resources there are, one document at a time or aggregated in one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    openapi::Served,
    registry::{Catalog, Resource, api_version},
    request::Verb,
};

/// `/version`: the version of Kubernetes that this server reports.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "35",
        "gitVersion": "v1.35.0+unikai",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`.
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(crate) fn groups(catalog: &Catalog) -> Value {
    let groups: Vec<Value> = versions_by_group(catalog)
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group(name, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`; `None` for a group that is not served.
pub(crate) fn one_group(catalog: &Catalog, name: &str) -> Option<Value> {
    let groups = versions_by_group(catalog);
    let mut document = group(name, groups.get(name)?);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(document)
}

fn group(name: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": api_version(name, version), "version": version});
    json!({"name": name, "versions": versions.iter().map(entry).collect::<Vec<_>>(), "preferredVersion": versions.first().map(entry)})
}

/// Versions of each group, the preferred one first.
fn versions_by_group(catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for resource in catalog.iter() {
        let versions = groups.entry(resource.group.clone()).or_default();
        if !versions.contains(&resource.version) {
            versions.push(resource.version.clone());
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    }
    groups
}

/// How much a version is preferred: stable before beta before alpha, newer before older, others last.
fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let (stability, major, minor) = match (rest.split_once("beta"), rest.split_once("alpha")) {
            (Some((major, minor)), _) => (2, major, minor),
            (None, Some((major, minor))) => (1, major, minor),
            (None, None) => (3, rest, "0"),
        };
        Some((stability, major.parse().ok()?, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

/// `/api/v1` or `/apis/GROUP/VERSION`; `None` for one that is not served.
pub(crate) fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    for resource in catalog.of(group, version) {
        entries.push(resource_entry(resource));
        for (name, kind, verbs) in subresources(resource) {
            let (group, version) = kind_version(&kind, resource);
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": names(&verbs),
            });
            if (group, version) != (resource.group.as_str(), resource.version.as_str()) {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            entries.push(entry);
        }
    }
    if entries.is_empty() {
        return None;
    }
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version), "resources": entries}),
    )
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": names(resource.verbs()),
        "storageVersionHash": "",
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    entry
}

fn names(verbs: &[Verb]) -> Vec<&'static str> {
    verbs.iter().map(|verb| verb.as_str()).collect()
}

/// Subresources of a resource: name, kind of the body, verbs.
fn subresources(resource: &Resource) -> Vec<(&'static str, String, Vec<Verb>)> {
    let mut entries = Vec::new();
    for (name, kind) in resource.subresources {
        let verb = if *name == "finalize" {
            Verb::Update
        } else {
            Verb::Create
        };
        entries.push((*name, (*kind).to_owned(), vec![verb]));
    }
    let change = vec![Verb::Get, Verb::Patch, Verb::Update];
    if resource.has_status {
        entries.push(("status", resource.kind.clone(), change.clone()));
    }
    if resource.scale.is_some() {
        entries.push(("scale", "Scale".to_owned(), change));
    }
    entries
}

fn kind_version<'a>(kind: &str, resource: &'a Resource) -> (&'a str, &'a str) {
    match kind {
        "Scale" => ("autoscaling", "v1"),
        "Eviction" => ("policy", "v1"),
        "TokenRequest" => ("authentication.k8s.io", "v1"),
        _ => (&resource.group, &resource.version),
    }
}

/// `/api` or `/apis` as one `APIGroupDiscoveryList`.
pub(crate) fn aggregated(catalog: &Catalog, core: bool) -> Value {
    let groups: Vec<Value> = versions_by_group(catalog)
        .iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| aggregated_version(catalog, name, version))
                .collect();
            let metadata = if core {
                json!({"creationTimestamp": null})
            } else {
                json!({"name": name, "creationTimestamp": null})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups})
}

fn aggregated_version(catalog: &Catalog, group: &str, version: &str) -> Value {
    let resources: Vec<Value> = catalog
        .of(group, version)
        .map(|resource| aggregated_resource(resource))
        .collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &Resource) -> Value {
    // Built-in kinds of the version that lists them leave it out.
    let implied = (resource.group.as_str(), resource.version.as_str());
    let kind = |group: &str, version: &str, kind: &str| {
        let implied = resource.custom().is_none() && (group, version) == implied;
        let (group, version) = if implied { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": names(resource.verbs()),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = subresources(resource)
        .iter()
        .map(|(name, body, verbs)| {
            let (group, version) = kind_version(body, resource);
            json!({"subresource": name, "responseKind": kind(group, version, body), "verbs": names(verbs)})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

/// All kinds, as OpenAPI documents describe them.
pub(crate) fn described(catalog: &Catalog) -> Vec<Served<'_>> {
    catalog
        .iter()
        .map(|resource| Served {
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
            plural: &resource.plural,
            namespaced: resource.namespaced,
            custom: resource.custom(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_and_newer_versions_are_preferred() {
        let mut versions = vec!["v1alpha1", "v2", "v1", "v1beta2", "v10", "foo", "v1beta10"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }
}
