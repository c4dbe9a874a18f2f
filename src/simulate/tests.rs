use super::report::QueueReport;
use super::{Report, Scenario, jobs, openb, run};

const TWO_TEAMS: &str = include_str!("../../docs/examples/two-teams.yaml");

fn simulated(yaml: &str) -> Report {
    let scenario = Scenario::read(yaml).expect("a scenario");
    run(&scenario, Vec::new(), Vec::new(), &mut |_, _| ()).expect("it makes sense")
}

fn refused(yaml: &str) -> String {
    let report = Scenario::read(yaml).and_then(|scenario| run(&scenario, Vec::new(), Vec::new(), &mut |_, _| ()));
    format!("{:#}", report.map(|_| ()).unwrap_err())
}

fn queue<'a>(report: &'a Report, name: &str) -> &'a QueueReport {
    report.queues.iter().find(|queue| queue.name == name).expect(name)
}

/// For how many steps the first and then the other of two queues held more than half of 16 GPUs, in turns.
fn turns(report: &Report, names: [&str; 2]) -> Vec<usize> {
    let [first, second] = names.map(|name| queue(report, name));
    let (mut begins, mut holder) = (Vec::new(), None);
    for (at, (first, second)) in first.allocated.iter().zip(&second.allocated).enumerate() {
        let now = (*first > 8.0).then_some(0).or((*second > 8.0).then_some(1)).or(holder);
        if now != holder {
            begins.push(at);
            holder = now;
        }
    }
    begins.windows(2).map(|turn| turn[1] - turn[0]).collect()
}

/// KAI's own pattern for this case: the queues take turns, each 243 cycles once it is settled, and hold 7.56 and 8.27 GPUs in the mean.
#[test]
fn two_queues_with_jobs_that_need_everything_take_turns() {
    let report = simulated(TWO_TEAMS);
    let turns = turns(&report, ["team-a", "team-b"]);
    let settled = &turns[2..];
    assert!(
        settled.len() >= 3 && settled.iter().all(|turn| (219..=267).contains(turn)),
        "{turns:?}"
    );
    for (name, mean) in [("team-a", 7.56), ("team-b", 8.27)] {
        let queue = queue(&report, name);
        assert!(
            (queue.mean_allocated / mean - 1.0).abs() < 0.1,
            "{}: {}",
            queue.name,
            queue.mean_allocated
        );
    }
    assert_eq!(report.evictions.keys().collect::<Vec<_>>(), ["reclaim"]);
}

#[test]
fn two_jobs_that_run_in_turns_never_wait_longer() {
    let report = simulated(
        "
nodes: [{name: node, count: 1, gpus: 16}]
queues: [{name: a}, {name: b}]
workloads:
- {name: a, queue: a, gpus: 16, duration: 10h}
- {name: b, queue: b, gpus: 16, duration: 10h}
shard: {kValue: 1, usageDBConfig: {clientType: builtin, usageParams: {windowSize: 32s, fetchInterval: 1s}}}
until: 1000s
",
    );
    let turns = turns(&report, ["a", "b"]);
    let settled = &turns[2..];
    assert!(
        settled.len() > 20 && settled.iter().all(|turn| turn.abs_diff(settled[0]) <= 2),
        "{turns:?}"
    );
}

#[test]
fn the_same_scenario_gives_the_same_report() {
    let short = TWO_TEAMS.replace("1024s", "300s");
    let json = |report: &Report| serde_json::to_string(report).expect("a report");
    assert_eq!(json(&simulated(&short)), json(&simulated(&short)));
}

