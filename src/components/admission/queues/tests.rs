use serde_json::{Value, json};

use super::*;
use crate::components::admission::review::Denial;

fn check(name: &str, spec: Value, others: &[(&str, &str)]) -> Result<(), String> {
    let find = |name: &str| {
        let (_, parent) = others.iter().find(|(other, _)| *other == name)?;
        Some(Arc::new(queue(
            json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}}),
        )))
    };
    let object =
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
    let request =
        serde_json::from_value(json!({"uid": "u", "operation": "UPDATE", "name": name, "object": object})).unwrap();
    match validate(&request, &find, Rules::default()).denial {
        None => Ok(()),
        Some(Denial { code, message }) => Err(format!("{code}: {message}")),
    }
}

#[test]
fn a_queue_without_resources_is_denied() {
    let missing = Err("403: resources must be specified".to_owned());
    assert_eq!(check("q", json!({}), &[]), missing);
    assert_eq!(check("q", json!({"parentQueue": "a"}), &[]), missing);
    assert_eq!(check("q", json!({"resources": null}), &[]), missing);
    assert_eq!(check("q", json!({"resources": {}}), &[]), Ok(()));
    assert_eq!(check("q", json!({"resources": {"gpu": {"quota": 1}}}), &[]), Ok(()));
}

#[test]
fn durations_of_a_queue_are_validated() {
    assert_eq!(
        check("q", json!({"resources": {}, "preemptMinRuntime": "1h30m"}), &[]),
        Ok(())
    );
    let unreadable = check("q", json!({"resources": {}, "preemptMinRuntime": "5 minutes"}), &[]).unwrap_err();
    assert!(unreadable.starts_with("400: spec.preemptMinRuntime: "), "{unreadable}");
}

#[test]
fn a_queue_that_is_its_own_ancestor_is_denied() {
    let below = |parent: &str| json!({"resources": {}, "parentQueue": parent});
    let others = [("a", ""), ("b", "a"), ("c", "b"), ("x", "y"), ("y", "x")];
    assert_eq!(check("d", below("c"), &others), Ok(()));
    assert_eq!(check("d", below("missing"), &others), Ok(()));
    assert_eq!(
        check("d", below("d"), &others),
        Err("403: a queue cannot be below itself: d → d. Choose another parentQueue".to_owned())
    );
    assert_eq!(
        check("a", below("c"), &others),
        Err("403: a queue cannot be below itself: a → c → b → a. Choose another parentQueue".to_owned())
    );
    assert_eq!(
        check("d", below("x"), &others),
        Ok(()),
        "a circle above is not this queue's doing, and ends the walk"
    );
}

fn queue(mut object: Value) -> Queue {
    object["apiVersion"] = json!("scheduling.run.ai/v2");
    object["kind"] = json!("Queue");
    serde_json::from_value(object).unwrap()
}

/// Of CPU, GPU and memory.
fn quotas(cpu: f64, gpu: f64, memory: f64) -> Value {
    json!({"cpu": {"quota": cpu}, "gpu": {"quota": gpu}, "memory": {"quota": memory}})
}

fn warnings(operation: &str, object: &Value, old: &Value, others: &[Value]) -> Verdict {
    judged(operation, object, old, others, false)
}

fn judged(operation: &str, object: &Value, old: &Value, others: &[Value], protect: bool) -> Verdict {
    let typed = |object: &Value| {
        let mut object = object.clone();
        if !object.is_null() {
            object["apiVersion"] = json!("scheduling.run.ai/v2");
            object["kind"] = json!("Queue");
        }
        object
    };
    let request = json!({"uid": "u", "operation": operation, "object": typed(object), "oldObject": typed(old)});
    let find = |name: &str| {
        let other = others.iter().find(|other| other["metadata"]["name"] == json!(name))?;
        Some(Arc::new(queue(other.clone())))
    };
    let request: Request = serde_json::from_value(request).unwrap();
    validate(&request, &find, Rules { quotas: true, protect })
}

#[test]
fn a_quota_above_that_of_the_parent_draws_warnings() {
    let parent = json!({"metadata": {"name": "dad"}, "spec": {"resources": quotas(10_000.0, 2.0, 1_000.0)}, "status": {"childQueues": ["kid", "sib"]}});
    let sibling =
        json!({"metadata": {"name": "sib"}, "spec": {"parentQueue": "dad", "resources": quotas(6_000.0, 0.0, 0.0)}});
    let kid =
        |resources: Value| json!({"metadata": {"name": "kid"}, "spec": {"parentQueue": "dad", "resources": resources}});
    let others = [parent, sibling];
    let told = |resources| warnings("CREATE", &kid(resources), &Value::Null, &others);
    assert_eq!(told(quotas(4_000.0, 2.0, 1_000.0)), Verdict::allow());
    assert_eq!(
        told(quotas(5_000.0, 3.0, 1_000.0)).warnings,
        [
            "total children CPU quota (11000) exceeds parent queue dad CPU quota (10000)",
            "child queue GPU quota (3.00) exceeds parent queue dad GPU quota (2.00)",
        ]
    );
    assert_eq!(
        told(quotas(0.0, 0.0, -1.0)).warnings,
        ["child queue Memory quota (unlimited) exceeds parent queue dad Memory quota (1000)"]
    );
    assert_eq!(
        told(quotas(12_000.0, 0.0, 1_001.0)).warnings,
        [
            "child queue CPU quota (12000) exceeds parent queue dad CPU quota (10000)",
            "total children CPU quota (18000) exceeds parent queue dad CPU quota (10000)",
            "child queue Memory quota (1001) exceeds parent queue dad Memory quota (1000)",
        ]
    );
    let orphan = json!({"metadata": {"name": "kid"}, "spec": {"parentQueue": "nobody", "resources": {}}});
    let denial = warnings("CREATE", &orphan, &Value::Null, &others).denial.unwrap();
    assert_eq!(
        denial.message,
        "queue kid: its parent queue nobody does not exist. Create nobody first, or choose another parentQueue"
    );
}

