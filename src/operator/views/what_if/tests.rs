use std::collections::BTreeMap;

use super::*;
use crate::components::Settings;

fn received(text: &'static str) -> Received {
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    Received {
        text: Bytes::from_static(text.as_bytes()),
        _place: place,
    }
}

/// Otherwise an error would tell which labels a namespace has that the caller may not see.
#[test]
fn the_namespaces_of_manifests_are_known_before_they_are_grouped() {
    let job = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: []}}}}";
    let question = Question::Manifests(Manifests::read(received(job), "secret".to_owned()).unwrap());
    assert_eq!(question.namespaces(), HashSet::from(["secret".to_owned()]));

    let excluding = Surroundings {
        settings: Settings {
            namespace_labels: BTreeMap::from([("team".to_owned(), "yes".to_owned())]),
            ..Settings::default()
        },
        stores: Arc::default(),
        defaults: Arc::default(),
    };
    let (status, why) = question.pods(|| Ok(excluding)).err().unwrap();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(why.contains("configuration excludes it"), "{why}");
}

#[test]
fn manifests_that_cannot_be_read_are_refused_without_a_cluster() {
    let why = Manifests::read(received("a: b"), "team".to_owned()).err().unwrap();
    assert!(why.starts_with("not a manifest"), "{why}");
}

#[test]
fn pods_get_what_an_api_server_adds_at_their_creation() {
    let term = json!({"labelSelector": {}, "topologyKey": "zone", "matchLabelKeys": ["version"]});
    let pod = json!({
        "metadata": {"name": "web", "labels": {"version": "2"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        },
    });
    let asked = Asked::new(vec![serde_json::from_value(pod).unwrap()], Vec::new());
    let spec = serde_json::to_value(&asked.pods[0].spec).unwrap();
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "2"}));
    let terms = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let version = json!([{"key": "version", "operator": "In", "values": ["2"]}]);
    assert_eq!(terms[0]["labelSelector"]["matchExpressions"], version);
}
