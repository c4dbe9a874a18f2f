//! Which namespaces may use a queue: those that its annotation and the annotations of all its ancestors allow. A queue without the annotation allows all.
//! Also whether the queue or an ancestor is held, so that no pending pods in it are placed.
//!
//! ```yaml
//! # Pods of namespace team-a and of those whose names begin with research-; limited to those that the parent allows, if it has the annotation, too.
//! metadata: {name: gold, annotations: {unikai.dev/allowed-namespaces: "team-a, research-*"}}
//! ```

use std::collections::BTreeMap;

use super::Queue;
use super::hold::Hold;
use super::names::annotation;

/// Names of namespaces, with `*` for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed(Vec<String>);

impl Allowed {
    /// Reads names between commas or blanks. An empty list allows no namespace.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let names = text.split(|c: char| c == ',' || c.is_whitespace());
        Self(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// The queue's annotation; `None` if it has none.
    #[must_use]
    pub fn of(queue: &Queue) -> Option<Self> {
        let annotations = queue.metadata.annotations.as_ref()?;
        annotations
            .get(annotation::ALLOWED_NAMESPACES)
            .map(|text| Self::parse(text))
    }

    /// Invalid namespace names in the list.
    pub fn invalid_names(&self) -> impl Iterator<Item = &str> {
        let sensible = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '*');
        self.0
            .iter()
            .filter(move |name| !name.chars().all(sensible))
            .map(String::as_str)
    }

    fn admits(&self, namespace: &str) -> bool {
        self.0
            .iter()
            .any(|pattern| matches(pattern.as_bytes(), namespace.as_bytes()))
    }
}

/// Whether a text matches a pattern with `*`. The text after a `*` is matched at the first possible position; only the last `*` needs backtracking.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut retry) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    (p, t) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// A queue's parent, the namespaces that it allows, and whether it is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    parent: Option<String>,
    allowed: Option<Allowed>,
    hold: Option<Hold>,
}

impl Entry {
    fn of(queue: &Queue) -> Self {
        let parent = queue.spec.parent_queue.as_deref();
        Self {
            parent: parent.filter(|parent| !parent.is_empty()).map(str::to_owned),
            allowed: Allowed::of(queue),
            hold: hold_of(queue),
        }
    }
}

/// All queues: parents, allowed namespaces and holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAccess {
    queues: BTreeMap<String, Entry>,
    /// Number of queues that allow some namespaces only.
    restricted: usize,
    /// Number of queues that are held.
    held: usize,
}

impl QueueAccess {
    /// Adds or changes a queue.
    pub fn put(&mut self, name: &str, parent: Option<&str>, allowed: Option<Allowed>) {
        let parent = parent.filter(|parent| !parent.is_empty()).map(str::to_owned);
        let hold = None;
        self.put_entry(name, Entry { parent, allowed, hold });
    }

    /// Adds or changes a queue, read from the object.
    pub fn put_queue(&mut self, queue: &Queue) {
        self.put_entry(queue.metadata.name.as_deref().unwrap_or_default(), Entry::of(queue));
    }

    fn put_entry(&mut self, name: &str, entry: Entry) {
        self.restricted += usize::from(entry.allowed.is_some());
        self.held += usize::from(entry.hold.is_some());
        let before = self.queues.insert(name.to_owned(), entry);
        self.discount(before);
    }

    /// Removes a deleted queue.
    pub fn remove(&mut self, name: &str) {
        let before = self.queues.remove(name);
        self.discount(before);
    }

    fn discount(&mut self, before: Option<Entry>) {
        let Some(before) = before else { return };
        self.restricted -= usize::from(before.allowed.is_some());
        self.held -= usize::from(before.hold.is_some());
    }

    /// Whether a queue is already known as `object` describes it; `None`: as one that does not exist.
    #[must_use]
    pub fn is_known_as(&self, name: &str, object: Option<&Queue>) -> bool {
        self.queues.get(name) == object.map(Entry::of).as_ref()
    }

