use super::*;

#[test]
fn the_request_has_all_pods_of_a_workload_with_their_resources() {
    let job = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {kai.scheduler/queue: team}}
spec:
  parallelism: 5
  template:
    spec:
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]
"#;
    let asked = asked(job, "lab").unwrap();
    let pods = asked["pods"].as_array().unwrap();
    assert_eq!(pods.len(), 5);
    let limits = &pods[4]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(
        (&limits["nvidia.com/gpu"], &pods[4]["metadata"]["namespace"]),
        (&json!("2"), &json!("lab"))
    );
    assert_eq!(pods[0]["spec"]["schedulerName"], "kai-scheduler");
    let groups = asked["podGroups"].as_array().unwrap();
    let group = &pods[0]["metadata"]["annotations"]["pod-group-name"];
    assert!(
        groups
            .iter()
            .any(|known| known["metadata"]["name"] == *group && known["spec"]["queue"] == "team"),
        "{asked}"
    );
    let error = format!("{:#}", super::asked("a: b", "lab").unwrap_err());
    assert!(error.contains("not a manifest"), "{error}");
}
