//! Carries out binds and evictions, and reports how they ended.

use std::sync::Arc;
use std::time::SystemTime;

use tracing::{Instrument, info, info_span};

use super::attempt::{Attempt, Ending, Report};
use super::endings::faulty;
use super::failures::Waits;
use super::multi_step::MultiStepBind;
use super::outcomes::not_bound;
use super::requests::Caller;
use super::{Job, TERM_OVER, bind_request, cleanup, multi_step};
use crate::api::BindRequest;
use crate::clock;
use crate::components::bus::{BindSeen, Bus, OrderedBind, StepLog, TraceEvent};
use crate::components::panics;

/// A multi-step bind that has ended.
pub struct Finished {
    /// The bind.
    pub bind: OrderedBind,
    /// How it ended.
    pub report: Report,
    /// The request by which it was resumed.
    pub resumed: Option<Arc<BindRequest>>,
    /// The delays with which it was started.
    pub waits: Waits,
    /// False: it was not begun, as another bind of the pod is open, or an eviction for it was refused.
    pub started: bool,
}

/// Carries out a job of one request. `caller`: of the same term as `attempt`.
pub async fn carry_out(attempt: &Attempt, caller: &Caller, job: &Job) -> Report {
    match job {
        Job::Bind(bind) => {
            let pod = &bind.placement.pod;
            decided(bind);
            let span = info_span!("bind", ns = %pod.namespace, name = %pod.name, node = %bind.placement.node);
            let report = attempt.bind(bind).instrument(span).await;
            if report.ending == Ending::Done {
                // An earlier bind of the pod may have taken several steps, and failed.
                let known = attempt.stores.pods.get_same(&pod.namespace, &pod.name, Some(&pod.uid));
                cleanup::correct(caller, &bind.placement.node, known.as_deref()).await;
            }
            report
        }
        Job::Evict(evict) => {
            let span = info_span!("evict", ns = %evict.pod.namespace, name = %evict.pod.name);
            attempt.evict(evict).instrument(span).await
        }
    }
}

/// Logs that a pod is to be bound.
fn decided(bind: &OrderedBind) {
    let (pod, node) = (&bind.placement.pod, &bind.placement.node);
    info!(ns = %pod.namespace, name = %pod.name, %node, "pod gets a node");
}

/// Logs that a pod is bound, and adds the bind to the workload's trace.
pub fn ended(bus: &Bus, bind: &OrderedBind, report: &Report, steps: &StepLog, began: SystemTime) {
    if report.ending == Ending::Done {
        let (pod, node) = (&bind.placement.pod, &bind.placement.node);
        info!(ns = %pod.namespace, name = %pod.name, %node, "pod bound");
    }
    bus.traces.tell(|| {
        let failed = match &report.ending {
            Ending::Failed(why) => Some(why.clone()),
            Ending::Overtaken => Some("the pod is gone, or is on another node".to_owned()),
            Ending::Done => None,
        };
        TraceEvent::Bound(Box::new(BindSeen {
            pod: bind.placement.pod.clone(),
            group: bind.placement.group.clone(),
            node: Arc::clone(&bind.placement.node),
            began,
            ended: clock::system_time(),
            steps: steps.take(),
            failed,
        }))
    });
}

/// Runs a multi-step bind to its end.
pub async fn go_through(multi_step: MultiStepBind, bus: Bus, waits: Waits) -> Finished {
    let began = clock::system_time();
    decided(&multi_step.bind);
    let (report, request) = if multi_step.caller.context.is_leading() {
        let ran = Box::pin(panics::caught(multi_step.run())).await;
        ran.unwrap_or_else(|panic| (faulty(&panic), None))
    } else {
        (Report::not_tried(TERM_OVER), None)
    };
    let MultiStepBind {
        caller,
        stores,
        bind,
        resumes,
        steps,
        ..
    } = multi_step;
    ended(&bus, &bind, &report, &steps, began);
    // The bind request stays, and the bind is resumed.
    let goes_on = report.uncertain || caller.context.shutdown.is_cancelled();
    let pod = stores.pods.get(&bind.placement.pod.namespace, &bind.placement.pod.name);
    let foreign = resumes.as_deref().filter(|request| !bind_request::is_ours(request));
    match &report.ending {
        Ending::Done => cleanup::correct(&caller, &bind.placement.node, pod.as_deref()).await,
        Ending::Overtaken => {}
        Ending::Failed(_) if goes_on => {}
        Ending::Failed(why) => {
            // The scheduler first, so that it has the retry time when it sees the bind request go.
            let tried_again = match foreign {
                Some(request) => cleanup::fail(&caller, request, why).await,
                None => false,
            };
            if !tried_again {
                not_bound(&bus, &bind, &report, waits).await;
            }
            cleanup::blame(&caller, &bind, pod.as_deref(), why).await;
        }
    }
    let over = report.ending != Ending::Done && !goes_on;
    if let Some(request) = request.filter(|request| over && bind_request::is_ours(request))
        && let Err(trouble) = multi_step::drop_request(&caller, &request).await
    {
        info!(error = trouble.why, "bind request not deleted");
    }
    Finished {
        bind,
        report,
        resumed: resumes,
        waits,
        started: true,
    }
}