    /// Whether the queue exists.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.queues.contains_key(name)
    }

    /// All queues, in order of name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str)
    }

    /// The parent, if there is one.
    #[must_use]
    pub fn parent(&self, name: &str) -> Option<&str> {
        self.queues.get(name)?.parent.as_deref()
    }

    /// The queue and its ancestors, as far as they exist; bounded where they form a cycle.
    fn path<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let found = |name: &'a str| Some((name, self.queues.get(name)?));
        let above = move |(_, entry): &(&'a str, &'a Entry)| found(entry.parent.as_deref()?);
        std::iter::successors(found(name), above).take(self.queues.len())
    }

    /// Whether `name` is `top` or below it.
    #[must_use]
    pub fn is_within(&self, name: &str, top: &str) -> bool {
        name == top
            || self
                .path(name)
                .any(|(at, entry)| at == top || entry.parent.as_deref() == Some(top))
    }

    /// The queue or ancestor that does not allow a namespace.
    #[must_use]
    pub fn closed_by<'a>(&'a self, name: &'a str, namespace: &str) -> Option<&'a str> {
        if self.restricted == 0 {
            return None;
        }
        let closed = |entry: &Entry| entry.allowed.as_ref().is_some_and(|allowed| !allowed.admits(namespace));
        self.path(name).find(|(_, entry)| closed(entry)).map(|(at, _)| at)
    }

    /// The queue or ancestor that is held, and the hold.
    #[must_use]
    pub fn held_by<'a>(&'a self, name: &'a str) -> Option<(&'a str, &'a Hold)> {
        if self.held == 0 {
            return None;
        }
        self.path(name).find_map(|(at, entry)| Some((at, entry.hold.as_ref()?)))
    }

    /// Whether a queue is open to all namespaces and not held, with all its ancestors, both as it is known and as `object` would make it.
    #[must_use]
    pub fn is_free(&self, name: &str, object: Option<&Queue>) -> bool {
        let free = |name: &str| self.is_open(name) && self.held_by(name).is_none();
        let would_be = |queue: &Queue| {
            let parent = queue.spec.parent_queue.as_deref();
            Allowed::of(queue).is_none() && hold_of(queue).is_none() && parent.is_none_or(free)
        };
        free(name) && object.is_none_or(would_be)
    }

    /// Whether the queue and all its ancestors allow all namespaces.
    #[must_use]
    pub fn is_open(&self, name: &str) -> bool {
        self.restricted == 0 || self.path(name).all(|(_, entry)| entry.allowed.is_none())
    }
}