#[test]
fn jobs_wait_for_resources_run_and_end() {
    let report = simulated(
        "{nodes: [{name: n, gpus: 4}], workloads: [
            {name: first, queue: q, gpus: 4, duration: 60s},
            {name: gang, queue: q, gpus: 2, pods: 2, at: 10s, duration: 30s},
            {name: part, queue: q, gpus: 0.5, count: 2, at: 20s, duration: 10s}]}",
    );
    // The gang follows the first job, and the parts, which share a GPU, follow the gang.
    assert_eq!(report.seconds, 100.0);
    assert_eq!((report.jobs.done, report.jobs.waiting), (4, 0));
    let waits: Vec<_> = report
        .wait
        .iter()
        .map(|times| (&*times.size, times.jobs, times.mean))
        .collect();
    assert_eq!(waits, [("part of one", 2, 70.0), ("3-4", 2, 25.0)]);
    assert_eq!(report.allocated_share, (4.0 * 90.0 + 10.0) / 400.0);
    assert!(report.evictions.is_empty() && report.problems.is_empty() && report.reasons.is_empty());
}

#[test]
fn evicted_jobs_restart_from_their_last_checkpoint() {
    let scenario = |checkpoint: &str| {
        simulated(&format!(
            "{{nodes: [{{name: n, gpus: 1}}], workloads: [
                {{name: low, queue: q, gpus: 1, duration: 100s{checkpoint}}},
                {{name: high, queue: q, gpus: 1, priority: 75, at: 50s, duration: 10s}}]}}"
        ))
    };
    let (all, some) = (scenario(""), scenario(", checkpoint: 20s"));
    assert_eq!((all.evictions["preempt"], some.evictions["preempt"]), (1, 1));
    assert!(
        (all.lost_gpu_hours * 3_600.0 - 50.0).abs() < 2.0,
        "{}",
        all.lost_gpu_hours
    );
    assert!(
        (some.lost_gpu_hours * 3_600.0 - 10.0).abs() < 2.0,
        "{}",
        some.lost_gpu_hours
    );
    assert!(
        (all.seconds - some.seconds - 40.0).abs() < 2.0,
        "{} {}",
        all.seconds,
        some.seconds
    );
}

#[test]
fn generators_for_kueue_make_queues_and_jobs() {
    let report = simulated(
        "{nodes: [{name: n, cpu: '20'}], generator: {cohorts: [{className: cohort, count: 2, queuesSets: [
            {className: cq, count: 2, nominalQuota: 5, borrowingLimit: 5, workloadsSets: [
                {count: 10, creationIntervalMs: 100, workloads: [{className: small, runtimeMs: 1000, priority: 50, request: 1}]}]}]}]}}",
    );
    assert_eq!(report.jobs.done, 40);
    let names: Vec<_> = report.queues.iter().map(|queue| &*queue.name).collect();
    assert_eq!(
        names,
        [
            "cohort-0",
            "cohort-0-cq-0",
            "cohort-0-cq-1",
            "cohort-1",
            "cohort-1-cq-0",
            "cohort-1-cq-1"
        ]
    );
}

#[test]
fn tables_of_jobs_run_on_the_nodes_of_a_scenario() {
    let scenario = Scenario::read("nodes: [{name: n, gpus: 8, count: 2}]").expect("a scenario");
    let table = "job_id,vc,submit_time,gpu_num,node_num,duration\na,v,100,16,2,60\nb,w,110,1,1,5\n";
    let report = run(
        &scenario,
        Vec::new(),
        jobs::read(table).expect("a table"),
        &mut |_, _| (),
    )
    .expect("it makes sense");
    // The other queue's job takes back its share, and the large one begins again.
    assert_eq!((report.jobs.done, report.seconds, report.queues.len()), (2, 75.0, 2));
}

