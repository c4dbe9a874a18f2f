use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// An API server with these objects, by the end of their path; everything else is not found. Counts the reads.
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
        let (code, body) = match object {
            Some(Value::Null) => (403, status(403, "Forbidden")),
            Some(object) => (200, object),
            None => (404, status(404, "NotFound")),
        };
        async move {
            let response = Response::builder()
                .status(code)
                .header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap())
        }
    });
    (Owners::new(Client::new(service, "ns"), None), reads)
}

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

#[tokio::test]
async fn the_chain_is_walked_to_its_top_and_remembered() {
    let (owners, reads) = cluster(&[
        (
            "/replicasets/rs",
            object("ReplicaSet", "rs", &[reference("Deployment", "web")]),
        ),
        ("/deployments/web", object("Deployment", "web", &[])),
    ]);
    let pod = pod(&[reference("ReplicaSet", "rs")]);
    assert_eq!(owners.remembered(&pod), None);
    let many = futures::future::join_all((0..50).map(|_| names(&owners, &pod))).await;
    for chain in many {
        assert_eq!(chain, Ok(vec!["ReplicaSet rs".to_owned(), "Deployment web".to_owned()]));
    }
    assert_eq!(
        reads.load(Ordering::SeqCst),
        2,
        "each owner is read once for all of its pods"
    );
    assert!(matches!(owners.remembered(&pod), Some(Chain::Owned(chain)) if chain.len() == 2));
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
async fn what_cannot_be_followed_is_said_in_a_sentence() {
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
async fn an_owner_can_keep_the_grouper_away() {
    let mut job = object("Job", "j", &[reference("Deployment", "gone")]);
    job["metadata"]["annotations"] = json!({"kai.scheduler/skip-podgrouper": "true"});
    let (owners, _) = cluster(&[("/jobs/j", job)]);
    assert_eq!(
        names(&owners, &pod(&[reference("Job", "j")])).await,
        Ok(vec!["opted out".to_owned()])
    );
}
