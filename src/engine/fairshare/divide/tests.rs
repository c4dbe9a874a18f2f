use super::{QueueDemand, divide, over_quota};
use crate::engine::input::{GPU, Time};

/// `quota/weight/request[/limit[/priority]]`, `-` = none; oldest first.
fn demand(text: &str, age: usize) -> QueueDemand {
    let mut parts = text.split('/');
    let mut amount = || {
        parts
            .next()
            .filter(|part| *part != "-")
            .map(|part| (part.parse::<f64>().expect("a number") * 1e6).round() as i64)
    };
    let (quota, weight, request, limit, priority) = (amount(), amount(), amount(), amount(), amount());
    QueueDemand {
        quota,
        limit,
        weight: weight.unwrap_or(0),
        request: request.unwrap_or(0),
        priority: priority.unwrap_or(100),
        created: Time(age as i64),
        name: format!("q{age}").into(),
        usage: 0,
        fair: 0,
    }
}

fn shares(demands: &[QueueDemand]) -> Vec<f64> {
    demands.iter().map(|demand| demand.fair as f64 / 1e6).collect()
}

fn check(rows: &[(f64, &str, &[f64], f64)]) {
    for (total, queues, wanted, left) in rows {
        let mut demands: Vec<_> = queues
            .split_whitespace()
            .enumerate()
            .map(|(age, text)| demand(text, age))
            .collect();
        let rest = divide((total * 1e6) as i64, GPU, 1_000_000, &mut demands);
        assert_eq!(
            (shares(&demands), rest as f64 / 1e6),
            (wanted.to_vec(), *left),
            "{total} among {queues}"
        );
    }
}

#[test]
fn quota_alone() {
    check(&[
        (2.0, "3/0/2", &[2.0], 0.0),
        (3.0, "3/0/2", &[2.0], 1.0),
        (3.0, "3/0/2/2", &[2.0], 1.0),
        (1.0, "3/0/2", &[2.0], -1.0),
        (7.0, "3/0/5", &[3.0], 4.0),
        (2.0, "1.5/0/2", &[1.5], 0.5),
        (2.0, "3/0/1.5", &[1.5], 0.5),
        (2.0, "0/0/2", &[0.0], 2.0),
    ]);
}

#[test]
fn over_quota_by_weight_in_whole_units() {
    check(&[
        (15.0, "2/2/6 2/2/6", &[6.0, 6.0], 3.0),
        (12.0, "2/2/6 2/2/6", &[6.0, 6.0], 0.0),
        (8.0, "2/1/6 2/3/6", &[3.0, 5.0], 0.0),
        (12.0, "2/2/6/5 2/2/6", &[5.0, 6.0], 1.0),
        (11.0, "2/1/10 2/4/10", &[3.0, 8.0], 0.0),
        (11.0, "2/2/6 2/2/6", &[6.0, 5.0], 0.0),
        (4.0, "2/2/6/-/1 2/2/6/-/2", &[2.0, 2.0], 0.0),
        (6.0, "2/2/6/-/1 2/2/6/-/2", &[2.0, 4.0], 0.0),
        (6.0, "2/100/6/-/1 2/1/6/-/2", &[2.0, 4.0], 0.0),
        (5.0, "2/2/3 2/2/3", &[3.0, 2.0], 0.0),
        (5.0, "2/2/5/-/2 2/2/5/-/2 1/2/0/-/1", &[3.0, 2.0, 0.0], 0.0),
        (45.0, "12/12/32.55 7/7/9.5 2/2/1.65/2", &[32.55, 9.5, 1.65], 1.3),
        (1000.0, "250/1/5000 150/2/5000", &[450.0, 550.0], 0.0),
        (1000.0, "250/1/5000 150/2/5000/400", &[600.0, 400.0], 0.0),
        (
            9999.0,
            "1000/1/10000 1000/1/10000 1000/1/10000",
            &[3333.0, 3333.0, 3333.0],
            0.0,
        ),
        (9999.0, "0/6/10000 0/2/10000 0/1/10000", &[6666.0, 2222.0, 1111.0], 0.0),
        (12.0, "2/1/10 2/2/7", &[5.0, 7.0], 0.0),
        (8.0, "4/4/7 2/2/3", &[5.0, 3.0], 0.0),
        (
            20.0,
            "2/1/6/-/200 4/1/20/-/100 2/3/20/-/100 3/5/9/-/50",
            &[6.0, 5.0, 5.0, 4.0],
            0.0,
        ),
    ]);
}

