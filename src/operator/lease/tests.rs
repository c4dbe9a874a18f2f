#[cfg(feature = "devcluster")]
mod election;

use jiff::Timestamp;
use kube::ResourceExt;

use super::record::{created, released, renewed, taken};
use super::*;

fn params(identity: &str) -> Params {
    Params {
        namespace: "kai-scheduler".to_owned(),
        name: "kai-scheduler".to_owned(),
        identity: identity.to_owned(),
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn version(mut lease: Lease, version: u64) -> Lease {
    lease.metadata.resource_version = Some(version.to_string());
    lease
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_lease_that_does_not_exist_is_free() {
    assert_eq!(Free::of(None, Instant::now()), Free::Now);
}

#[test]
fn a_held_lease_is_free_when_it_has_not_changed_for_its_duration() {
    let start = Instant::now();
    // The holder's clock is an hour behind; that must not matter.
    let mut seen = Observed::new(version(created(&params("a"), at(-3600)), 1), start);
    assert_eq!(Free::of(Some(&seen), start), Free::At(start + 15 * SECOND));

    let renewal = version(renewed(seen.lease(), at(-3590)), 2);
    seen.update(renewal, start + 10 * SECOND);
    assert_eq!(
        Free::of(Some(&seen), start + 16 * SECOND),
        Free::At(start + 25 * SECOND)
    );
    assert_eq!(Free::of(Some(&seen), start + 25 * SECOND), Free::Now);
}

#[test]
fn changes_of_labels_and_old_versions_are_no_renewals() {
    let start = Instant::now();
    let first = version(created(&params("a"), at(0)), 5);
    let mut seen = Observed::new(first.clone(), start);

    let mut labelled = version(first.clone(), 6);
    labelled.labels_mut().insert("team".to_owned(), "infra".to_owned());
    seen.update(labelled, start + 5 * SECOND);
    seen.update(version(renewed(&first, at(1)), 4), start + 6 * SECOND);

    assert_eq!(Free::of(Some(&seen), start + 7 * SECOND), Free::At(start + 15 * SECOND));
    assert_eq!(seen.lease().metadata.resource_version.as_deref(), Some("6"));
}

#[test]
fn a_released_lease_is_free_at_once_and_counts_the_transition() {
    let now = Instant::now();
    let first = created(&params("a"), at(0));
    let given_up = released(&first, at(3));
    assert_eq!(holder(&given_up), None);
    assert_eq!(Free::of(Some(&Observed::new(given_up.clone(), now)), now), Free::Now);

    let second = taken(&given_up, &params("b"), at(4));
    let spec = second.spec.as_ref().unwrap();
    assert_eq!(holder(&second), Some("b"));
    assert_eq!(
        (spec.lease_transitions, spec.lease_duration_seconds),
        (Some(1), Some(15))
    );
}

#[test]
fn a_release_is_no_renewal() {
    let first = version(created(&params("a"), at(0)), 1);
    let seen = Observed::new(first.clone(), Instant::now());
    assert!(seen.is_renewed_by(&version(renewed(&first, at(1)), 2)));
    assert!(!seen.is_renewed_by(&version(released(&first, at(1)), 2)));
}

#[test]
fn the_lease_of_a_node_pool_has_the_name_of_kais_and_no_two_pools_have_the_same() {
    assert_eq!(name_for_pool("kai-scheduler", "blue", "one"), "kai-scheduler-blue");
    for no_name in ["Blue", "blue_1", "a..b", "a.-b"] {
        assert_eq!(name_for_pool("kai-scheduler", no_name, "blue"), "kai-scheduler.blue");
    }
}

#[test]
fn fractions_of_seconds_round_up_in_the_lease() {
    let params = Params {
        duration: Duration::from_millis(1500),
        ..params("a")
    };
    assert_eq!(created(&params, at(0)).spec.unwrap().lease_duration_seconds, Some(2));
}

#[test]
fn jitter_only_lengthens() {
    for _ in 0..100 {
        let drawn = jittered(SECOND);
        assert!(drawn >= SECOND && drawn <= SECOND.mul_f64(1.2), "{drawn:?}");
    }
}

#[test]
fn every_process_has_a_unique_identity_with_the_name_of_its_host() {
    assert_ne!(identity(), identity());
    assert!(identity_on("gpu-7\n").starts_with("gpu-7_"));
    assert!(identity_on("").starts_with("unikai_"));
}

#[test]
fn three_requests_fit_into_the_renew_deadline() {
    let params = params("a");
    let request = params.request_timeout();
    assert!(request > Duration::ZERO && request * 3 <= params.renew_deadline);
}
