//! YAML as users may send it to the operator: its values take no more memory than its length allows.

use allocation_counter::measure;

use crate::fuzz::Target;
use crate::workloads::budget::Budget;

#[test]
fn fuzz_yaml_against_its_budget() {
    let target = Target {
        name: "yaml",
        rounds: 1_500,
        words: &[
            "&a ",
            "*a",
            "&b ",
            "*b",
            "<<: *a",
            "- ",
            "? ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "\n",
            "  ",
            "|",
            ">-",
            "\"",
            "'",
            "!!binary ",
            "!!int ",
            "%YAML 1.2",
            "---",
            "...",
            "#",
            "~",
            ".inf",
            "0o7",
            "a",
            "b",
        ],
    };
    target.texts(|text| {
        let mut valid = false;
        let taken = measure(|| {
            let budget = Budget::of(text);
            for document in serde_yaml_ng::Deserializer::from_str(text) {
                let read = budget.take(document);
                valid = read.is_ok();
                if let Err(error) = read {
                    assert!(!error.to_string().is_empty());
                    break;
                }
            }
        });
        let most = 1_000 * (text.len() as u64 + 1_024);
        assert!(taken.bytes_max <= most, "{taken:?} for {} bytes", text.len());
        valid
    });
}
