use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;

fn gpus(queue: &[(Name, [i64; 3])], name: &str) -> f64 {
    let found = queue.iter().find(|(other, _)| &**other == name);
    found.map_or(0.0, |(_, shares)| shares[2] as f64 / WHOLE)
}

fn name(text: &str) -> Name {
    text.into()
}

/// The plain definition: samples, each weighed by its age.
fn plainly(changes: &[(i64, i64)], sample: i64, start: i64, now: i64, half_life: Option<i64>) -> f64 {
    let mut sum = 0.0;
    let mut at = start.max(0);
    while at < now {
        let held = changes
            .iter()
            .rev()
            .find(|(since, _)| *since <= at)
            .map_or(0, |(_, held)| *held);
        let age = (now - at) as f64 - sample as f64 / 2.0;
        sum += held as f64 * half_life.map_or(1.0, |half_life| (-age / half_life as f64).exp2());
        at += sample;
    }
    sum
}

#[test]
fn usage_is_a_share_of_the_cluster_over_the_window() {
    let mut ledger = Ledger::new(Window::Sliding(10 * HOUR), None);
    ledger.capacity([0, 0, 10], Time(0));
    ledger.hold(&name("a"), [0, 0, 8], Time(7 * HOUR));
    // 24 GPU-hours of 100.
    assert_eq!(gpus(&ledger.usage(Time(10 * HOUR)), "a"), 0.24);
    ledger.hold(&name("a"), [0; 3], Time(10 * HOUR));
    assert_eq!(gpus(&ledger.usage(Time(17 * HOUR)), "a"), 0.24);
    let usage = gpus(&ledger.usage(Time(18 * HOUR)), "a");
    assert!((usage - 0.16).abs() < 0.001, "{usage}");
    assert_eq!(ledger.usage(Time(20 * HOUR)), []);
}

#[test]
fn usage_older_by_a_half_life_has_half_the_weight() {
    let mut ledger = Ledger::new(Window::Sliding(100 * HOUR), Some(HOUR));
    ledger.capacity([0, 0, 1], Time(0));
    ledger.hold(&name("old"), [0, 0, 1], Time(50 * HOUR));
    ledger.hold(&name("old"), [0; 3], Time(51 * HOUR));
    ledger.hold(&name("new"), [0, 0, 1], Time(51 * HOUR));
    let usage = ledger.usage(Time(52 * HOUR));
    let (old, new) = (gpus(&usage, "old"), gpus(&usage, "new"));
    assert!(
        (old * 2.0 - new).abs() < 1e-6 && (new - 0.5).abs() < 1e-6,
        "{old} {new}"
    );
}

#[test]
fn usage_is_counted_after_the_clock_was_set_back() {
    for half_life in [None, Some(HOUR)] {
        let mut ledger = Ledger::new(Window::Sliding(10 * HOUR), half_life);
        ledger.capacity([0, 0, 2], Time(50 * HOUR));
        ledger.hold(&name("a"), [0, 0, 1], Time(50 * HOUR));
        assert_eq!(gpus(&ledger.usage(Time(53 * HOUR)), "a"), 0.5);
        assert_eq!(gpus(&ledger.usage(Time(51 * HOUR)), "a"), 0.5, "two hours back");
        ledger.hold(&name("a"), [0; 3], Time(51 * HOUR));
        ledger.hold(&name("b"), [0, 0, 2], Time(51 * HOUR));
        let usage = ledger.usage(Time(52 * HOUR));
        assert!(gpus(&usage, "b") > gpus(&usage, "a"), "{usage:?}");
        let usage = ledger.usage(Time(61 * HOUR + 30 * 60 * SECOND));
        assert!(gpus(&usage, "a") < 1e-6, "the window has passed: {usage:?}");
    }
}

#[test]
fn tumbling_windows_reset_usage_at_their_start() {
    let window = Window::Tumbling {
        size: HOUR,
        start: Time(0),
    };
    let mut ledger = Ledger::new(window, None);
    ledger.capacity([0, 0, 4], Time(0));
    ledger.hold(&name("a"), [0, 0, 4], Time(0));
    ledger.hold(&name("a"), [0, 0, 1], Time(HOUR / 2));
    assert_eq!(gpus(&ledger.usage(Time(HOUR)), "a"), 0.625);
    assert_eq!(gpus(&ledger.usage(Time(HOUR + HOUR / 4)), "a"), 0.25);
}

