//! The events about binds and evictions, word for word.

use serde_json::json;

use super::*;
use crate::components::binder::bind_request;
use crate::engine::policy::ActionKind;

fn bind() -> OrderedBind {
    let request = json!({"metadata": {"name": "a"}, "spec": {"podName": "a", "selectedNode": "n1"}});
    let pod = json!({"metadata": {"namespace": "team", "name": "a", "uid": "a"}});
    let (request, pod) = (serde_json::from_value(request), serde_json::from_value(pod));
    bind_request::bind(&request.unwrap(), &pod.unwrap(), "", Some(Vec::new())).unwrap()
}

fn evict() -> Evict {
    Evict {
        pod: PodRef::new("team", "a", "a"),
        group: bind().placement.group,
        pool: "".into(),
        action: ActionKind::Reclaim,
        for_group: None,
        overrules_budgets: false,
        message: "gone".to_owned(),
        details: [("by".to_owned(), "reclaim".to_owned())].into(),
    }
}

fn failed() -> Report {
    Report::new(Ending::Failed("forbidden".to_owned()))
}

fn ends() -> [Report; 4] {
    [
        Report::new(Ending::Done),
        failed(),
        Report::not_tried("no leader"),
        Report::new(Ending::Overtaken),
    ]
}

/// Reason, source and message.
fn said(note: Option<Note>) -> Option<(&'static str, String, String)> {
    note.map(|note| (note.reason, note.source, note.message))
}

#[test]
fn a_bind_has_an_event_if_it_was_tried() {
    let told = ends().map(|report| said(of_bind(&Settings::default(), &bind(), &report)));
    let (scheduler, binder) = ("kai-scheduler".to_owned(), "binder".to_owned());
    let assigned = "Successfully assigned pod team/a to node n1 at node-pool default".to_owned();
    let failed = "Failed to bind pod team/a to node n1: forbidden".to_owned();
    assert_eq!(
        told,
        [
            Some(("Scheduled", scheduler, assigned)),
            Some(("BindingError", binder, failed)),
            None,
            None
        ]
    );
}

#[test]
fn the_full_trail_has_an_event_of_the_binder_for_each_bound_pod() {
    let told = |trail: bool| {
        let mut settings = Settings::default();
        settings.sharing.always_bind_requests = trail;
        ends().map(|report| said(of_trail(&settings, &bind(), &report)))
    };
    let bound = (
        "Bound",
        "binder".to_owned(),
        "Pod bound successfully to node n1".to_owned(),
    );
    assert_eq!(told(true), [Some(bound), None, None, None]);
    assert_eq!(told(false), [None, None, None, None]);
}

#[test]
fn an_eviction_has_an_event_once_it_is_done() {
    let told = ends().map(|report| of_eviction(&Settings::default(), &evict(), &report));
    let [Some(done), None, None, None] = told else {
        panic!("{told:?}");
    };
    assert_eq!((done.reason, &*done.message), ("Evict", "gone"));
    assert_eq!(done.annotations, evict().details);
}
