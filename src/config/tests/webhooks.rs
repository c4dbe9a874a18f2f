use super::*;

#[test]
fn without_a_controller_its_webhook_is_not_registered() {
    let registered = |controller: Value| {
        let config = json!({"queueController": controller, "podGroupController": controller});
        let scope = resolved(config, json!({})).0.common.admission.scope;
        (scope.queues, scope.pod_groups)
    };
    let validation = |on: bool| json!({"enableValidation": on});
    assert_eq!(registered(json!({})), (true, true));
    assert_eq!(registered(json!({"webhooks": validation(false)})), (false, false));
    let off = json!({"enabled": false});
    assert_eq!(registered(json!({"service": off})), (false, false));
    assert_eq!(
        registered(json!({"service": off, "webhooks": validation(true)})),
        (false, false)
    );
}
