use crate::engine::Engine;
use crate::engine::decision::{Cause, Verdict};
use crate::engine::policy::Policy;
use crate::engine::tests::scenario::{NOW, Scenario};

/// The verdict on a pod group of a scenario, with a changed policy.
fn verdict(text: &str, name: &str, change: impl Fn(&mut Policy)) -> Verdict {
    let scenario: Scenario = serde_yaml_ng::from_str(&format!("name: it\n{text}")).expect("a scenario");
    let mut policy = scenario.policy();
    change(&mut policy);
    let mut engine = Engine::new(policy);
    scenario.events().into_iter().for_each(|event| engine.apply(event, NOW));
    let mut reports = engine.cycle(NOW).unschedulable.into_iter();
    let report = reports.find(|report| report.group.name() == name);
    report.expect("it waits").verdict
}

/// Checks the cause and the first sentence of the verdict on the pod group `w`.
fn check(text: &str, cause: Cause, says: &str) {
    let verdict = verdict(text, "w", |_| {});
    assert_eq!((verdict.cause, &*verdict.sentence), (cause, says), "{text}");
}

/// The pending pod `z` wants CPU as well, so the fair share of `a` is its quota of 4 CPU.
#[test]
fn the_resource_of_which_the_queue_is_at_its_fair_share_is_named() {
    check(
        "actions: [allocate, reclaim, preempt]\nnodes: {n0: 4 C16000}\nqueues: [a 4 w1 c4000, b 0 w1 c12000]\n\
         pod_groups: [x a T0@n0 cpu=4000, y b T4@n0, z b T0 cpu=12000, w a T1 cpu=2000]",
        Cause::FairShare,
        "Waits for 1 GPU: queue a holds 4 of its fair share of 4 CPU (quota 4, asks 2), so nothing is taken back for it; queue b holds 4 GPUs",
    );
}

/// `w` has a second pod, with which its queue would exceed its fair share of 7 CPU.
#[test]
fn pod_groups_whose_pods_are_alike_have_an_answer_each_if_they_request_different_amounts() {
    let world = "actions: [allocate, reclaim, preempt]\nnodes: {n0: 4 C20000}\nqueues: [a 4 w1 c7000, b 4 w1 c13000]\n\
        pod_groups: [x a T0@n0 cpu=4000, y b T4@n0, z b T0 cpu=17000, v a T1 cpu=2000, w a T1 T0 cpu=2000]";
    assert_eq!(verdict(world, "v", |_| {}).cause, Cause::WithinShares);
    check(
        world,
        Cause::FairShare,
        "Waits for 1 GPU: queue a holds 4 of its fair share of 7 CPU (quota 7, asks 4), so nothing is taken back for it; queue b holds 4 GPUs",
    );
}

#[test]
fn an_action_that_could_evict_the_holders_is_said_to_be_switched_off() {
    check(
        "actions: [allocate, preempt]\nnodes: {n0: 8}\nqueues: [greedy 0 w1, team 8 w1]\npod_groups: [big greedy T8@n0, w team T1]",
        Cause::SwitchedOff,
        "Waits for 1 GPU: queue greedy holds 8 of 8 GPUs (fair share 7), 8 of them by workloads that reclaim could evict (big), but the administrator has switched reclaim off",
    );
    check(
        "actions: [allocate, reclaim]\nnodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [low team T4@n0, w team I1]",
        Cause::SwitchedOff,
        "Waits for 1 GPU: queue team holds 4 of 4 GPUs (fair share 4), 4 of them by workloads that preempt could evict (low), but the administrator has switched preempt off",
    );
    let both = "actions: [allocate]\nnodes: {n0: 8}\nqueues: [greedy 0 w1, team 8 w1]\n\
        pod_groups: [big greedy T6@n0, low team T2@n0, w team I1]";
    let verdict = verdict(both, "w", |_| {});
    assert_eq!(verdict.cause, Cause::SwitchedOff);
    assert_eq!(
        verdict.evidence,
        [
            "Of queue team, what holds 2 GPUs (low) stays because the administrator has switched preempt off, so that preempt cannot evict it"
        ]
    );
}

#[test]
fn reclaim_is_switched_off_with_the_plugin_proportion() {
    let world = "actions: [allocate, reclaim, preempt]\nnodes: {n0: 8}\nqueues: [greedy 0 w1, team 8 w1]\n\
        pod_groups: [big greedy T8@n0, w team T1]";
    let verdict = verdict(world, "w", |policy| policy.plugins.proportion = None);
    let says = "(big), but the administrator has switched the plugin proportion off";
    assert!(
        verdict.cause == Cause::SwitchedOff && verdict.sentence.ends_with(says),
        "{verdict}"
    );
}

#[test]
fn what_prevents_evictions_also_with_all_actions_comes_first() {
    check(
        "actions: [allocate, preempt]\nnodes: {n0: 8}\nqueues: [a 4 w1, b 4 w1]\npod_groups: [x a T4@n0, y b T4@n0, w a T1]",
        Cause::FairShare,
        "Waits for 1 GPU: queue a holds 4 of its fair share of 4 GPUs (quota 4), so nothing is taken back for it; queue b holds 4",
    );
    check(
        "actions: [allocate, preempt]\nnodes: {n0: 8}\nqueues: [prod 8 w1, team 4 w1]\npod_groups: [serve prod B8@n0, w team T1]",
        Cause::NonPreemptible,
        "Waits for 1 GPU: queue prod holds 8 of 8 GPUs (fair share 8), 8 of them by non-preemptible workloads (serve)",
    );
    check(
        "actions: [allocate]\nnodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [high team I4@n0, w team T1]",
        Cause::Priority,
        "Waits for 1 GPU: queue team holds 4 of 4 GPUs (fair share 4), 4 of them by workloads of higher priority (at least 75, this one has 50) (high)",
    );
    check(
        "actions: [allocate, preempt]\nnodes: {n0: 8}\nqueues: [greedy 0 w1 reclaim=5735, team 8 w1]\npod_groups: [big greedy T8@n0 started=0, w team T1]",
        Cause::MinRuntime,
        "Waits for 1 GPU: queue greedy holds 8 of 8 GPUs (fair share 7), 8 of them protected by reclaimMinRuntime until 15:22:15 UTC (big)",
    );
}
