use super::*;

#[test]
fn bytes_are_exact_where_a_unit_allows_it() {
    let said = [
        64 * KI * KI * KI,
        10_000_000_000,
        3 * KI * KI,
        500_000_000,
        1_600_000_001,
        0,
        7,
    ]
    .map(bytes);
    assert_eq!(said, ["64Gi", "10G", "3Mi", "500M", "1.4Gi", "0", "7"]);
}

#[test]
fn times_have_a_date_only_on_another_day() {
    let now = Time(1_000_000_000);
    assert_eq!(instant(Time(1_000_020_000), now), "13:47 UTC");
    assert_eq!(instant(Time(1_000_021_000), now), "13:47:01 UTC");
    assert_eq!(instant(Time(1_000_020_000 + DAY), now), "1970-01-13 13:47 UTC");
}

#[test]
fn workloads_are_named_by_their_owners() {
    let name = |name: &str, from: &str| workload(&GroupKey::new("ns", name), from);
    assert_eq!(name("pg-train-7-6f1e2a3b-0000-4000-8000-0123456789ab", "ns"), "train-7");
    assert_eq!(name("pg-train", "ns"), "pg-train");
    assert_eq!(name("gang", "other"), "ns/gang");
}

#[test]
fn lists_say_how_many_more_there_are() {
    let names = |count: usize| {
        ["a", "b", "c"][..count]
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&names(1), 1), "a");
    assert_eq!(list(&names(2), 2), "a and b");
    assert_eq!(list(&names(2), 5), "a, b and 3 more");
}

#[test]
fn quoted_text_is_cut_to_one_sentence() {
    assert_eq!(
        one_sentence("No such thing. Make it:\nnow."),
        "No such thing; Make it: now"
    );
}