#[test]
fn quotas_beyond_the_total_are_kept() {
    check(&[
        (
            10_000.0,
            "5000/5000/5000 5000/5000/5000 5000/5000/5000",
            &[5000.0, 5000.0, 5000.0],
            -5000.0,
        ),
        (
            10_000.0,
            "5000/5000/7000 5000/5000/2000 5000/5000/2000",
            &[6000.0, 2000.0, 2000.0],
            0.0,
        ),
        (
            10_000.0,
            "5000/5000/7000 5000/5000/5000 5000/5000/2000",
            &[5000.0, 5000.0, 2000.0],
            -2000.0,
        ),
        (10_000.0, "5000/5000/10000 0/0/5000", &[10_000.0, 0.0], 0.0),
        (
            10_000.0,
            "5000/5000/5000 0/5000/5000 5000/5000/5000",
            &[5000.0, 0.0, 5000.0],
            0.0,
        ),
        (3.0, "-/1/100 2/1/100", &[3.0, 2.0], -2.0),
    ]);
}

#[test]
fn the_stage_over_quota_alone() {
    let rows: &[(f64, &str, f64, f64)] = &[
        (2.0, "3/1/5", 5.0, 0.0),
        (3.0, "3/1/5", 5.0, 1.0),
        (2.0, "3/1/5/4", 4.0, 1.0),
        (2.0, "3/0/5", 3.0, 2.0),
        (2.0, "3/1/4.5", 4.5, 0.5),
        (0.5, "3/1/5", 3.5, 0.0),
        (10.0, "3/0/5", 3.0, 10.0),
    ];
    for (pot, text, fair, left) in rows {
        let mut demands = [QueueDemand {
            fair: 3 * GPU,
            ..demand(text, 0)
        }];
        let rest = over_quota((pot * 1e6) as i64, GPU, 1_000_000, &mut demands);
        assert_eq!(
            (demands[0].fair as f64 / 1e6, rest as f64 / 1e6),
            (*fair, *left),
            "{pot} for {text}"
        );
    }
}

#[test]
fn no_share_exceeds_the_request_or_limit_of_its_queue() {
    check(&[(3.0, "0/1/1.6 0/1/5", &[1.6, 1.4], 0.0)]);
}

#[test]
fn units_that_rounding_leaves_are_offered_to_the_next_band_first() {
    check(&[
        (5.0, "2/1/5/-/2 2/1/5/-/2 0/1/5/-/1", &[2.0, 2.0, 1.0], 0.0),
        (
            10.0,
            "0/1/9/-/200 0/1/9/-/200 0/1/9/-/200 0/1/9/-/50",
            &[3.0, 3.0, 3.0, 1.0],
            0.0,
        ),
    ]);
}

