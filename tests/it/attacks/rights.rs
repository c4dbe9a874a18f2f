//! A tenant who may write pods, jobs and pod groups of one namespace has no rights on the operator's objects. A table of verb,
//! resource and user, checked by a real API server.

use kube::Client;
use serde_json::{Value, json};

use super::arena::{Arena, EVIL, with_fraction};
use crate::apiserver::harness::send;

const RESERVATIONS: &str = "kai-resource-reservation";

/// The user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The attacker.
    Tenant,
    /// The operator itself, which has no more rights than it needs.
    Operator,
}

use Who::{Operator, Tenant};

/// Verb, path, and whether it is granted.
const TABLE: &[(Who, &str, &str, bool)] = &[
    // What a tenant may do at all.
    (Tenant, "POST", "/api/v1/namespaces/evil/pods", true),
    (Tenant, "GET", "/api/v1/namespaces/evil/pods", true),
    // The attacks also try what this gives, which few tenants have.
    (
        Tenant,
        "PATCH",
        "/apis/scheduling.run.ai/v2alpha2/namespaces/evil/podgroups/x/status",
        true,
    ),
    // Pods of others, and what decides on pods besides the scheduler.
    (Tenant, "POST", "/api/v1/namespaces/team/pods", false),
    (Tenant, "GET", "/api/v1/namespaces/team/pods", false),
    (Tenant, "DELETE", "/api/v1/namespaces/team/pods/x", false),
    (Tenant, "POST", "/api/v1/namespaces/team/pods/x/eviction", false),
    (Tenant, "PATCH", "/api/v1/namespaces/team/configmaps/x", false),
    (
        Tenant,
        "PATCH",
        "/apis/resource.k8s.io/v1/namespaces/evil/resourceclaims/x/status",
        false,
    ),
    (Tenant, "POST", "/apis/resource.k8s.io/v1/resourceslices", false),
    (Tenant, "POST", "/apis/resource.k8s.io/v1/deviceclasses", false),
    (Tenant, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", false),
    (Tenant, "POST", "/apis/node.k8s.io/v1/runtimeclasses", false),
    (
        Tenant,
        "POST",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        false,
    ),
    (
        Tenant,
        "PATCH",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.run.ai",
        false,
    ),
    (Tenant, "PATCH", "/api/v1/namespaces/evil", false),
    (Tenant, "PATCH", "/api/v1/nodes/gpu-1/status", false),
    // Placement and its records.
    (Tenant, "POST", "/api/v1/namespaces/evil/pods/victim/binding", false),
    (Tenant, "PATCH", "/api/v1/namespaces/evil/pods/victim/status", false),
    (
        Tenant,
        "POST",
        "/apis/scheduling.run.ai/v1alpha2/namespaces/evil/bindrequests",
        false,
    ),
    (
        Tenant,
        "GET",
        "/apis/scheduling.run.ai/v1alpha2/namespaces/evil/bindrequests",
        false,
    ),
    (
        Tenant,
        "PATCH",
        "/apis/scheduling.run.ai/v1alpha2/namespaces/evil/bindrequests/x",
        false,
    ),
    (
        Tenant,
        "PATCH",
        "/apis/scheduling.run.ai/v1alpha2/namespaces/evil/bindrequests/x/status",
        false,
    ),
    (
        Tenant,
        "DELETE",
        "/apis/scheduling.run.ai/v1alpha2/namespaces/evil/bindrequests/x",
        false,
    ),
    (
        Tenant,
        "PATCH",
        "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups/x",
        false,
    ),
    (
        Tenant,
        "POST",
        "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups",
        false,
    ),
    // Queues and settings.
    (Tenant, "POST", "/apis/scheduling.run.ai/v2/queues", false),
    (Tenant, "PATCH", "/apis/scheduling.run.ai/v2/queues/greedy", false),
    (
        Tenant,
        "PATCH",
        "/apis/scheduling.run.ai/v2/queues/greedy/status",
        false,
    ),
    (Tenant, "DELETE", "/apis/scheduling.run.ai/v2/queues/innocent", false),
    (Tenant, "POST", "/apis/kai.scheduler/v1/configs", false),
    (Tenant, "POST", "/apis/kai.scheduler/v1/schedulingshards", false),
    (Tenant, "POST", "/apis/kai.scheduler/v1alpha1/topologies", false),
    // Reservations and scale-up pods.
    (
        Tenant,
        "POST",
        "/api/v1/namespaces/kai-resource-reservation/pods",
        false,
    ),
    (Tenant, "GET", "/api/v1/namespaces/kai-resource-reservation/pods", false),
    (
        Tenant,
        "DELETE",
        "/api/v1/namespaces/kai-resource-reservation/pods/x",
        false,
    ),
    (
        Tenant,
        "PATCH",
        "/api/v1/namespaces/kai-resource-reservation/pods/x",
        false,
    ),
    (
        Tenant,
        "POST",
        "/api/v1/namespaces/kai-resource-reservation/serviceaccounts/kai-resource-reservation/token",
        false,
    ),
    (Tenant, "POST", "/api/v1/namespaces/kai-scale-adjust/pods", false),
    // Leadership, webhooks, policies, certificates.
    (
        Tenant,
        "GET",
        "/apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases",
        false,
    ),
    (
        Tenant,
        "PATCH",
        "/apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases/unikai",
        false,
    ),
    (
        Tenant,
        "GET",
        "/api/v1/namespaces/kai-scheduler/secrets/unikai-webhook-tls",
        false,
    ),
    (Tenant, "DELETE", "/api/v1/namespaces/kai-scheduler/pods/x", false),
    (
        Tenant,
        "PATCH",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/mutating-kai-admission",
        false,
    ),
    (
        Tenant,
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/validating-kai-admission",
        false,
    ),
    (
        Tenant,
        "POST",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        false,
    ),
    (
        Tenant,
        "POST",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        false,
    ),
    (Tenant, "PATCH", "/api/v1/nodes/gpu-1", false),
    (
        Tenant,
        "POST",
        "/api/v1/namespaces/kai-scheduler/serviceaccounts/unikai/token",
        false,
    ),
    // The operator: rights that it must not have, so that a compromised operator does not have them either.
    (Operator, "POST", "/api/v1/namespaces/evil/pods", false),
    (Operator, "GET", "/api/v1/namespaces/evil/secrets", false),
    (Operator, "GET", "/api/v1/namespaces/evil/secrets/x", false),
    (
        Operator,
        "POST",
        "/api/v1/namespaces/evil/serviceaccounts/default/token",
        false,
    ),
    (Operator, "POST", "/api/v1/namespaces/kai-scheduler/pods", false),
    (Operator, "PATCH", "/api/v1/namespaces/evil", false),
    (Operator, "PATCH", "/api/v1/nodes/gpu-1/status", false),
    (
        Operator,
        "PATCH",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.run.ai",
        false,
    ),
    (
        Operator,
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/evil/roles",
        false,
    ),
    (Operator, "PATCH", "/api/v1/nodes/gpu-1", false),
    (Operator, "DELETE", "/apis/scheduling.run.ai/v2/queues/innocent", false),
    (Operator, "PATCH", "/apis/scheduling.run.ai/v2/queues/innocent", false),
    (
        Operator,
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/x",
        false,
    ),
    (
        Operator,
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        false,
    ),
    (
        Operator,
        "POST",
        "/api/v1/namespaces/kai-scheduler/serviceaccounts/unikai/token",
        false,
    ),
    (
        Operator,
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        false,
    ),
    (Operator, "GET", "/apis/scheduling.run.ai/v2/queues", true),
    (Operator, "GET", "/api/v1/pods", true),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_can_do_nothing_to_the_operators_objects() {
    let Some(arena) = Arena::real().await else { return };
    arena.create(with_fraction("victim", "0.5")).await.expect("created");
    let mut wrong = Vec::new();
    for &(who, verb, path, granted) in TABLE {
        let client = match who {
            Tenant => &arena.tenant,
            Operator => &arena.operator_client,
        };
        let code = ask(client, verb, path).await;
        // Any other status means that the request was authorized, even if it is invalid.
        if (code != 403) != granted {
            wrong.push(format!("{who:?} {verb} {path}: {code}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn ask(client: &Client, verb: &str, path: &str) -> u16 {
    let kind = match verb {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body: Value = match (verb, path.ends_with("/pods")) {
        ("POST", true) => json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "x", "image": "x"}]}}),
        ("POST" | "PATCH", _) => json!({"metadata": {"labels": {"x": "y"}}}),
        _ => Value::Null,
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let path = match verb {
        "GET" => path.to_owned(),
        _ => format!("{path}?dryRun=All"),
    };
    send(client, verb, &path, kind, "application/json", body).await.code
}

/// The namespaces of the table are those of the cluster.
#[test]
fn the_table_names_namespaces_that_exist() {
    for (_, _, path, _) in TABLE {
        let namespace = path
            .split_once("/namespaces/")
            .map(|(_, rest)| rest.split('/').next().unwrap_or_default());
        let known = [
            EVIL,
            "team",
            RESERVATIONS,
            "kai-scale-adjust",
            "kai-scheduler",
            "kube-node-lease",
        ];
        assert!(namespace.is_none_or(|namespace| known.contains(&namespace)), "{path}");
    }
}
