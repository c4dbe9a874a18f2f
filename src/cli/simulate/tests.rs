use super::{charts, text};
use crate::simulate::{Scenario, run};

#[test]
fn the_report_is_printed_and_charts_are_written() {
    let scenario = Scenario::read(
        "{nodes: [{name: n, gpus: 4}], workloads: [
            {name: low, queue: q, gpus: 4, duration: 100s},
            {name: high, queue: q, gpus: 2, priority: 75, at: 50s, duration: 10m},
            {name: large, queue: q, gpus: 8, duration: 1s}]}",
    );
    let report = run(&scenario.expect("a scenario"), Vec::new(), Vec::new(), &mut |_, _| ()).expect("it makes sense");
    let table = text::table(&report);
    for part in [
        "jobs began",
        "evictions: preempt 1; work lost:",
        "waits: large:",
        "wait until the start, by GPUs",
        "queue (GPUs)",
    ] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    charts::draw(&report, folder.path()).expect("charts are drawn");
    for (file, part) in [
        ("gpus.svg", "fragmentation of the free ones"),
        ("queues.svg", "q, fair share"),
    ] {
        let svg = std::fs::read_to_string(folder.path().join(file)).expect(file);
        assert!(svg.starts_with("<svg") && svg.contains(part), "{file}");
    }
}
