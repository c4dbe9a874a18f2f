//! An estimate of what parsing a JSON text costs, before it is parsed: its depth, and the memory that its objects may take.
//!
//! A tree can take hundreds of times the memory of its text (`[{},{},…]`), and so can a typed object, each of whose list elements takes its full size
//! even if it is empty. So brackets and commas are counted, each with the size of the largest value that it may become.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Volume};

use crate::api::limits;

/// What a JSON object of the text may become, which determines the memory of one `{`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pod: an element of one of its lists, three times (as it was, as it becomes, and as JSON while the two are compared).
    Pod,
    /// Anything else: a map with room for its first entries, or an element of a list.
    Other,
}

/// The largest element of a list in a pod.
const POD_ELEMENT: usize = max(
    size_of::<Container>(),
    max(size_of::<EphemeralContainer>(), size_of::<Volume>()),
);
/// A map with room for its first entries.
const MAP: usize = 640;
/// A list with room for its first elements.
const LIST: usize = 160;
/// An element of a list, or an entry of a map.
const ELEMENT: usize = 96;

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

impl Kind {
    const fn object(self) -> usize {
        match self {
            Self::Pod => 3 * POD_ELEMENT,
            Self::Other => MAP,
        }
    }
}

/// Why a text is not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    /// Its nesting is too deep.
    #[error("lists and objects are more than {} within one another", limits::JSON_DEPTH)]
    Deep,
    /// It may take more memory than allowed.
    #[error("reading it would take more than {} MiB", .0 >> 20)]
    Large(usize),
}

/// The bytes that parsing the text may take, including the text; at most `most`.
///
/// # Errors
/// If its nesting is too deep, or it may take more than `most`.
pub fn of(text: &[u8], kind: Kind, most: usize) -> Result<usize, TooMuch> {
    let (mut depth, mut bytes) = (0_usize, text.len());
    let mut characters = text.iter();
    while let Some(character) = characters.next() {
        match character {
            b'"' => skip_text(&mut characters),
            b'{' | b'[' => {
                depth += 1;
                bytes += if *character == b'{' { kind.object() } else { LIST };
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => bytes += ELEMENT,
            _ => {}
        }
        if depth > limits::JSON_DEPTH {
            return Err(TooMuch::Deep);
        }
        if bytes > most {
            return Err(TooMuch::Large(most));
        }
    }
    Ok(bytes)
}

/// Skips to the end of a string.
fn skip_text(characters: &mut std::slice::Iter<u8>) {
    while let Some(character) = characters.next() {
        match character {
            b'"' => return,
            b'\\' => {
                characters.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = limits::WEBHOOK_REVIEW_BYTES;

    #[test]
    fn objects_of_short_text_and_large_memory_are_recognised() {
        let many = |element: &str| format!("[{}]", vec![element; 400_000].join(","));
        assert_eq!(
            of(many(r#"{"":0}"#).as_bytes(), Kind::Other, MOST),
            Err(TooMuch::Large(MOST))
        );
        assert_eq!(of(many("{}").as_bytes(), Kind::Pod, MOST), Err(TooMuch::Large(MOST)));
        assert_eq!(of(many("[0]").as_bytes(), Kind::Other, MOST), Err(TooMuch::Large(MOST)));
    }

    #[test]
    fn depth_is_bounded_and_brackets_in_strings_do_not_count() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(of(deep(limits::JSON_DEPTH).as_bytes(), Kind::Pod, MOST).is_ok());
        assert_eq!(
            of(deep(limits::JSON_DEPTH + 1).as_bytes(), Kind::Pod, MOST),
            Err(TooMuch::Deep)
        );
        let text = format!(r#"{{"a": "{}\"{}"}}"#, "[".repeat(1_000), "{".repeat(1_000));
        assert_eq!(of(text.as_bytes(), Kind::Other, MOST), Ok(text.len() + MAP));
        // Text that is not JSON is estimated as well, without a panic at its end.
        assert!(of(br#"{"a\"#, Kind::Other, MOST).is_ok());
    }

    #[test]
    fn a_large_valid_pod_is_far_below_the_limit() {
        let variable = |number: usize| format!(r#"{{"name":"VARIABLE_{number}","value":"{number}"}}"#);
        let variables: Vec<String> = (0..500).map(variable).collect();
        let pod = format!(r#"{{"spec":{{"containers":[{{"env":[{}]}}]}}}}"#, variables.join(","));
        assert!(of(pod.as_bytes(), Kind::Pod, MOST).unwrap() < MOST / 8);
    }
}
