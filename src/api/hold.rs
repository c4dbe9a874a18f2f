//! Holds: while a PodGroup or a queue has the annotation, none of its pending pods is placed; a queue's hold includes the queues below it. Running pods stay.
//!
//! ```yaml
//! metadata: {name: train, annotations: {unikai.dev/hold: "waits for the data"}}
//! ```

use super::limits::HOLD_REASON_BYTES;
use super::names::annotation;

/// A hold, as an object's annotation states it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The reason that the annotation states, on one line.
    pub reason: Option<String>,
}

impl Hold {
    /// The hold of an object with these annotations.
    #[must_use]
    pub fn of<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let mut annotations = annotations.into_iter();
        let (_, text) = annotations.find(|(key, _)| *key == annotation::HOLD)?;
        Self::parse(text)
    }

    /// Parses the annotation's value: `true` or a reason is a hold, `false` and an empty text are none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text
            .get(..text.floor_char_boundary(HOLD_REASON_BYTES))
            .unwrap_or_default();
        let words: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .collect();
        let reason = words.join(" ");
        match reason.to_ascii_lowercase().as_str() {
            "" | "false" => None,
            "true" => Some(Self::default()),
            _ => Some(Self { reason: Some(reason) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Target;

    #[test]
    fn a_hold_is_true_or_a_reason() {
        let reason = |text: &str| Hold::parse(text).map(|hold| hold.reason);
        assert_eq!(reason("true"), Some(None));
        assert_eq!(reason(" True "), Some(None));
        assert_eq!(reason(""), None);
        assert_eq!(reason("\n"), None);
        assert_eq!(reason("false"), None);
        assert_eq!(
            reason("waits for\n the  data\u{7}"),
            Some(Some("waits for the data".to_owned()))
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let long = "ä".repeat(HOLD_REASON_BYTES);
        let kept = Hold::parse(&long).and_then(|hold| hold.reason).unwrap_or_default();
        assert_eq!(kept.len(), HOLD_REASON_BYTES);
        let odd = format!("x{long}");
        let kept = Hold::parse(&odd).and_then(|hold| hold.reason).unwrap_or_default();
        assert_eq!(kept.len(), HOLD_REASON_BYTES - 1);
    }

    #[test]
    fn other_annotations_are_no_hold() {
        assert_eq!(Hold::of([("a", "true")]), None);
        assert_eq!(
            Hold::of([("a", "b"), ("unikai.dev/hold", "true")]),
            Some(Hold::default())
        );
    }

    #[test]
    fn fuzz_holds() {
        let target = Target {
            name: "hold",
            rounds: 1_000,
            words: &[
                "true",
                "FALSE",
                "waits",
                "until",
                "data",
                " ",
                "\u{a0}",
                "\u{85}",
                "\u{1b}[2J",
            ],
        };
        target.texts(|text| {
            let Some(hold) = Hold::parse(text) else { return false };
            let Some(reason) = &hold.reason else { return true };
            assert!(!reason.is_empty() && reason.len() <= HOLD_REASON_BYTES);
            assert!(!reason.contains(char::is_control), "{reason:?} is not on one line");
            assert_eq!(
                Hold::parse(reason).as_ref(),
                Some(&hold),
                "the reason is read as itself"
            );
            true
        });
    }
}
