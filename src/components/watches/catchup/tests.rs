use serde_json::json;

use super::*;

fn key(name: &str) -> Key {
    Key {
        namespace: "team".to_owned(),
        name: name.to_owned(),
    }
}

fn listing(version: &str, items: &[(&str, &str)]) -> Listing {
    let items: Vec<_> = items
        .iter()
        .map(|(name, version)| json!({"metadata": {"namespace": "team", "name": name, "resourceVersion": version}}))
        .collect();
    serde_json::from_value(json!({"metadata": {"resourceVersion": version}, "items": items})).unwrap()
}

fn shown(items: &[(&str, u64)]) -> HashMap<Key, Option<u64>> {
    items
        .iter()
        .map(|(name, version)| (key(name), Some(*version)))
        .collect()
}

fn begin() -> CatchUp {
    CatchUp::begin(vec![1], Instant::now())
}

#[test]
fn a_watch_that_has_shown_everything_has_caught_up() {
    let mut watch = begin();
    assert!(!watch.is_done());
    assert!(watch.listed(
        listing("10", &[("a", "3"), ("b", "10")]),
        &shown(&[("a", 3), ("b", 12), ("new", 11)])
    ));
    assert!(watch.is_done());
}

#[test]
fn a_watch_must_show_newer_missing_and_deleted_objects() {
    let mut watch = begin();
    let list = listing("10", &[("older", "9"), ("missing", "8"), ("same", "2")]);
    assert!(watch.listed(list, &shown(&[("older", 4), ("gone", 5), ("same", 2)])));
    assert_eq!(watch.behind(), Some(3));
    watch.saw(&key("older"), Some("7"), true);
    assert_eq!(watch.behind(), Some(3), "still older than in the list");
    watch.saw(&key("older"), Some("9"), true);
    watch.saw(&key("missing"), Some("11"), false);
    assert_eq!((watch.behind(), watch.is_done()), (Some(1), false));
    watch.saw(&key("gone"), Some("6"), true);
    assert!(!watch.is_done(), "it changed before it went");
    watch.saw(&key("gone"), Some("7"), false);
    assert!(watch.is_done());
}

/// The list still has what was deleted right after it; the watch has told that before the list was there.
#[test]
fn objects_deleted_during_the_list_are_not_waited_for() {
    let mut watch = begin();
    watch.saw(&key("brief"), Some("12"), false);
    watch.saw(&key("stays"), Some("13"), true);
    assert!(watch.listed(
        listing("10", &[("brief", "7"), ("stays", "1")]),
        &shown(&[("stays", 13)])
    ));
    assert!(watch.is_done());
}

#[test]
fn only_a_relist_that_began_in_the_term_shows_that_the_watch_has_caught_up() {
    let mut watch = begin();
    watch.relisted();
    assert!(!watch.is_done());
    watch.relisting();
    watch.relisted();
    assert!(watch.is_done());
}

#[test]
fn a_watch_comes_closer_by_what_it_shows_of_missing_objects() {
    let mut watch = begin();
    assert!(!watch.came_closer());
    watch.saw(&key("any"), Some("3"), true);
    assert!(watch.came_closer() && !watch.came_closer(), "asked again");
    assert!(watch.listed(
        listing("10", &[("older", "9"), ("same", "2")]),
        &shown(&[("older", 4), ("same", 2)])
    ));
    watch.saw(&key("same"), Some("12"), true);
    assert!(!watch.came_closer(), "nothing is missing of it");
    for (version, done) in [("7", false), ("9", true)] {
        watch.saw(&key("older"), Some(version), true);
        assert_eq!((watch.came_closer(), watch.is_done()), (true, done), "{version}");
    }
}

#[test]
fn versions_that_are_no_numbers_are_ignored() {
    assert!(!begin().listed(listing("x", &[]), &shown(&[])));
    assert!(!begin().listed(listing("1", &[("a", "v1")]), &shown(&[])));
    assert!(!begin().listed(listing("1", &[]), &HashMap::from([(key("a"), None)])));
}

#[test]
fn pages_are_put_together() {
    let mut first = listing("10", &[("a", "1")]);
    first.metadata.next = Some("more".to_owned());
    assert_eq!(first.next().as_deref(), Some("more"));
    first.extend(listing("10", &[("b", "2")]));
    assert_eq!((first.next(), first.items.len()), (None, 2));
}

#[test]
fn an_empty_list_may_say_null() {
    let text = r#"{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7"},"items":null}"#;
    let listing: Listing = serde_json::from_str(text).unwrap();
    let mut catch_up = CatchUp::begin(vec![1], Instant::now());
    assert!(catch_up.listed(listing, &HashMap::new()));
    assert!(catch_up.is_done());
}
