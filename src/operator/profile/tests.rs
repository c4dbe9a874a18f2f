use std::time::{Duration, UNIX_EPOCH};

use super::format::{Profile, Stack, Time, profile};

#[inline(never)]
fn an_inner_function() -> usize {
    std::hint::black_box(1)
}

#[inline(never)]
fn an_outer_function() -> usize {
    std::hint::black_box(2)
}

/// An address in a function: that after its first instruction's first byte, as return addresses are looked up by the byte before them.
fn inside(function: fn() -> usize) -> usize {
    function as *const () as usize + 1
}

/// The names of the functions of a sample, the innermost first.
fn names(profile: &Profile, sample: usize) -> Vec<&str> {
    let locations = &profile.samples[sample].locations;
    let lines = locations.iter().flat_map(|id| {
        let location = profile.locations.iter().find(|location| location.id == *id);
        location.expect("every location is in the table").lines.iter()
    });
    lines
        .map(|line| {
            let function = profile.functions.iter().find(|function| function.id == line.function);
            let name = function.expect("every function is in the table").name;
            &*profile.texts[name as usize]
        })
        .collect()
}

#[test]
fn a_profile_names_functions_threads_and_times() {
    let (inner, outer) = (inside(an_inner_function), inside(an_outer_function));
    let stack = |addresses: &[usize], samples| Stack {
        thread: "scheduler".to_owned(),
        addresses: addresses.to_vec(),
        samples,
    };
    let time = Time {
        began: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        lasted: Duration::from_secs(2),
        period: Duration::from_millis(10),
    };
    let stacks = [stack(&[inner, outer], 3), stack(&[outer], 1), stack(&[8], 1)];
    let profile = profile(stacks.into_iter(), &time);

    let found = names(&profile, 0);
    let [first, second] = &*found else { panic!("{found:?}") };
    assert!(first.ends_with("::an_inner_function"), "{first}");
    assert!(second.ends_with("::an_outer_function"), "{second}");
    assert_eq!(names(&profile, 1), [*second]);
    assert_eq!(names(&profile, 2), ["[unknown]"]);
    assert_eq!(profile.locations.len(), 3, "a place on two stacks is written once");

    let values: Vec<&[i64]> = profile.samples.iter().map(|sample| &*sample.values).collect();
    assert_eq!(values, [[3, 30_000_000], [1, 10_000_000], [1, 10_000_000]]);
    let kinds = profile.sample_types.iter().map(|kind| (kind.kind, kind.unit));
    let text = |number: i64| &*profile.texts[number as usize];
    let kinds: Vec<_> = kinds.map(|(kind, unit)| (text(kind), text(unit))).collect();
    assert_eq!(kinds, [("samples", "count"), ("cpu", "nanoseconds")]);
    let label = profile.samples[0].labels[0];
    assert_eq!((text(label.key), text(label.text)), ("thread", "scheduler"));
    assert_eq!(text(0), "");
    assert_eq!(
        (profile.began, profile.lasted, profile.period),
        (1_700_000_000_000_000_000, 2_000_000_000, 10_000_000)
    );
}