#[test]
fn a_quota_lowered_below_those_of_children_draws_warnings() {
    let child =
        json!({"metadata": {"name": "leaf"}, "spec": {"parentQueue": "mid", "resources": quotas(9_000.0, 5.0, 10.0)}});
    let mid = |resources: Value| json!({"metadata": {"name": "mid"}, "spec": {"resources": resources}, "status": {"childQueues": ["leaf"]}});
    let lowered = warnings(
        "UPDATE",
        &mid(quotas(8_000.0, 5.0, 10.0)),
        &mid(json!({})),
        std::slice::from_ref(&child),
    );
    assert_eq!(
        lowered.warnings,
        [
            "child queue leaf CPU quota (9000) exceeds parent CPU quota (8000)",
            "total children CPU quota (9000) exceeds parent CPU quota (8000)",
        ]
    );
    let less = warnings(
        "UPDATE",
        &mid(quotas(9_000.0, 4.5, 9.0)),
        &mid(json!({})),
        std::slice::from_ref(&child),
    );
    assert_eq!(
        less.warnings,
        [
            "total children GPU quota (5.00) exceeds parent GPU quota (4.50)",
            "total children Memory quota (10) exceeds parent Memory quota (9)",
        ]
    );
    let unlimited = warnings("UPDATE", &mid(quotas(-1.0, -1.0, -1.0)), &mid(json!({})), &[child]);
    assert_eq!(unlimited, Verdict::allow());
}

#[test]
fn an_update_is_not_refused_for_a_fault_that_it_does_not_concern() {
    let orphan = |finalizers: Value| {
        let metadata = json!({"name": "kid", "finalizers": finalizers});
        json!({"metadata": metadata, "spec": {"parentQueue": "nobody", "resources": {}}})
    };
    let told = |object: &Value, old: &Value| {
        let verdict = warnings("UPDATE", object, old, &[]);
        verdict.denial.map(|denial| denial.message)
    };
    let (old, freed) = (orphan(json!(["foregroundDeletion"])), orphan(json!([])));
    assert_eq!(told(&freed, &old), None, "only a finalizer is gone");

    let mut changed = freed.clone();
    changed["spec"]["priority"] = json!(5);
    let missing =
        "queue kid: its parent queue nobody does not exist. Create nobody first, or choose another parentQueue";
    assert_eq!(told(&changed, &old).as_deref(), Some(missing));
    changed["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    assert_eq!(told(&changed, &old), None, "it is being deleted");

    let mut closed = freed.clone();
    closed["metadata"]["annotations"] = json!({"unikai.dev/allowed-namespaces": "Team A"});
    assert!(told(&closed, &freed).is_some_and(|told| told.contains("can be no namespace")));
    assert_eq!(told(&closed, &closed), None);
}

fn deleted(queue: &Value, protect: bool) -> Verdict {
    judged("DELETE", &Value::Null, queue, &[], protect)
}

#[test]
fn deleting_a_queue_with_children_draws_a_warning_unless_queues_are_protected() {
    let queue = |children: Value| json!({"metadata": {"name": "dad"}, "spec": {"resources": {}}, "status": {"childQueues": children}});
    let parent = queue(json!(["a", "b"]));
    let denial = deleted(&parent, true).denial.unwrap();
    assert_eq!(denial.message, "cannot delete queue dad: it has child queues [a b]");
    let warned = deleted(&parent, false);
    assert_eq!(warned.denial, None);
    assert_eq!(
        warned.warnings,
        [
            "queue dad has child queues [a b]: nothing new starts in them until dad is there again, or they have another parentQueue"
        ]
    );
    for protect in [true, false] {
        assert_eq!(deleted(&queue(json!([])), protect), Verdict::allow());
    }
}

#[test]
fn deleting_a_queue_with_workloads_draws_a_warning_unless_queues_are_protected() {
    let queue = |requested: Value| json!({"metadata": {"name": "q"}, "spec": {"resources": {}}, "status": {"requested": requested}});
    let busy = queue(json!({"cpu": "2", "memory": "0", "nvidia.com/gpu": "1"}));
    assert_eq!(
        deleted(&busy, true).denial.unwrap().message,
        "cannot delete queue q: its workloads ask for cpu 2, nvidia.com/gpu 1; delete them first, or move them to another queue"
    );
    let warned = deleted(&busy, false);
    assert_eq!(warned.denial, None);
    assert!(
        warned.warnings[0].starts_with("queue q has workloads that ask for cpu 2, nvidia.com/gpu 1: "),
        "{:?}",
        warned.warnings
    );
    for protect in [true, false] {
        assert_eq!(deleted(&queue(json!({"cpu": "0"})), protect), Verdict::allow());
    }
}
