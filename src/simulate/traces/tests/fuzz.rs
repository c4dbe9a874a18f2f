//! Tables that are no traces, or odd ones.

use super::{jobs, openb};
use crate::fuzz::Target;
use crate::simulate::scenario::Job;

fn check(jobs: &[Job]) {
    for job in jobs {
        assert!(job.arrives >= 0, "{job:?} arrives before the first job");
        assert!(job.pods > 0 && job.min == job.pods && job.runs > Some(0), "{job:?}");
        let shape = &job.shape;
        assert!(
            shape.cpu >= 0 && shape.memory >= 0 && shape.gpu >= 0,
            "{job:?} asks for less than nothing"
        );
    }
}

#[test]
fn fuzz_traces() {
    let target = Target {
        name: "traces",
        rounds: 2_500,
        words: &[
            "JobID",
            "vc",
            "submit_time",
            "duration",
            "start",
            "end",
            "num_gpus",
            "node_num",
            "cpu_milli",
            "memory_mib",
            "creation_time",
            "sn",
            "qos",
            "|",
            ",",
            "\n",
            "\r\n",
            "\"",
            "0",
            "-1",
            "1e300",
            "9e18",
            "1.5",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00",
            "9999-12-31T23:59:59",
            "-009999-01-02T00:00:00Z",
            "Unknown",
            "mem=9e99T",
            "mem=-1G",
            "gres/gpu=2",
            "node=0",
            "cpu=nan",
        ],
    };
    target.texts(|text| {
        let read = [jobs::read(text), openb::pods(text)];
        for jobs in read.iter().flatten() {
            check(jobs);
        }
        let nodes = openb::nodes(text);
        for node in nodes.iter().flatten() {
            assert!(
                node.cpu >= 0 && node.memory >= 0 && node.gpus >= 0,
                "{node:?} has less than nothing"
            );
        }
        for error in read
            .iter()
            .filter_map(|read| read.as_ref().err())
            .chain(nodes.as_ref().err())
        {
            assert!(!format!("{error:#}").is_empty());
        }
        read.iter().any(Result::is_ok) || nodes.is_ok()
    });
}
