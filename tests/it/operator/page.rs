//! A strict reader of metrics pages: it refuses what Prometheus or its linter would refuse.

use std::collections::{BTreeMap, BTreeSet};

/// One sample: its labels and its value.
pub type Sample = (BTreeMap<String, String>, f64);

/// A page, read.
#[derive(Debug, Default)]
pub struct Page {
    /// The type of each family.
    pub types: BTreeMap<String, String>,
    /// The samples by name; those of histograms under `…_bucket`, `…_sum` and `…_count`.
    pub samples: BTreeMap<String, Vec<Sample>>,
}

impl Page {
    /// Reads a page; fails the test at the first line that makes no sense.
    pub fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut seen = BTreeSet::new();
        let mut helps = BTreeSet::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("a help text");
                assert!(!help.is_empty() && helps.insert(name.to_owned()), "{line}");
            } else if let Some(typed) = line.strip_prefix("# TYPE ") {
                let (name, kind) = typed.split_once(' ').expect("a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let first = page.types.insert(name.to_owned(), kind.to_owned()).is_none();
                assert!(first && helps.contains(name), "{line}");
            } else {
                assert!(
                    seen.insert(line.rsplit_once(' ').expect("a value").0.to_owned()),
                    "twice: {line}"
                );
                page.sample(line);
            }
        }
        page.check_histograms();
        page
    }

    /// The values of a metric where these labels have these values.
    pub fn values(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let fits = |sample: &&Sample| {
            labels
                .iter()
                .all(|(key, value)| sample.0.get(*key).is_some_and(|is| is == value))
        };
        let samples = self.samples.get(name).into_iter().flatten();
        samples.filter(fits).map(|sample| sample.1).collect()
    }

    fn sample(&mut self, line: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        // Of a node pool that has no shard any more.
        let leads_none = value.is_nan() && line.starts_with("unikai_pool_leader{");
        assert!(value.is_finite() || leads_none, "{line}");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, read_labels(labels.strip_suffix('}').expect("a closed brace"))),
            None => (series, BTreeMap::new()),
        };
        assert!(is_name(name), "{line}");
        let family = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| {
            let family = name.strip_suffix(part)?;
            (self.types.get(family)? == "histogram").then_some(family)
        });
        let family = family.unwrap_or(name);
        assert!(self.types.contains_key(family), "no type before: {line}");
        assert!(self.types[family] != "counter" || value >= 0.0, "{line}");
        self.samples.entry(name.to_owned()).or_default().push((labels, value));
    }

    /// Buckets grow, and the last one counts all.
    fn check_histograms(&self) {
        for (name, _) in self.types.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut last: BTreeMap<BTreeMap<String, String>, (f64, f64)> = BTreeMap::new();
            for (labels, count) in self.samples.get(&format!("{name}_bucket")).into_iter().flatten() {
                let mut labels = labels.clone();
                let bound: f64 = labels.remove("le").expect("a bound").parse().expect("a number");
                if let Some((before, fewer)) = last.insert(labels, (bound, *count)) {
                    assert!(before < bound && fewer <= *count, "{name} at {bound}");
                }
            }
            for (labels, (bound, all)) in last {
                let pairs: Vec<_> = labels
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect();
                assert_eq!(bound, f64::INFINITY, "{name}");
                assert_eq!(self.values(&format!("{name}_count"), &pairs), [all], "{name}");
                assert_eq!(self.values(&format!("{name}_sum"), &pairs).len(), 1, "{name}");
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `a="x",b="y"`, with `\\`, `\"` and `\n` in the values.
fn read_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").expect("a label");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{text}");
        let (mut value, mut chars) = (String::new(), behind.char_indices());
        let end = loop {
            match chars.next().expect("a closed quote") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    other => panic!("no escape: \\{other}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{text}");
        rest = behind[end + 1..].trim_start_matches(',');
    }
    labels
}
