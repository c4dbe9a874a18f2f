//! Failures are kept of pods that exist, and reviews of bind requests that exist.

use serde_json::json;

use super::super::*;
use crate::components::bus;
use crate::components::tests::idle_context;

pub fn binder() -> Binder {
    let (group_requests, _) = mpsc::channel(1);
    Binder::new(idle_context(), Arc::default(), bus::channels(1).0, group_requests)
}

/// A bind in several steps that has succeeded.
pub fn done(bind: OrderedBind) -> Finished {
    Finished {
        bind,
        report: Report::new(Ending::Done),
        resumed: None,
        waits: Waits::default(),
        started: true,
    }
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
    binder.record_ending(&bind, &failed, Waits::default(), false);
    assert_eq!(wait(&binder), first, "it has gone while it was being bound");

    binder.stores.pods.insert(pod());
    binder.record_ending(&bind, &failed, Waits::default(), false);
    assert!(wait(&binder) > first);
    binder.changed(Change::Deleted(Object::Pod(Arc::new(pod()))));
    assert_eq!(wait(&binder), first, "it has gone since");

    let mut another = pod();
    another.metadata.uid = Some("uid-b".to_owned());
    binder.stores.pods.insert(another);
    binder.record_ending(&bind, &failed, Waits::default(), false);
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

/// The store of pods is ahead of the changes: it shows the pod bound before the older change is taken.
#[tokio::test]
async fn an_older_change_takes_a_bound_pod_from_none_of_its_gpu_groups() {
    let mut binder = binder();
    let bind = bind_request::tests::decided();
    binder.queue(BindOrder {
        binds: vec![bind.clone()],
        evictions: Vec::new(),
        term: 1,
    });
    binder.start();
    let ids = multi_step::group_ids(&bind);
    let labels = json!({"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"});
    let annotations = json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"});
    let metadata =
        json!({"namespace": "team", "name": "a", "uid": "uid-a", "labels": labels, "annotations": annotations});
    let on = |node: Option<&str>| -> Arc<Pod> {
        let spec = json!({"schedulerName": "kai-scheduler", "nodeName": node, "containers": []});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
    };
    let uses_all = |binder: &Binder| {
        let groups = ids.iter().filter_map(|id| binder.groups.get(id));
        groups.filter(|group| group.users.contains_key("uid-a")).count() == ids.len()
    };
    let (labelled, bound) = (on(None), on(Some("n1")));
    binder.stores.pods.insert(Pod::clone(&bound));
    binder.multi_step_ended(Ok(done(bind))).unwrap();
    for change in [labelled, bound] {
        binder.changed(Change::Applied(Object::Pod(change)));
        assert!(uses_all(&binder));
    }
}