#[test]
fn a_resource_that_the_cluster_does_not_have_is_not_used() {
    let mut ledger = Ledger::new(Window::Sliding(HOUR), None);
    ledger.capacity([1_000, 0, 0], Time(0));
    ledger.hold(&name("a"), [500, 0, 7], Time(0));
    assert_eq!(ledger.usage(Time(HOUR)), [(name("a"), [500_000_000, 0, 0])]);
}

#[test]
fn a_deleted_queue_keeps_its_past_usage() {
    let mut ledger = Ledger::new(Window::Sliding(HOUR), None);
    ledger.capacity([0, 0, 1], Time(0));
    ledger.hold(&name("a"), [0, 0, 1], Time(0));
    ledger.only(|_| false, Time(HOUR / 2));
    assert_eq!(gpus(&ledger.usage(Time(HOUR)), "a"), 0.5);
}

#[test]
fn unknown_periods_count_as_no_usage() {
    let mut ledger = Ledger::new(Window::Sliding(10 * HOUR), None);
    ledger.capacity([0, 0, 4], Time(0));
    ledger.hold(&name("a"), [0, 0, 4], Time(0));
    ledger.hold(&name("b"), [0, 0, 4], Time(HOUR));
    ledger.hold(&name("a"), [0; 3], Time(HOUR));
    let kept = serde_json::from_str(&ledger.state(Time(2 * HOUR), usize::MAX)).expect("a state");
    let mut other = Ledger::new(Window::Sliding(10 * HOUR), None);
    other.take_over(&kept, HOUR, Time(6 * HOUR));
    // An hour of three was a's, the others were b's; three hours are unknown.
    let usage = other.usage(Time(6 * HOUR));
    assert!(
        (gpus(&usage, "a") - 1.0 / 3.0).abs() < 1e-6 && (gpus(&usage, "b") - 2.0 / 3.0).abs() < 1e-6,
        "{usage:?}"
    );
    other.capacity([0, 0, 4], Time(6 * HOUR));
    assert!((gpus(&other.usage(Time(7 * HOUR)), "b") - 0.5).abs() < 1e-6);
}

#[test]
fn beyond_the_limit_the_queues_with_the_least_usage_are_dropped() {
    let mut ledger = Ledger::new(Window::Sliding(HOUR), None);
    ledger.capacity([0, 0, 1_000_000], Time(0));
    for queue in 0..500 {
        ledger.hold(&name(&format!("team-{queue}")), [0, 0, queue + 1], Time(0));
    }
    let text = ledger.state(Time(HOUR / 2), 8 << 10);
    assert!(text.len() <= 8 << 10, "{}", text.len());
    let mut other = Ledger::new(Window::Sliding(HOUR), None);
    other.take_over(&serde_json::from_str(&text).expect("a state"), 0, Time(HOUR / 2));
    let usage = other.usage(Time(HOUR / 2));
    assert!(
        gpus(&usage, "team-499") > 0.0 && usage.len() > 20 && gpus(&usage, "team-0") == 0.0,
        "{}",
        usage.len()
    );
}

#[test]
fn invalid_stored_data_is_ignored_without_a_panic() {
    let kept = r#"{"at": 9000000000000000000, "capacity": {"held": [-1, 0, 5], "pieces": [[-9, 9223372036854775807, [1e38, -1, 1]]]},
        "queues": {"a": {"held": [0, 0, -7], "pieces": [[0, 10, [1, 1, 1]], [9223372036854775807, -5, [1, 1, 1]]]}}}"#;
    let kept: State = serde_json::from_str(kept).expect("of the right form");
    let mut ledger = Ledger::new(Window::Sliding(HOUR), Some(1));
    ledger.take_over(&kept, Millis::MAX, Time(10 * HOUR));
    for (_, shares) in ledger.usage(Time(11 * HOUR)) {
        assert!(shares.iter().all(|share| *share >= 0));
    }
}

