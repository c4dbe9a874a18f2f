use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;

use futures::FutureExt;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::components::tests::recorded::Warnings;

/// An API server with these objects, by the end of their path; everything else is not found. Null is refused, and for a number the server fails. Counts
/// the reads.
fn cluster(objects: &[(&str, Value)]) -> (Owners, Arc<AtomicUsize>) {
    let objects: BTreeMap<String, Value> = objects
        .iter()
        .map(|(path, object)| ((*path).to_owned(), object.clone()))
        .collect();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let service = tower::service_fn(move |request: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let path = request.uri().path().to_owned();
        let object = objects
            .iter()
            .find(|(end, _)| path.ends_with(end.as_str()))
            .map(|(_, object)| object.clone());
        let hangs = path.contains(HANGS);
        let (code, body) = match object {
            Some(Value::Null) => (403, status(403, "Forbidden")),
            Some(Value::Number(_)) => (500, status(500, "InternalError")),
            Some(object) => (200, object),
            None => (404, status(404, "NotFound")),
        };
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            let response = Response::builder()
                .status(code)
                .header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap())
        }
    });
    (Owners::new(Client::new(service, "ns"), None), reads)
}

/// Path suffixes whose reads never get an answer.
const HANGS: &str = "hangs";

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code})
}

fn reference(kind: &str, name: &str) -> Value {
    let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("uid-{name}")})
}

fn object(kind: &str, name: &str, owners: &[Value]) -> Value {
    let meta = json!({"name": name, "uid": format!("uid-{name}"), "ownerReferences": owners});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": meta})
}

fn pod(owners: &[Value]) -> Pod {
    let meta = json!({"name": "p", "namespace": "ns", "uid": "u", "ownerReferences": owners});
    serde_json::from_value(json!({"metadata": meta})).unwrap()
}

async fn names(owners: &Owners, pod: &Pod) -> Result<Vec<String>, String> {
    match owners.chain(pod).await {
        Ok(Chain::Owned(chain)) => Ok(chain
            .into_iter()
            .map(|owner| format!("{} {}", owner.kind, owner.name))
            .collect()),
        Ok(Chain::OptedOut) => Ok(vec!["opted out".to_owned()]),
        Err(error) => Err(error.to_string()),
    }
}

/// A pod of a ReplicaSet of a Deployment, and the number of reads.
fn of_deployment() -> (Owners, Arc<AtomicUsize>, Pod) {
    let (owners, reads) = cluster(&[
        (
            "/replicasets/rs",
            object("ReplicaSet", "rs", &[reference("Deployment", "web")]),
        ),
        ("/deployments/web", object("Deployment", "web", &[])),
    ]);
    (owners, reads, pod(&[reference("ReplicaSet", "rs")]))
}

