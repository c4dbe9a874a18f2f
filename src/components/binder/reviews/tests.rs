//! When bind requests are looked at.

use serde_json::{Value, json};

use super::*;

/// The reviews, and the time.
struct World {
    reviews: Reviews,
    now: Instant,
}

fn request(name: &str) -> BindRequest {
    let request = json!({"metadata": {"namespace": "team", "name": name}, "spec": {"podName": "a"}});
    serde_json::from_value(request).unwrap()
}

fn key(name: &str) -> Key {
    Key::of(&request(name).metadata)
}

fn pod(more: Value) -> Pod {
    let mut pod = json!({"metadata": {"namespace": "team", "name": "a", "uid": "a"}, "spec": {"containers": []}});
    json_patch::merge(&mut pod, &more);
    serde_json::from_value(pod).unwrap()
}

fn reference() -> PodRef {
    PodRef::new("team", "a", "a")
}

impl World {
    /// With the requests `r` and `s` for the pod `a`, both of which have been looked at.
    fn new() -> Self {
        let mut world = Self {
            reviews: Reviews::default(),
            now: Instant::now(),
        };
        for name in ["r", "s"] {
            world.reviews.request(&request(name), world.now);
        }
        assert_eq!(world.due(), ["r", "s"]);
        world
    }

    /// The requests that are due.
    fn due(&mut self) -> Vec<String> {
        let due = self.reviews.due(self.now);
        let mut names: Vec<_> = due.into_iter().map(|key| key.name).collect();
        names.sort();
        names
    }
}

#[test]
fn a_request_is_looked_at_when_it_or_its_pod_changes() {
    let mut world = World::new();
    assert_eq!(world.reviews.next(), None);
    assert!(world.due().is_empty(), "once");
    world.reviews.request(&request("r"), world.now);
    assert_eq!(world.reviews.next(), Some(world.now));
    assert_eq!(world.due(), ["r"]);
    world.reviews.pod(&pod(json!({})), world.now);
    assert_eq!(world.due(), ["r", "s"]);
    world.reviews.pod_gone(&pod(json!({})), world.now);
    assert_eq!(world.due(), ["r", "s"]);
    world.reviews.review_all(world.now);
    assert_eq!(world.due(), ["r", "s"]);
}

#[test]
fn pods_of_other_names_concern_no_request() {
    let mut world = World::new();
    world.reviews.pod(&pod(json!({"metadata": {"name": "b"}})), world.now);
    world
        .reviews
        .pod(&pod(json!({"metadata": {"namespace": "other"}})), world.now);
    assert!(world.due().is_empty());
}

#[test]
fn after_a_failed_bind_a_request_is_left_alone_for_a_while_whatever_changes() {
    let mut world = World::new();
    let wait = Duration::from_secs(4);
    world.reviews.again(&reference(), world.now + wait);
    world.reviews.pod(&pod(json!({})), world.now);
    world.reviews.request(&request("r"), world.now);
    assert!(world.due().is_empty());
    assert_eq!(world.reviews.next(), Some(world.now + wait));
    world.now += wait;
    assert_eq!(world.due(), ["r", "s"]);
    world.reviews.request(&request("r"), world.now - wait);
    assert_eq!(world.due(), ["r"], "the wait is over");
}

#[test]
fn after_that_while_a_request_is_looked_at_though_nothing_has_changed() {
    let mut world = World::new();
    world.reviews.again(&reference(), world.now + Duration::from_secs(4));
    assert!(world.due().is_empty());
    world.now += Duration::from_secs(4);
    assert_eq!(world.due(), ["r", "s"]);
    assert!(world.reviews.not_before.is_empty());
}

#[test]
fn a_request_that_is_being_handled_is_not_looked_at_again_until_some_time_has_passed() {
    let mut world = World::new();
    world.reviews.begin(&key("r"), world.now);
    world.reviews.pod(&pod(json!({})), world.now);
    assert_eq!(world.due(), ["s"]);
    assert_eq!(world.reviews.next(), Some(world.now + AGAIN));

    let mut world = World::new();
    world.reviews.finish(&key("r"), world.now);
    assert!(world.due().is_empty());
    world.now += AGAIN;
    assert_eq!(world.due(), ["r"], "in case nothing has changed");
}

#[test]
fn a_new_request_of_the_same_name_does_not_wait_for_the_former() {
    for ends in [Reviews::forget, |reviews: &mut Reviews, key: &Key| {
        reviews.request_gone(&request(&key.name));
    }] {
        let mut world = World::new();
        world.reviews.begin(&key("r"), world.now);
        ends(&mut world.reviews, &key("r"));
        world.reviews.request(&request("r"), world.now);
        assert_eq!(world.due(), ["r"]);
    }
}

#[test]
fn a_request_that_is_gone_is_forgotten() {
    let mut world = World::new();
    world.reviews.request_gone(&request("r"));
    world.reviews.review_all(world.now);
    assert_eq!(world.due(), ["s"]);
    world.reviews.request_gone(&request("s"));
    assert!(world.reviews.by_pod.is_empty() && world.reviews.not_before.is_empty());
}

#[test]
fn a_pod_that_was_bound_is_known_as_such_until_a_change_shows_it() {
    type Watch<'a> = &'a dyn Fn(&mut Reviews);
    let was_bound = |ends_bound: bool, before: Watch, after: Watch| {
        let (mut reviews, uid) = (Reviews::default(), Arc::clone(&reference().uid));
        reviews.steps_begin(&uid);
        before(&mut reviews);
        assert!(reviews.is_in_steps("a") && !reviews.was_bound("a"));
        reviews.steps_end(&uid, ends_bound);
        after(&mut reviews);
        assert!(!reviews.is_in_steps("a"));
        reviews.was_bound("a")
    };
    let nothing: Watch = &|_| {};
    let show = |reviews: &mut Reviews, change: Value| reviews.pod(&pod(change), Instant::now());
    assert!(was_bound(true, nothing, nothing));
    assert!(!was_bound(false, nothing, nothing), "the bind failed");
    let old: Watch = &|reviews| show(reviews, json!({}));
    let bound: Watch = &|reviews| show(reviews, json!({"spec": {"nodeName": "n"}}));
    let leaving: Watch = &|reviews| {
        show(
            reviews,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        );
    };
    let gone: Watch = &|reviews| reviews.pod_gone(&pod(json!({})), Instant::now());
    let other: Watch = &|reviews| show(reviews, json!({"metadata": {"uid": "b"}, "spec": {"nodeName": "n"}}));
    for (what, change, shows) in [
        ("an old view", old, false),
        ("bound", bound, true),
        ("leaving", leaving, true),
        ("gone", gone, true),
        ("another pod", other, false),
    ] {
        assert_eq!(
            was_bound(true, change, nothing),
            !shows,
            "{what}, before the bind has ended"
        );
        assert_eq!(was_bound(true, nothing, change), !shows, "{what}, after that");
    }
}

#[test]
fn a_request_that_names_another_pod_leaves_the_first_one() {
    let mut world = World::new();
    let mut other = request("r");
    other.spec.pod_name = Some("b".to_owned());
    world.reviews.request(&other, world.now);
    assert_eq!(world.due(), ["r"]);
    world.reviews.pod(&pod(json!({})), world.now);
    assert_eq!(world.due(), ["s"]);
    world.reviews.request_gone(&other);
    world.reviews.request_gone(&request("s"));
    assert!(world.reviews.by_pod.is_empty() && world.reviews.pods.is_empty());
}
