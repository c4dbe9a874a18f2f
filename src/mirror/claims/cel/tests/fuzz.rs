//! Device selectors as tenants may write them: each is refused, or evaluated at no more than the cost that is counted for it.

use allocation_counter::measure;

use super::gpu;
use crate::api::limits;
use crate::fuzz::Target;
use crate::mirror::claims::cel::{Selector, on_a_deep_stack};

/// Bytes that the evaluation for one device may allocate, and those for each step.
const BYTES: u64 = 256 << 10;
const BYTES_PER_STEP: u64 = 4 << 10;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "device", ".driver", ".attributes", ".capacity", "['gpu.example.com']", ".model", ".index", ".mig", ".memory", ".driverVersion",
    ".allowMultipleAllocations", "quantity('1Gi')", "semver('1.2.3')", ".compareTo(", ".isGreaterThan(", ".asInteger()", "has(", "size(",
    ".exists(x, x)", ".all(x, x == x)", ".map(x, x + x)", ".filter(x, true)", ".exists_one(x, x)", ".existsOne(x, x)", ".sortBy(x, x)", "[1, 2, 3]",
    "lists.range(1000)", ".flatten()", ".distinct()", ".replace('a', 'bbbbbbbbbbbbbbbbbbbb')", ".join('-')", ".split('')", ".format([1])", "'%.400f'",
    ".matches('(a{99}){9}')", "'aaaaaaaaaaaaaaaaaaaaaaaaaaaa'", "b'x'", "r'\\'", "'''", "\"\"\"", "'\\''", "\"", "'", "\\", "//", "\n", "&&", "||",
    "!", "-", "+", "*", "/", "%", "?", ":", "==", "<=", "in", "true", "null", "1", "2u", "1.5", "0x1F", "1e9", "9223372036854775807", "(", ")", "[",
    "]", "{", "}", "{'a': 1}", ",", ".", "duration('1h')", "timestamp('2026-01-01T00:00:00Z')", "int(", "string(", "type(", "dyn(", "math.greatest(",
];

#[test]
fn fuzz_device_selectors() {
    let target = Target {
        name: "cel",
        rounds: 2_000,
        words: WORDS,
    };
    target.texts(|text| {
        let selector = match Selector::compile(text) {
            Ok(selector) => selector,
            Err(error) => {
                assert!(!error.is_empty() && error.len() <= 512);
                return false;
            }
        };
        assert!(text.len() <= limits::CLAIM_SELECTOR_BYTES && selector.steps <= limits::CLAIM_SELECTOR_STEPS);
        let evaluated = on_a_deep_stack(|| {
            let device = gpu();
            let mut answer = Ok(false);
            let taken = measure(|| answer = selector.meets(&device));
            (answer, selector.meets(&device), taken.bytes_total)
        });
        let (answer, again, bytes) = evaluated.expect("evaluation does not panic");
        assert_eq!(answer, again, "the same device gets the same answer");
        let most = BYTES + BYTES_PER_STEP * selector.steps as u64;
        assert!(bytes <= most, "{bytes} bytes for {} steps", selector.steps);
        answer
            .inspect_err(|error| assert!(!error.is_empty() && error.len() <= 512))
            .is_ok()
    });
}
