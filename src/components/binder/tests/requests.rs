//! Requests of multi-step binds: repeated until their result is known.

use std::time::Duration;

use kube::api::DeleteParams;
use tokio::time::Instant;

use super::*;
use crate::components::binder::requests::RequestError;
use crate::components::retry::Failure;

impl Lab {
    async fn call(&self) -> Result<Option<Pod>, RequestError> {
        let api: Api<Pod> = Api::namespaced(self.context.reads.clone(), "team");
        self.caller().call("look at a pod", || api.get_opt("a")).await
    }

    async fn call_delete(&self) -> Result<(), RequestError> {
        let api: Api<Pod> = Api::namespaced(self.context.writes.clone(), "team");
        let params = DeleteParams::default();
        self.caller().delete("delete a pod", || api.delete("a", &params)).await
    }
}

fn reads() -> Match {
    Match::verb_on("get", "pods")
}

#[tokio::test(start_paused = true)]
async fn an_unknown_result_is_asked_for_again_with_growing_pauses() {
    let lab = Lab::new().await;
    for (effect, failure) in [(refuse(503), Failure::Busy), (refuse(500), Failure::Unknown)] {
        lab.fault(reads(), effect.clone(), Times::Next(4));
        let began = Instant::now();
        assert_eq!(lab.call().await, Ok(None));
        assert!(
            began.elapsed() >= Duration::from_millis(50 + 100 + 200 + 400),
            "{:?}",
            began.elapsed()
        );
        let rule = lab.fault(reads(), effect, Times::Always);
        assert_eq!(lab.call().await.unwrap_err().failure, failure);
        assert_eq!(lab.server.faults().struck(rule), 5);
        lab.server.faults().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_respected() {
    let lab = Lab::new().await;
    lab.fault(reads(), busy(7), Times::Next(1));
    let began = Instant::now();
    assert_eq!(lab.call().await, Ok(None));
    assert!(began.elapsed() >= Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_certain_answer_is_final() {
    let lab = Lab::new().await;
    for (code, failure) in [(403, Failure::Refused), (409, Failure::Conflict), (410, Failure::Gone)] {
        let rule = lab.fault(reads(), refuse(code), Times::Always);
        assert_eq!(lab.call().await.unwrap_err().failure, failure);
        assert_eq!(lab.server.faults().struck(rule), 1);
        lab.server.faults().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_does_not_repeat_a_call() {
    let lab = Lab::new().await;
    let rule = lab.fault(reads(), refuse(503), Times::Always);
    lab.lose();
    assert!(lab.call().await.is_err());
    assert_eq!(lab.server.faults().struck(rule), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_given_up_and_holds_up_few_others() {
    let lab = Lab::new().await;
    lab.fault(reads(), Effect::Hang, Times::Always);
    let api: Api<Pod> = Api::namespaced(lab.context.reads.clone(), "team");
    let caller = Caller::new(lab.context.clone(), 1);
    let hangs = async { caller.call("look at a pod", || api.get_opt("a")).await };
    let all = kube::api::ListParams::default();
    let list = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        caller
            .call("list pods", || api.list(&all))
            .await
            .map(|_| began.elapsed())
    };
    let (hung, listed) = tokio::join!(hangs, list);
    assert_eq!(hung.unwrap_err().why, "no answer after 10 s");
    assert!(
        listed.unwrap() < Duration::from_secs(10),
        "its turn comes before the other has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_ends_well_if_the_object_is_gone_or_another_has_its_name() {
    let lab = Lab::new().await;
    assert_eq!(lab.call_delete().await, Ok(()), "there is none");
    lab.pod("a").await;
    assert_eq!(lab.call_delete().await, Ok(()));
    let rule = lab.fault(Match::verb_on("delete", "pods"), refuse(409), Times::Always);
    assert_eq!(lab.call_delete().await, Ok(()), "another has the name");
    assert_eq!(lab.server.faults().struck(rule), 3, "if that lasts");
    lab.server.faults().clear();
    lab.fault(Match::verb_on("delete", "pods"), refuse(403), Times::Always);
    assert_eq!(lab.call_delete().await.unwrap_err().failure, Failure::Refused);
}
