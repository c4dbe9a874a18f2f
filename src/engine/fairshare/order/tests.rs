use std::cmp::Ordering;

use super::{QueueCandidate, compare_queues};
use crate::engine::tests::holdings::{amounts, holdings};

#[test]
fn which_of_two_queues_is_served_first() {
    /// (left, its pod group, right, its pod group, whether the left one goes first)
    type Row = (&'static str, &'static str, &'static str, &'static str, bool);
    let rows: &[Row] = &[
        ("2/99/20", "0", "2/2/0", "0", false),
        ("2/99/20 p1", "0", "2/2/0 p0", "0", false),
        ("2/99/20 p1", "0", "2/2/3 p0", "0", true),
        ("2/99/20 p1", "0", "2/80/3 p0", "0", true),
        ("50/50/40", "1", "50/50/40", "2", true),
        ("50/50/40", "3.2", "50/50/40", "0.8", false),
        ("1,1,1/1,1,1/2,2,2", "0", "1,1,2/1,1,2/2,2,2", "0", false),
        ("0/0/0", "1", "0/1/3", "1", false),
        ("4/4/2", "0", "2/2/1", "0", false),
        ("2/2/1", "0", "2/2/1", "0", true),
    ];
    for (left, left_job, right, right_job, first) in rows {
        let (engine, id) = holdings(&[&format!("l {left}"), &format!("r {right}")]);
        let candidate = |name, entry| QueueCandidate {
            queue: id(name),
            entry: amounts(entry),
            victims: [0; 3],
        };
        let (left_one, right_one) = (candidate("l", left_job), candidate("r", right_job));
        let order = compare_queues(&engine.model, &left_one, &right_one);
        assert_eq!(
            order == Ordering::Less,
            *first,
            "{left} asks for {left_job}, {right} for {right_job}"
        );
        assert_eq!(compare_queues(&engine.model, &right_one, &left_one), order.reverse());
    }
}

#[test]
fn what_a_queue_may_hold() {
    for (queue, may) in [
        ("1000/1000/0/500", Some(500)),
        ("1000/1500/0/2000", Some(1500)),
        ("2000/1000/0/3000", Some(2000)),
        ("2000/1000/0", Some(2000)),
        ("-1/1000/0/2000", Some(2000)),
        ("-1/1500/0", None),
    ] {
        let (engine, id) = holdings(&[&format!("q {queue}")]);
        let gpus = engine.model.queues()[id("q")].allocatable(2);
        assert_eq!(gpus.map(|gpus| gpus / 1_000_000), may, "{queue}");
    }
}

#[test]
fn the_largest_share_counts() {
    let share = |line: &str| {
        let (mut engine, id) = holdings(&[line]);
        engine.model.set_total(amounts("1000,1000,2000"));
        let queue = id("q");
        let (over, under) = super::dominant(&engine.model, queue, &engine.model.queues()[queue].allocated);
        over as f64 / under as f64
    };
    let close = |line: &str, wanted: f64| assert!((share(line) - wanted).abs() < 1e-9, "{line}: {}", share(line));
    close("q 1000,1000,1000/1000,1000,1000/500,100,200", 0.5);
    close("q 0,1000,1000/0,1000,1000/500,100,200", 500_000.0);
    close("q 1000,1000,-1/1000,1000,1000/100,100,700", 0.35);
}
