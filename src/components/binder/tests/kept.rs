//! Failures are kept of pods that exist, and reviews of bind requests that exist.

use serde_json::json;

use super::super::*;
use crate::components::bus;
use crate::components::tests::idle_context;

pub fn binder() -> Binder {
    let (group_requests, _) = mpsc::channel(1);
    Binder::new(idle_context(), Arc::default(), bus::channels(1).0, group_requests)
}

/// The pod of the bind that `decided` returns.
fn pod() -> Pod {
    let metadata = json!({"namespace": "team", "name": "a", "uid": "uid-a"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap()
}

#[tokio::test]
async fn failed_binds_are_kept_only_for_existing_pods() {
    let mut binder = binder();
    let (bind, failed) = (
        bind_request::tests::decided(),
        Report::new(Ending::Failed("refused".to_owned())),
    );
    let wait = |binder: &Binder| binder.failures.waits(&bind).pod;
    let first = wait(&binder);
    binder.record_ending(&bind, &failed, false);
    assert_eq!(wait(&binder), first, "it has gone while it was being bound");

    binder.stores.pods.insert(pod());
    binder.record_ending(&bind, &failed, false);
    assert!(wait(&binder) > first);
    binder.changed(Change::Deleted(Object::Pod(Arc::new(pod()))));
    assert_eq!(wait(&binder), first, "it has gone since");

    let mut another = pod();
    another.metadata.uid = Some("uid-b".to_owned());
    binder.stores.pods.insert(another);
    binder.record_ending(&bind, &failed, false);
    assert_eq!(wait(&binder), first, "another pod has its name");
}

#[tokio::test]
async fn refused_evictions_are_kept_only_for_existing_pods() {
    let mut binder = binder();
    let evict = super::evict(&pod());
    let refused = || {
        let report = Report::new(Ending::Failed("a budget allows none".to_owned()));
        Ok((Job::Evict(evict.clone()), report))
    };
    let first = binder.failures.wait_to_evict(&evict.pod);
    binder.ended(refused()).unwrap();
    assert_eq!(binder.failures.wait_to_evict(&evict.pod), first, "the pod has gone");
    binder.stores.pods.insert(pod());
    binder.ended(refused()).unwrap();
    assert!(binder.failures.wait_to_evict(&evict.pod) > first);
}

#[tokio::test]
async fn a_bind_request_that_is_gone_is_not_reviewed_when_its_pod_changes() {
    let mut binder = binder();
    let decided = bind_request::tests::decided();
    let request = Arc::new(bind_request::request(&decided, &binder.context.settings));
    let change = |of: fn(Object) -> Change| of(Object::BindRequest(Arc::clone(&request)));
    let pod = Change::Applied(Object::Pod(Arc::new(pod())));
    binder.changed(change(Change::Applied));
    binder.run_due(true);
    binder.changed(pod.clone());
    assert!(binder.reviews.next().is_some());
    binder.run_due(true);
    binder.changed(change(Change::Deleted));
    binder.changed(pod);
    assert!(binder.reviews.next().is_none());
}