#[test]
fn history_shifts_shares() {
    /// (total, queues, usage of each, k, shares)
    type Row = (i64, &'static str, &'static [f64], f64, &'static [f64]);
    let rows: &[Row] = &[
        (16, "0/1/100 0/1/100", &[1.0, 0.0], 0.0, &[8.0, 8.0]),
        (16, "0/1/100 0/1/100", &[1.0, 0.0], 0.5, &[4.0, 12.0]),
        (16, "0/1/100 0/1/100", &[1.0, 0.0], 1.0, &[0.0, 16.0]),
        (16, "0/1/100 0/1/100", &[1.0, 0.0], 2.0, &[0.0, 16.0]),
        (16, "0/1/100 0/1/100", &[0.6, 0.4], 1.0, &[6.0, 10.0]),
        (16, "0/1/100 0/1/100", &[0.75, 0.25], 1.0, &[4.0, 12.0]),
        (16, "0/1/100 0/1/100", &[0.75, 0.25], 2.0, &[0.0, 16.0]),
        (16, "0/1/100 0/1/100", &[0.97, 0.03], 1.0, &[0.0, 16.0]),
        (16, "0/1/100 0/1/100", &[0.9, 0.1], 1.0, &[2.0, 14.0]),
        (16, "0/1/100 0/1/100", &[0.54, 0.46], 10.0, &[2.0, 14.0]),
        (16, "0/1/100 0/1/100", &[0.25, 0.0], 1.0, &[7.0, 9.0]),
        (32, "0/1/100 0/1/100 0/2/100", &[0.5, 0.3, 0.2], 1.0, &[0.0, 6.0, 26.0]),
        (16, "4/1/100 4/1/100", &[0.5, 0.1], 1.0, &[7.0, 9.0]),
        (12, "0/3/100 0/1/100", &[0.5, 0.5], 1.0, &[12.0, 0.0]),
        (12, "0/1/2 0/1/100 0/1/100", &[0.0, 0.1, 0.9], 1.0, &[2.0, 10.0, 0.0]),
        (8, "0/10000/8 0/1/1", &[1.0, 0.0], 0.0, &[8.0, 0.0]),
        (8, "0/10000/8 0/1/1", &[1.0, 0.0], 100.0, &[8.0, 0.0]),
        (8, "0/10000/8 0/1/1", &[1.0, 0.0], 10_000.0, &[7.0, 1.0]),
        // Portions: 1/2 + (1/2 - 3/4) = 1/4 against 1/2 + 1/2 = 1.
        (12, "0/1/100 0/1/100", &[0.75, 0.0], 1.0, &[2.0, 10.0]),
    ];
    for (total, queues, usage, k, wanted) in rows {
        let mut demands: Vec<_> = queues
            .split_whitespace()
            .zip(*usage)
            .enumerate()
            .map(|(age, (text, usage))| QueueDemand {
                usage: (usage * 1e9).round() as i64,
                ..demand(text, age)
            })
            .collect();
        divide(total * GPU, GPU, (k * 1e6) as i64, &mut demands);
        assert_eq!(
            shares(&demands),
            *wanted,
            "{total} among {queues}, used {usage:?}, k {k}"
        );
    }
}

#[test]
fn the_largest_weights_divide_like_small_ones() {
    /// The memory of a large cluster.
    const BYTES: i64 = 1_500_000_000_000_000;
    /// The largest factor that is read, in millionths.
    const LARGEST_K: i64 = 1_000_000_000_000_000;
    /// What a queue with 100 GB has as its weight if weights are bytes.
    const WEIGHT: i64 = 100_000_000_000 * 1_000_000;
    let divided = |total: i64, unit: i64, k: i64, queues: &[(i64, f64)]| -> Vec<i64> {
        let queues = queues.iter().enumerate();
        let mut demands: Vec<_> = queues
            .map(|(age, (weight, usage))| QueueDemand {
                weight: *weight,
                usage: (usage * 1e9).round() as i64,
                request: total,
                ..demand("0/0/0", age)
            })
            .collect();
        divide(total, unit, k, &mut demands);
        demands.iter().map(|demand| demand.fair).collect()
    };
    for k in [1_000_000, LARGEST_K] {
        assert_eq!(
            divided(BYTES, 1, k, &[(WEIGHT, 0.0), (2 * WEIGHT, 0.0)]),
            [BYTES / 3, BYTES / 3 * 2],
            "k {k}"
        );
        assert_eq!(
            divided(10 * GPU, GPU, k, &[(WEIGHT, 0.0), (WEIGHT, 0.0), (WEIGHT, 0.0)]),
            [4 * GPU, 3 * GPU, 3 * GPU],
            "k {k}"
        );
    }
    let used = [(1 << 58, 0.75), (1 << 58, 0.0)];
    assert_eq!(divided(BYTES, 1, 1_000_000, &used), [BYTES / 5, BYTES / 5 * 4]);
    assert_eq!(divided(BYTES, 1, LARGEST_K, &used), [0, BYTES]);
}