/// The hold that the queue's own annotation states.
#[must_use]
pub fn hold_of(queue: &Queue) -> Option<Hold> {
    let annotations = queue.metadata.annotations.as_ref()?;
    Hold::of(annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

/// The message for a namespace that is not allowed: `closed_by` is the queue or an ancestor.
#[must_use]
pub fn not_open(queue: &str, closed_by: &str, namespace: &str) -> String {
    let key = annotation::ALLOWED_NAMESPACES;
    let above = if closed_by == queue {
        String::new()
    } else {
        format!(" of queue {closed_by} above it")
    };
    format!("Queue {queue} is not open to namespace {namespace}: the annotation {key}{above} does not name it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Target;

    #[test]
    fn patterns_name_namespaces() {
        for (text, namespace, admitted) in [
            ("team-a", "team-a", true),
            ("team-a", "team-ab", false),
            ("team-a, team-b", "team-b", true),
            ("team-a\nteam-b", "team-b", true),
            ("research-*", "research-", true),
            ("research-*", "research-x-y", true),
            ("research-*", "team", false),
            ("*-prod", "a-prod-prod", true),
            ("a*b*c", "axxbxbyc", true),
            ("a*b*c", "axxbxby", false),
            ("*", "anything", true),
            ("", "anything", false),
            (" , ", "anything", false),
        ] {
            assert_eq!(Allowed::parse(text).admits(namespace), admitted, "{text:?} {namespace}");
        }
        let odd = Allowed::parse("team-a, Team, x/y, re?");
        assert_eq!(odd.invalid_names().collect::<Vec<_>>(), ["Team", "x/y", "re?"]);
    }

    #[test]
    fn patterns_with_many_stars_are_matched_quickly() {
        let pattern = format!("{}b", "*a".repeat(200));
        assert!(!Allowed::parse(&pattern).admits(&"a".repeat(63)));
    }

    #[test]
    fn a_queue_allows_namespaces_that_it_and_all_ancestors_allow() {
        let mut access = QueueAccess::default();
        access.put("company", None, None);
        access.put("research", Some("company"), Some(Allowed::parse("r-*")));
        access.put("vision", Some("research"), None);
        access.put("speech", Some("research"), Some(Allowed::parse("r-speech, other")));
        access.put("free", Some("company"), None);
        for (queue, namespace, closed_by) in [
            ("free", "any", None),
            ("vision", "r-1", None),
            ("vision", "any", Some("research")),
            ("speech", "r-speech", None),
            ("speech", "r-1", Some("speech")),
            ("speech", "other", Some("research")),
            ("unknown", "any", None),
        ] {
            assert_eq!(access.closed_by(queue, namespace), closed_by, "{queue} {namespace}");
        }
        assert!(access.is_open("free") && !access.is_open("vision") && !access.is_open("speech"));
        assert!(access.is_within("vision", "research") && access.is_within("vision", "company"));
        assert!(!access.is_within("free", "research"));

        access.put("research", Some("company"), None);
        assert_eq!(access.closed_by("vision", "any"), None);
        access.remove("speech");
        assert_eq!(access.restricted, 0);
    }

    #[test]
    fn a_queue_is_known_until_its_parent_its_namespaces_or_its_hold_change() {
        let queue = |parent: &str, annotations: &str, cpu: u8| -> Queue {
            serde_yaml_ng::from_str(&format!(
                "{{metadata: {{name: q, annotations: {{{annotations}}}}}, spec: {{parentQueue: {parent}}},
                  status: {{allocated: {{cpu: '{cpu}'}}}}}}"
            ))
            .expect("a queue")
        };
        let annotations = "unikai.dev/allowed-namespaces: team, unikai.dev/hold: 'for data'";
        let mut access = QueueAccess::default();
        let known = queue("top", annotations, 1);
        assert!(access.is_known_as("q", None) && !access.is_known_as("q", Some(&known)));
        access.put_queue(&known);
        assert!(access.is_known_as("q", Some(&queue("top", annotations, 2))), "status");
        for changed in [
            queue("other", annotations, 1),
            queue("top", "unikai.dev/allowed-namespaces: team", 1),
            queue(
                "top",
                "unikai.dev/allowed-namespaces: '*', unikai.dev/hold: 'for data'",
                1,
            ),
        ] {
            assert!(!access.is_known_as("q", Some(&changed)), "{changed:?}");
        }
        assert!(!access.is_known_as("q", None), "deleted");
    }

    #[test]
    fn cycles_of_queues_end_the_walk() {
        let mut access = QueueAccess::default();
        access.put("a", Some("b"), Some(Allowed::parse("x")));
        access.put("b", Some("a"), None);
        assert_eq!(access.closed_by("b", "y"), Some("a"));
        assert!(!access.is_open("b") && !access.is_within("a", "c"));
    }

    /// Whether a text matches a pattern, by definition. Takes exponential time.
    fn matches_plainly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|at| matches_plainly(rest, &text[at..])),
            Some((byte, rest)) => text
                .split_first()
                .is_some_and(|(first, text)| first == byte && matches_plainly(rest, text)),
        }
    }

    #[test]
    fn fuzz_patterns_of_namespaces() {
        let target = Target {
            name: "allowed-namespaces",
            rounds: 1_000,
            words: &["team", "a", "b", "research", "*", "**", "-", ",", " ", "x"],
        };
        target.texts(|text| {
            let allowed = Allowed::parse(text);
            let short = |pattern: &&String| pattern.len() < 30 && pattern.matches('*').count() < 6;
            for pattern in allowed.0.iter().filter(short).take(8) {
                for namespace in ["team-a", "research-x-x", "aab-prod", "x", "abbbc"] {
                    assert_eq!(
                        matches(pattern.as_bytes(), namespace.as_bytes()),
                        matches_plainly(pattern.as_bytes(), namespace.as_bytes()),
                        "{pattern:?} {namespace}"
                    );
                }
            }
            assert_eq!(Allowed::parse(&allowed.0.join(", ")), allowed);
            allowed.invalid_names().next().is_none()
        });
    }
}
