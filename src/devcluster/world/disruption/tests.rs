use super::*;

#[test]
fn the_pods_of_a_budget_are_counted_once_in_a_pause_and_again_after_it() {
    let (looks, web, other) = (Looks::default(), Key::new("ns", "web"), Key::new("ns", "other"));
    let start = Timestamp::UNIX_EPOCH;
    let soon = later(start, PAUSE / 2);
    let next = later(start, PAUSE);
    assert_eq!(looks.begin(&web, start), None);
    assert_eq!(
        looks.begin(&web, soon),
        Some(next),
        "whether or not the status was written"
    );
    assert_eq!(looks.begin(&other, soon), None, "each budget has its own pause");
    assert_eq!(looks.begin(&web, next), None);
    assert_eq!(looks.begin(&web, next), Some(later(next, PAUSE)));
    looks.forget(&web);
    assert_eq!(looks.begin(&web, next), None, "a failed write is tried again at once");
}
