use jiff::Timestamp;

use super::*;

/// `a:1` is a condition of node pool a with transition id 1; all texts are the same.
fn list(text: &str) -> Vec<SchedulingCondition> {
    let entries = text.split(", ").filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (pool, id) = entry.split_once(':').unwrap();
            SchedulingCondition {
                transition_id: Some(id.to_owned()),
                ..new(pool)
            }
        })
        .collect()
}

fn new(pool: &str) -> SchedulingCondition {
    SchedulingCondition {
        r#type: Some("UnschedulableOnNodePool".to_owned()),
        node_pool: Some(pool.to_owned()),
        message: Some("same".to_owned()),
        ..SchedulingCondition::default()
    }
}

fn check(existing: &str, pool: &str, expected: &str) {
    let advanced = advance(&list(existing), new(pool), Timestamp::UNIX_EPOCH);
    let text = advanced.map_or("unchanged".to_owned(), |conditions| {
        let entry =
            |c: &SchedulingCondition| format!("{}:{}", c.node_pool.clone().unwrap(), c.transition_id.clone().unwrap());
        conditions.iter().map(entry).collect::<Vec<_>>().join(", ")
    });
    assert_eq!(text, expected, "{existing} and a new one for {pool}");
}

#[test]
fn the_newest_is_last_and_a_node_pool_has_one() {
    check("", "default", "default:1");
    check("a:99", "default", "a:99, default:100");
    check("a:1, b:2", "a", "b:2, a:3");
    check("b:2, a:3", "a", "unchanged");
    check("a:3, b:2", "a", "b:2, a:4");
    check("a:1, b:2, a:3", "a", "b:2, a:4");
    check("a:x", "b", "a:x, b:1");
    check("a:-7", "b", "a:-7, b:1");
}

#[test]
fn other_words_make_a_new_transition() {
    let mut other = new("a");
    other.message = Some("other".to_owned());
    let advanced = advance(&list("a:1"), other, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(advanced.len(), 1);
    assert_eq!(advanced[0].transition_id.as_deref(), Some("2"));
}

#[test]
fn amounts_are_exact_and_unlimited_is_left_out() {
    let amounts = amounts(&[Some(1_500), None, Some(1_500_000)]);
    let text: Vec<_> = amounts
        .iter()
        .map(|(name, quantity)| format!("{name}={}", quantity.0))
        .collect();
    assert_eq!(text, ["cpu=1500m", "nvidia.com/gpu=1500m"]);
}