#[test]
fn invalid_scenarios_are_refused_with_the_reason() {
    let with = |workload: &str| {
        format!(
            "{{nodes: [{{name: n, gpus: 1}}], queues: [{{name: p}}, {{name: c, parent: p}}], workloads: [{workload}]}}"
        )
    };
    for (workload, says) in [
        (
            "{name: a, queue: c}",
            "job \"a\" runs for ever: say when to stop (until)",
        ),
        (
            "{name: a, queue: p, duration: 1s}",
            "job \"a\" is in the queue \"p\", which has queues below it",
        ),
        (
            "{name: a, queue: c, duration: 1s}, {name: a, queue: c, duration: 1s}",
            "two jobs are called \"a\"",
        ),
        (
            "{name: a, queue: c, duration: 1s, gpus: 1.5}",
            "workload \"a\": gpus: 1.5 is neither a whole number nor less than one",
        ),
        (
            "{name: a, queue: c, duration: 1s, every: 1000000h}",
            "workload \"a\": every: too long",
        ),
    ] {
        assert_eq!(refused(&with(workload)), says);
    }
    for (scenario, says) in [
        ("nodes: [{name: n}, {name: n}]", "two nodes are called \"n\""),
        (
            "nodes: [{name: n, count: 2}, {name: n-1}]",
            "two nodes are called \"n-1\"",
        ),
        ("queues: [{name: q}, {name: q}]", "two queues are called \"q\""),
        (
            "{queues: [{name: c}], generator: {cohorts: [{className: c, queuesSets: []}]}}",
            "two queues are called \"c\"",
        ),
        ("nodes: [{name: n, gpus: -1}]", "nodes \"n\": gpus: below 0"),
        ("nodes: [{name: n, cpu: '-1'}]", "nodes \"n\": \"-1\" is less than 0"),
        (
            "generator: {cohorts: [{className: c, queuesSets: [{className: q, workloadsSets: [
                {workloads: [{className: w, runtimeMs: 1, request: -1}]}]}]}]}",
            "generator: class \"w\": request: below 0",
        ),
        ("nodes: [{name: n, gpus: 1000001}]", "nodes \"n\": gpus: too many"),
        (
            "generator: {cohorts: [{className: c, queuesSets: [{className: q, workloadsSets: [
                {creationIntervalMs: 9000000000000000000, workloads: []}]}]}]}",
            "generator: creationIntervalMs: too long",
        ),
        (
            "generator: {cohorts: [{className: c, queuesSets: [{className: q, workloadsSets: [
                {workloads: [{className: w, runtimeMs: 9000000000000000000, request: 1}]}]}]}]}",
            "generator: class \"w\": runtimeMs: too long",
        ),
    ] {
        assert_eq!(refused(scenario), says);
    }
    let shard = "{shard: {actions: {dance: {enabled: true}}, usageDBConfig: {clientType: builtin}}}";
    assert!(
        refused(shard).starts_with("shard: spec.actions: \"dance\" is not an action"),
        "{}",
        refused(shard)
    );
}

#[test]
fn numbers_that_would_take_all_memory_are_refused() {
    for (scenario, says) in [
        (
            "workloads: [{name: a, queue: q, duration: 1s, count: 100000, pods: 100000}]",
            "there are more than 1000000 pods",
        ),
        (
            "workloads: [{name: a, queue: q, duration: 1s, pods: 600000}, {name: b, queue: q, duration: 1s, pods: 600000}]",
            "there are more than 1000000 pods",
        ),
        ("nodes: [{name: a}, {name: b, count: 1000000}]", "nodes \"b\": too many"),
        (
            "generator: {cohorts: [{className: c, count: 1000000000000, queuesSets: []}]}",
            "generator: too many",
        ),
        (
            "generator: {cohorts: [{className: c, queuesSets: [{className: q, workloadsSets: [
                {count: 1000000000000, workloads: [{className: w, runtimeMs: 1, request: 1}]}]}]}]}",
            "generator: too many",
        ),
    ] {
        assert_eq!(refused(scenario), says);
    }
}

#[test]
fn a_node_of_a_trace_and_one_of_the_scenario_have_different_names() {
    let scenario = Scenario::read("nodes: [{name: n, gpus: 8}]").expect("a scenario");
    let nodes = openb::nodes("sn,cpu_milli,memory_mib,gpu\nn,1000,1,1\n").expect("a table of nodes");
    let report = run(&scenario, nodes, Vec::new(), &mut |_, _| ());
    assert_eq!(
        report.map(|_| ()).unwrap_err().to_string(),
        "two nodes are called \"n\""
    );
}
