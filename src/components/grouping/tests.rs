//! Pods without owners that name a pod group of another client.

use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::*;
use crate::components::tests::lab::{Lab, read, refuse};
use crate::devcluster::apiserver::{Match, Times};

/// How a pod is grouped: the name of its group, `None` if not by us.
async fn group_of(lab: &Lab, pod: &Pod) -> Result<Option<String>, String> {
    let owners = Owners::new(lab.context.reads.clone(), None);
    let known = Known {
        stores: &lab.stores,
        owners: &owners,
        settings: &lab.context.settings,
    };
    let found = match known.cached(pod) {
        Some(found) => Ok(found),
        None => known.resolve_stored(pod, false).await,
    };
    match found {
        Ok(Found::Group(grouped, _)) => Ok(grouped.group.metadata.name),
        Ok(Found::Skipped) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn bound(named: &str) -> Pod {
    read(json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "1", "annotations": {"pod-group-name": named}},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "n1", "containers": []},
    }))
}

/// After an interruption of the watches, pods may be shown before pod groups are.
#[tokio::test(start_paused = true)]
async fn a_bound_pod_is_not_grouped_anew_because_its_pod_group_is_not_shown_yet() {
    let lab = Lab::start(Settings::default(), &["team"]).await;
    lab.install_definitions().await;
    let groups: Api<PodGroup> = Api::namespaced(lab.admin.clone(), "team");
    let pod = bound("gang");
    assert_eq!(group_of(&lab, &pod).await, Ok(Some("pg-a-1".to_owned())), "it is gone");
    for no_name in ["a,b=c", ""] {
        assert_eq!(group_of(&lab, &bound(no_name)).await, Ok(Some("pg-a-1".to_owned())));
    }

    let gang = json!({"metadata": {"namespace": "team", "name": "gang"}, "spec": {"minMember": 2}});
    let gang: PodGroup = groups.create(&PostParams::default(), &read(gang)).await.unwrap();
    assert_eq!(group_of(&lab, &pod).await, Ok(None));

    let rule = lab.fault(Match::verb_on("list", "podgroups"), refuse(500), Times::Always);
    let why = group_of(&lab, &pod).await.unwrap_err();
    assert!(why.contains("failed to look for PodGroup team/gang: "), "{why}");
    lab.stores.pod_groups.insert(gang);
    assert_eq!(group_of(&lab, &pod).await, Ok(None));
    assert_eq!(lab.struck(rule), 1, "nothing is asked if it is known");
}

#[test]
fn only_a_pod_with_both_labels_of_spark_is_named_after_its_application() {
    let is_foreign = |labels: &[&str]| {
        let labels: BTreeMap<&str, &str> = labels.iter().map(|label| (*label, "app")).collect();
        let named = json!({"pod-group-name": "app"});
        let pod: Pod = read(json!({
            "metadata": {"namespace": "team", "name": "a", "uid": "1", "labels": labels, "annotations": named},
            "spec": {"schedulerName": "kai-scheduler", "containers": []},
        }));
        names_foreign_group(&pod)
    };
    assert!(is_foreign(&[]));
    assert!(is_foreign(&["spark-app-selector"]));
    assert!(is_foreign(&["spark-app-name"]));
    assert!(!is_foreign(&["spark-app-selector", "spark-app-name"]));
}

#[test]
fn a_pod_whose_owner_may_not_be_read_is_not_in_the_group_that_its_template_names() {
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "2"});
    let pod: Pod = read(json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "1", "annotations": {"pod-group-name": "other"}, "ownerReferences": [owner]},
        "spec": {"schedulerName": "kai-scheduler", "containers": []},
    }));
    assert!(!names_foreign_group(&pod));
}
