use super::*;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn the_first_failure_is_logged_and_repeats_at_growing_intervals() {
    let (mut known, began) = (Known::default(), Instant::now());
    let told: Vec<(u64, Option<u64>)> = (0..600)
        .filter_map(|second| {
            let now = began + Duration::from_secs(second);
            let line = known.failed(now, "10.0.0.7", Cause::NotTls)?;
            assert_eq!(line.address, "10.0.0.7");
            Some((second, line.repeats))
        })
        .collect();
    assert_eq!(
        told,
        [(0, None), (60, Some(60)), (180, Some(120)), (420, Some(240))],
        "seconds, and failures since the line before"
    );
    let other = known.failed(began, "10.0.0.7", Cause::Closed).expect("another cause");
    assert_eq!(other.repeats, None);
    let later = began + Duration::from_secs(600) + QUIET;
    let anew = known.failed(later, "10.0.0.7", Cause::NotTls).expect("told anew");
    assert_eq!(anew.repeats, None);
}

#[test]
fn many_addresses_are_counted_together_and_cost_no_memory() {
    let (mut known, began) = (Known::default(), Instant::now());
    let lines: Vec<Line> = (0..100_000_u32)
        .filter_map(|peer| known.failed(began, &format!("10.{peer}"), Cause::Closed))
        .collect();
    assert_eq!(lines.len(), REMEMBERED + 1);
    assert_eq!(lines[REMEMBERED].address, OTHERS);
    assert!(known.repeats.len() <= REMEMBERED + 1);
    let line = known.failed(began + MINUTE, "10.99999", Cause::Closed).expect("told");
    assert_eq!(line.repeats, Some(100_000 - REMEMBERED as u64));
    // Those that fail no more make room.
    let line = known.failed(began + QUIET + MINUTE, "10.7777777", Cause::Closed);
    assert_eq!(line.expect("told").address, "10.7777777");
}

#[test]
fn recovery_is_logged_once() {
    let (mut known, began) = (Known::default(), Instant::now());
    for _ in 0..5 {
        known.failed(began, "10.0.0.1:443", Cause::Refused);
    }
    assert_eq!(known.broken.take(), Some(5));
    // Within the interval nothing is logged, neither that it fails nor that it works.
    known.failed(began, "10.0.0.1:443", Cause::Refused);
    assert_eq!(known.broken.take(), None);
}