#[test]
fn a_thousand_queues_fit_into_the_size_limit() {
    let mut ledger = Ledger::new(Window::Sliding(168 * HOUR), None);
    ledger.capacity([1_000_000, 1 << 50, 1 << 30], Time(0));
    for hour in 0..168 {
        for queue in 0..1_000 {
            let held = 1_234_567 + queue * 37 + hour * 131_071;
            ledger.hold(
                &name(&format!("team-{queue}")),
                [held, held << 20, held],
                Time(hour * HOUR),
            );
        }
    }
    let now = Time(168 * HOUR);
    let text = ledger.state(now, 512 << 10);
    assert!(text.len() <= 512 << 10, "{}", text.len());
    let kept = serde_json::from_str(&text).expect("a state");
    let mut other = Ledger::new(Window::Sliding(168 * HOUR), None);
    other.take_over(&kept, 0, now);
    for ((_, was), (_, is)) in ledger.usage(now).into_iter().zip(other.usage(now)) {
        assert!((was[2] - is[2]).abs() <= was[2] / 1_000, "{was:?} {is:?}");
    }
}

proptest! {
    /// Until something leaves the window, and with pieces as long as samples also after, the ledger says what the plain sum says.
    #[test]
    fn the_ledger_agrees_with_the_sum_over_all_samples(
        gaps in prop::collection::vec((1_i64..40, 0_i64..9), 1..40),
        half_life in prop::option::of(5_i64..200),
        size in prop::sample::select(vec![128_i64, 1_280, 100_000]),
        restart in 0_usize..40,
    ) {
        let half_life = half_life.map(|half_life| half_life * SECOND);
        let window = Window::Sliding(size * SECOND);
        let mut ledger = Ledger::new(window.clone(), half_life);
        ledger.capacity([0, 0, 8], Time(0));
        let (mut now, mut changes) = (0, Vec::new());
        for (turn, (gap, held)) in gaps.into_iter().enumerate() {
            changes.push((now, held));
            ledger.hold(&name("a"), [0, 0, held], Time(now));
            if turn == restart {
                let kept = serde_json::from_str(&ledger.state(Time(now), usize::MAX)).expect("a state");
                ledger = Ledger::new(window.clone(), half_life);
                ledger.take_over(&kept, 0, Time(now));
            }
            now += gap * SECOND;
            let start = now - size * SECOND;
            let capacity = plainly(&[(0, 8)], SECOND / 10, start, now, half_life);
            let wanted = plainly(&changes, SECOND / 10, start, now, half_life) / capacity;
            let got = gpus(&ledger.usage(Time(now)), "a");
            // A piece that is on its way out counts as even, and is a hundredth of the window.
            let slack = if size == 128 || now <= size * SECOND { 1e-4 } else { 1.5 / 128.0 };
            prop_assert!((got - wanted).abs() < slack, "at {now}: {got}, plainly {wanted}");
        }
    }

    /// What was kept and taken over, by another process and later, goes on as if nothing had happened.
    #[test]
    fn a_restart_changes_nothing(
        gaps in prop::collection::vec((1_i64..400, 0_i64..9), 2..40),
        half_life in prop::option::of(1_i64..10_000),
        restart in 0_usize..40,
    ) {
        let window = Window::Sliding(3_000 * SECOND);
        let half_life = half_life.map(|half_life| half_life * SECOND);
        let mut through = Ledger::new(window.clone(), half_life);
        through.capacity([0, 0, 8], Time(0));
        let mut other = through.clone();
        let (mut now, last) = (0, gaps.len() - 1);
        for (turn, (gap, held)) in gaps.into_iter().enumerate() {
            through.hold(&name("a"), [0, 0, held], Time(now));
            other.hold(&name("a"), [0, 0, held], Time(now));
            now += gap * SECOND;
            if turn == restart.min(last) {
                let kept = serde_json::from_str(&other.state(Time(now - SECOND), usize::MAX)).expect("a state");
                other = Ledger::new(window.clone(), half_life);
                other.take_over(&kept, SECOND, Time(now));
            }
        }
        let (was, is) = (gpus(&through.usage(Time(now)), "a"), gpus(&other.usage(Time(now)), "a"));
        prop_assert!((was - is).abs() < 1e-5, "{was} {is}");
    }
}