#[tokio::test]
async fn the_chain_is_walked_to_its_top_and_remembered() {
    let (owners, reads, pod) = of_deployment();
    assert_eq!(owners.cached(&pod), None);
    let many = futures::future::join_all((0..50).map(|_| names(&owners, &pod))).await;
    for chain in many {
        assert_eq!(chain, Ok(vec!["ReplicaSet rs".to_owned(), "Deployment web".to_owned()]));
    }
    assert_eq!(
        reads.load(Ordering::SeqCst),
        2,
        "each owner is read once for all of its pods"
    );
    assert!(matches!(owners.cached(&pod), Some(Chain::Owned(chain)) if chain.len() == 2));
    assert_eq!(reads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_owner_that_may_not_be_read_ends_the_chain_below_it() {
    let (owners, _) = cluster(&[
        (
            "/statefulsets/db",
            object("StatefulSet", "db", &[reference("Deployment", "secret")]),
        ),
        ("/deployments/secret", Value::Null),
    ]);
    assert_eq!(
        names(&owners, &pod(&[reference("StatefulSet", "db")])).await,
        Ok(vec!["StatefulSet db".to_owned()])
    );
    assert_eq!(
        names(&owners, &pod(&[reference("Deployment", "secret")])).await,
        Ok(Vec::new())
    );
}

#[tokio::test(start_paused = true)]
async fn default_priorities_that_may_not_be_read_are_reported_once() {
    let (mut owners, reads) = cluster(&[("/configmaps/defaults", Value::Null)]);
    owners.default_priorities = Some(("elsewhere".to_owned(), "defaults".to_owned()));
    let warnings = Warnings::from_now_on();
    for _ in 0..3 {
        owners.fetch(&Wanted::Defaults).await.unwrap();
        assert_eq!(
            *owners.defaults().unwrap(),
            Defaults::default(),
            "workloads are grouped without them"
        );
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert_eq!(
        reads.load(Ordering::SeqCst),
        3,
        "a right that is granted later is noticed"
    );
    assert_eq!(warnings.of("default priorities cannot be read"), 1);
    assert_eq!(warnings.of("failed to get ConfigMap elsewhere/defaults: Forbidden"), 1);
}

#[tokio::test(start_paused = true)]
async fn default_priorities_that_cannot_be_read_at_the_moment_are_not_taken_for_none() {
    let configured = Some(("elsewhere".to_owned(), "defaults".to_owned()));
    let (mut owners, reads) = cluster(&[("/configmaps/defaults", json!(500))]);
    owners.default_priorities.clone_from(&configured);
    for read in [1, 1, 2] {
        let failed = owners.fetch(&Wanted::Defaults).await.unwrap_err();
        assert_eq!(
            failed.to_string(),
            "failed to get ConfigMap elsewhere/defaults: InternalError"
        );
        assert_eq!(
            owners.defaults().unwrap_err(),
            RuleError::Unknown(Wanted::Defaults),
            "its workloads wait"
        );
        assert_eq!(
            reads.load(Ordering::SeqCst),
            read,
            "pods that come together cause one read"
        );
        tokio::time::advance(Duration::from_millis(600)).await;
    }

    let (mut owners, _) = cluster(&[]);
    owners.default_priorities = configured;
    owners.fetch(&Wanted::Defaults).await.unwrap();
    assert_eq!(*owners.defaults().unwrap(), Defaults::default(), "there is none");
}

#[tokio::test(start_paused = true)]
async fn owners_that_may_have_changed_are_read_anew() {
    let (owners, reads, pod) = of_deployment();
    owners.chain(&pod).await.unwrap();
    owners.chain_anew(&pod).await.unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 2, "they were just read");
    tokio::time::advance(Duration::from_secs(1)).await;
    owners.chain(&pod).await.unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 2);
    owners.chain_anew(&pod).await.unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_kind_that_no_label_can_name_has_no_karta() {
    let (owners, reads) = cluster(&[]);
    let named = |group: &str, kind: &str| KindName {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
    };
    let (long_group, long_kind) = (format!("{}.example.com", "g".repeat(60)), "K".repeat(64));
    for kind in [named(&long_group, "Job"), named("example.com", &long_kind)] {
        owners.fetch(&Wanted::Kartas(kind.clone())).await.unwrap();
        assert!(owners.kartas(&kind).unwrap().is_empty());
    }
    assert_eq!(reads.load(Ordering::SeqCst), 0);
    owners
        .fetch(&Wanted::Kartas(named("example.com", "Job")))
        .await
        .unwrap();
    assert!(reads.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn the_controller_counts_among_several_owners_of_a_pod() {
    let (owners, _) = cluster(&[("/jobs/j", object("Job", "j", &[]))]);
    let mut job = reference("Job", "j");
    job["controller"] = json!(true);
    assert_eq!(
        names(&owners, &pod(&[reference("Deployment", "other"), job])).await,
        Ok(vec!["Job j".to_owned()])
    );
}

#[tokio::test]
async fn unresolvable_owner_chains_are_reported_with_the_reason() {
    let (owners, _) = cluster(&[
        (
            "/jobs/j",
            object(
                "Job",
                "j",
                &[reference("Deployment", "a"), reference("Deployment", "b")],
            ),
        ),
        (
            "/deployments/a",
            object("Deployment", "a", &[reference("Deployment", "b")]),
        ),
        (
            "/deployments/b",
            object("Deployment", "b", &[reference("Deployment", "a")]),
        ),
        ("/deployments/new", object("Deployment", "other", &[])),
    ]);
    let said = async |kind, name| names(&owners, &pod(&[reference(kind, name)])).await.unwrap_err();
    assert_eq!(
        said("Job", "j").await,
        "found Job <j in namespace ns> with multiple owners: [Deployment a, Deployment b]"
    );
    assert_eq!(
        said("Deployment", "a").await,
        "the owners of pod ns/p form a loop or a chain of more than 16"
    );
    assert_eq!(
        said("Deployment", "new").await,
        "failed to find Deployment: <ns/new>, uid: <uid-new>: Owner resource with uid uid-new not found"
    );
    let gone = said("Deployment", "gone").await;
    assert!(
        gone.starts_with("failed to find Deployment: <ns/gone>, uid: <uid-gone>: "),
        "{gone}"
    );
}

#[tokio::test]
async fn an_owner_can_exclude_its_pods_from_grouping() {
    let mut job = object("Job", "j", &[reference("Deployment", "gone")]);
    job["metadata"]["annotations"] = json!({"kai.scheduler/skip-podgrouper": "true"});
    let (owners, _) = cluster(&[("/jobs/j", job)]);
    assert_eq!(
        names(&owners, &pod(&[reference("Job", "j")])).await,
        Ok(vec!["opted out".to_owned()])
    );
}

fn pod_in(namespace: &str, owners: &[Value]) -> Pod {
    let mut pod = pod(owners);
    pod.metadata.namespace = Some(namespace.to_owned());
    pod
}

#[tokio::test]
async fn invalid_owner_references_cause_no_requests() {
    let (owners, reads) = cluster(&[]);
    let changed = |key: &str, value: &str| {
        let mut reference = reference("Job", "j");
        reference[key] = json!(value);
        reference
    };
    let (long, endless) = ("n".repeat(254), "u".repeat(100_000));
    let hostile = [
        ("name", "?watch=true"),
        ("name", ""),
        ("name", ".."),
        ("name", "j/status"),
        ("name", "j#"),
        ("name", "%2e%2e"),
        ("name", &long),
        ("uid", &endless),
        ("kind", "Job?watch=true&"),
        ("kind", "../secret"),
        ("apiVersion", "batch/v1/namespaces/other"),
        ("apiVersion", "../v1"),
        ("apiVersion", ""),
    ];
    for (key, value) in hostile {
        let said = names(&owners, &pod(&[changed(key, value)])).await.unwrap_err();
        assert!(said.contains("is no valid name"), "{key}={value}: {said}");
        assert!(said.len() < 1_000, "{} bytes", said.len());
        assert_eq!(owners.cached(&pod(&[changed(key, value)])), None);
    }
    assert_eq!(reads.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn results_for_wrong_references_are_not_used_for_correct_ones() {
    let (owners, _) = cluster(&[
        ("/namespaces/ns/jobs/j", object("Job", "j", &[])),
        ("/deployments/secret", Value::Null),
    ]);
    let mut foreign = reference("Deployment", "secret");
    foreign["uid"] = json!("uid-j");
    assert_eq!(names(&owners, &pod(&[foreign])).await, Ok(vec![]));
    let elsewhere = pod_in("other", &[reference("Job", "j")]);
    assert!(names(&owners, &elsewhere).await.is_err());
    let right = names(&owners, &pod(&[reference("Job", "j")])).await;
    assert_eq!(right, Ok(vec!["Job j".to_owned()]));
}

#[tokio::test]
async fn hanging_reads_do_not_delay_other_namespaces_and_time_out() {
    let (mut owners, _) = cluster(&[("/jobs/j", object("Job", "j", &[]))]);
    let hanging: Vec<Pod> = (0..100)
        .map(|number| pod_in("loud", &[reference("Job", &format!("{HANGS}-{number}"))]))
        .collect();
    let mut waiting: Vec<_> = hanging.iter().map(|pod| names(&owners, pod).boxed()).collect();
    for walk in &mut waiting {
        assert!(walk.now_or_never().is_none());
    }
    let quiet = pod_in("quiet", &[reference("Job", "j")]);
    let read = timeout(READ_TIMEOUT, names(&owners, &quiet)).await;
    assert_eq!(read, Ok(Ok(vec!["Job j".to_owned()])), "while all of those hang");
    drop(waiting);

    owners.max_wait = Duration::from_millis(10);
    let said = names(&owners, &hanging[0]).await.unwrap_err();
    assert!(said.ends_with("the API server does not answer"), "{said}");
}

#[tokio::test]
async fn nothing_is_inherited_from_an_object_that_belongs_to_no_namespace() {
    let resource =
        json!({"name": "tenants", "singularName": "tenant", "namespaced": false, "kind": "Tenant", "verbs": ["get"]});
    let kinds =
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "x.io/v1", "resources": [resource]});
    let (owners, _) = cluster(&[
        ("/apis/x.io/v1", kinds),
        ("/tenants/t", object("Tenant", "t", &[])),
        ("/jobs/j", {
            let tenant = json!({"apiVersion": "x.io/v1", "kind": "Tenant", "name": "t", "uid": "uid-t"});
            object("Job", "j", &[tenant])
        }),
    ]);
    let chain = names(&owners, &pod(&[reference("Job", "j")])).await;
    assert_eq!(chain, Ok(vec!["Job j".to_owned()]));
}

#[tokio::test]
async fn an_owner_that_takes_too_much_memory_is_not_read() {
    let mut heavy = object("Job", "heavy", &[]);
    heavy["spec"] = json!(vec![json!({}); 10_000]);
    let mut deep = json!(0);
    for _ in 0..limits::JSON_DEPTH {
        deep = json!([deep]);
    }
    let mut deeper = object("Job", "deep", &[]);
    deeper["spec"] = deep;
    let (owners, _) = cluster(&[("/jobs/heavy", heavy), ("/jobs/deep", deeper)]);
    let said = async |name| names(&owners, &pod(&[reference("Job", name)])).await.unwrap_err();
    assert!(
        said("heavy")
            .await
            .ends_with("it cannot be read: reading it would take more than 4 MiB")
    );
    assert!(said("deep").await.contains("within one another"));
}

#[tokio::test]
async fn the_status_and_the_field_managers_of_an_owner_do_not_count() {
    let mut workflow = object("Job", "steps", &[]);
    workflow["status"] = json!({"nodes": vec![json!({}); 10_000]});
    workflow["metadata"]["managedFields"] =
        json!(vec![json!({"manager": "argo", "fieldsV1": {"f:status": {}}}); 5_000]);
    let (owners, _) = cluster(&[("/jobs/steps", workflow)]);
    let chain = names(&owners, &pod(&[reference("Job", "steps")])).await;
    assert_eq!(chain, Ok(vec!["Job steps".to_owned()]));
}

#[tokio::test]
async fn the_claim_that_owns_an_importer_pod_is_no_workload() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": "uid-data"});
    let (owners, _) = cluster(&[(
        "/persistentvolumeclaims/data",
        object("PersistentVolumeClaim", "data", &[]),
    )]);
    assert_eq!(names(&owners, &pod(&[claim])).await, Ok(vec![]));
}
