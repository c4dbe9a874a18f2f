//! The ClusterRole of the manifests owns the webhook configurations. Without it none is registered, as unikai was uninstalled then.

use super::configurations::{Case, to_all};
use super::*;

/// Our ClusterRole.
fn role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": object::OPERATOR}})
}

async fn install(case: &Case) -> Value {
    case.lab.create(role()).await["metadata"]["uid"].clone()
}

async fn uninstall(case: &Case) {
    case.lab.delete(&role()).await;
}

/// The uids of the owners of a configuration.
async fn owners(case: &Case, name: &str) -> Vec<Value> {
    let owners = case.see(name).await["metadata"]["ownerReferences"].clone();
    owners
        .as_array()
        .into_iter()
        .flatten()
        .map(|owner| owner["uid"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_cluster_role_owns_the_configurations() {
    let case = Case::new().await;
    let uid = install(&case).await;
    case.start();
    sleep(MOMENT).await;
    assert_eq!(case.lab.writes(), to_all("create", 201));
    for name in [
        object::MUTATING_WEBHOOK,
        object::VALIDATING_WEBHOOK,
        object::POD_GROUP_WEBHOOK,
    ] {
        assert_eq!(owners(&case, name).await, std::slice::from_ref(&uid), "{name}");
    }
    let owner = case.see(object::QUEUE_WEBHOOK).await["metadata"]["ownerReferences"][0].clone();
    let reference =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "unikai", "uid": uid});
    assert_eq!(owner, reference);
}

#[tokio::test(start_paused = true)]
async fn after_an_uninstallation_nothing_is_registered_until_the_next_installation() {
    let case = Case::new().await;
    install(&case).await;
    case.start();
    sleep(MOMENT).await;
    case.forget_writes();
    uninstall(&case).await;
    case.delete_all().await;
    let before = case.lookups();
    for queue in 0..10 {
        let queue = json!({"metadata": {"name": format!("q{queue}")}, "spec": {}});
        case.lab.stores.queues.insert(read(queue));
        sleep(MOMENT).await;
    }
    sleep(seconds(9)).await;
    assert_eq!(case.lab.writes(), [""; 0]);
    let lookups = case.lookups() - before;
    assert!(
        (5..=10).contains(&lookups),
        "every two seconds, and for each deletion: {lookups}"
    );
    let uid = install(&case).await;
    sleep(seconds(2)).await;
    assert_eq!(case.lab.writes(), to_all("create", 201));
    assert_eq!(owners(&case, object::MUTATING_WEBHOOK).await, [uid]);
}

#[tokio::test(start_paused = true)]
async fn an_uninstallation_that_is_under_way_at_the_start_is_noticed_by_what_is_left() {
    for left in [object::MUTATING_WEBHOOK, object::VALIDATING_WEBHOOK] {
        let case = Case::new().await;
        install(&case).await;
        case.run(MOMENT).await;
        uninstall(&case).await;
        let kept = case.see(left).await;
        case.delete_all().await;
        let mut again = kept.clone();
        again["metadata"] = json!({"name": left, "ownerReferences": kept["metadata"]["ownerReferences"]});
        case.lab.create(again).await;
        case.forget_writes();
        case.run(minutes(1)).await;
        assert_eq!(case.lab.writes(), [""; 0], "{left}");
        assert!(!case.is_ready(), "{left}");
    }
}

#[tokio::test(start_paused = true)]
async fn configurations_without_an_owner_are_taken_over() {
    let case = Case::written().await;
    case.edit(object::QUEUE_WEBHOOK).await;
    case.run(MOMENT).await;
    assert!(case.is_right(object::QUEUE_WEBHOOK).await);
    assert_eq!(owners(&case, object::QUEUE_WEBHOOK).await, [Value::Null; 0]);
    let uid = install(&case).await;
    case.run(MOMENT).await;
    assert_eq!(owners(&case, object::QUEUE_WEBHOOK).await, [uid]);
}

#[tokio::test(start_paused = true)]
async fn configurations_belong_to_the_cluster_role_that_was_made_anew() {
    for edited in [None, Some(object::MUTATING_WEBHOOK), Some(object::QUEUE_WEBHOOK)] {
        let case = Case::new().await;
        install(&case).await;
        if edited.is_some() {
            case.start();
        } else {
            case.run(MOMENT).await;
        }
        sleep(MOMENT).await;
        uninstall(&case).await;
        let uid = install(&case).await;
        match edited {
            Some(name) => case.edit(name).await,
            None => drop(case.start()),
        }
        sleep(MOMENT).await;
        for name in [
            object::MUTATING_WEBHOOK,
            object::VALIDATING_WEBHOOK,
            object::QUEUE_WEBHOOK,
        ] {
            assert_eq!(
                owners(&case, name).await,
                std::slice::from_ref(&uid),
                "{edited:?}: {name}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_registered_while_the_cluster_role_cannot_be_looked_up() {
    let case = Case::new().await;
    let uid = install(&case).await;
    let rule = case
        .lab
        .fault(Match::verb_on("get", "clusterroles"), refuse(500), Times::Next(3));
    case.start();
    sleep(seconds(6) - MOMENT).await;
    assert!(case.lab.writes().is_empty() && !case.is_ready());
    assert_eq!(case.lab.struck(rule), 3);
    sleep(MOMENT * 2).await;
    assert!(case.is_ready());
    assert_eq!(owners(&case, object::MUTATING_WEBHOOK).await, [uid]);
    sleep(minutes(1)).await;
    assert_eq!(case.lookups(), 4, "once it is known, it is not looked up again");
    assert_eq!(case.lab.writes(), to_all("create", 201));
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_the_cluster_role_there_is_no_owner() {
    let case = Case::new().await;
    case.lab
        .fault(Match::verb_on("get", "clusterroles"), refuse(403), Times::Always);
    case.start();
    sleep(MOMENT).await;
    assert!(case.is_ready());
    assert_eq!(owners(&case, object::MUTATING_WEBHOOK).await, [Value::Null; 0]);
}
