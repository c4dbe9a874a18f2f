use super::{Stake, divide, over_quota};
use crate::engine::input::{GPU, Time};

/// `quota/weight/request[/limit[/priority]]`, `-` = none; oldest first.
fn stake(text: &str, age: usize) -> Stake {
    let mut parts = text.split('/');
    let mut amount = || {
        parts
            .next()
            .filter(|part| *part != "-")
            .map(|part| (part.parse::<f64>().expect("a number") * 1e6).round() as i64)
    };
    let (quota, weight, request, limit, priority) = (amount(), amount(), amount(), amount(), amount());
    Stake {
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

fn shares(stakes: &[Stake]) -> Vec<f64> {
    stakes.iter().map(|stake| stake.fair as f64 / 1e6).collect()
}

fn check(rows: &[(f64, &str, &[f64], f64)]) {
    for (total, queues, wanted, left) in rows {
        let mut stakes: Vec<_> = queues
            .split_whitespace()
            .enumerate()
            .map(|(age, text)| stake(text, age))
            .collect();
        let rest = divide((total * 1e6) as i64, GPU, 1_000_000, &mut stakes);
        assert_eq!(
            (shares(&stakes), rest as f64 / 1e6),
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
        let mut stakes = [Stake {
            fair: 3 * GPU,
            ..stake(text, 0)
        }];
        let rest = over_quota((pot * 1e6) as i64, GPU, 1_000_000, &mut stakes);
        assert_eq!(
            (stakes[0].fair as f64 / 1e6, rest as f64 / 1e6),
            (*fair, *left),
            "{pot} for {text}"
        );
    }
}

#[test]
fn no_share_passes_what_its_queue_can_use() {
    check(&[(3.0, "0/1/1.6 0/1/5", &[1.6, 1.4], 0.0)]);
}

#[test]
fn history_shifts_shares() {
    let mut stakes = [
        Stake {
            usage: 750_000_000,
            ..stake("0/1/100", 0)
        },
        stake("0/1/100", 1),
    ];
    divide(12 * GPU, GPU, 1_000_000, &mut stakes);
    // Portions: 1/2 + (1/2 - 3/4) = 1/4 against 1/2 + 1/2 = 1.
    assert_eq!(shares(&stakes), [2.0, 10.0]);
}
