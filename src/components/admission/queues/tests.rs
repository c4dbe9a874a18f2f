use serde_json::json;

use super::*;
use crate::components::admission::review::Denial;

fn check(name: &str, spec: Value, others: &[(&str, &str)]) -> Result<(), String> {
    let tree = others
        .iter()
        .map(|(name, parent)| ((*name).to_owned(), Some((*parent).to_owned())))
        .collect();
    let object =
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
    let request =
        serde_json::from_value(json!({"uid": "u", "operation": "UPDATE", "name": name, "object": object})).unwrap();
    match validate(&request, &tree).denial {
        None => Ok(()),
        Some(Denial { code, message }) => Err(format!("{code}: {message}")),
    }
}

#[test]
fn a_queue_says_what_it_may_use() {
    let missing = Err("403: resources must be specified".to_owned());
    assert_eq!(check("q", json!({}), &[]), missing);
    assert_eq!(check("q", json!({"parentQueue": "a"}), &[]), missing);
    assert_eq!(check("q", json!({"resources": null}), &[]), missing);
    assert_eq!(check("q", json!({"resources": {}}), &[]), Ok(()));
    assert_eq!(check("q", json!({"resources": {"gpu": {"quota": 1}}}), &[]), Ok(()));
}

#[test]
fn its_durations_can_be_read() {
    assert_eq!(
        check("q", json!({"resources": {}, "preemptMinRuntime": "1h30m"}), &[]),
        Ok(())
    );
    let unreadable = check("q", json!({"resources": {}, "preemptMinRuntime": "5 minutes"}), &[]).unwrap_err();
    assert!(unreadable.starts_with("400: spec.preemptMinRuntime: "), "{unreadable}");
}

#[test]
fn it_is_not_below_itself() {
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
