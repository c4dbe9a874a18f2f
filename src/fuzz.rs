//! Structure-aware fuzzing by ordinary tests: seeds from `src/fuzz/corpora/` are changed at random, in ways that keep most of their structure, and a
//! check says what must hold of each input. The random numbers follow from the target's name and the round, so that every run tries the same inputs.
//!
//! A target is a test with `fuzz` in its name, so `cargo unit fuzz` runs all of them, and `UNIKAI_FUZZ_ROUNDS=100 cargo unit fuzz` with a hundred times
//! as many inputs. A failing input is printed and kept below `target/fuzz/`; it belongs into the corpus of its target, which is tried first.
#![cfg(test)]

mod bytes;
mod json;
mod text;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use serde::Deserialize;
use serde_json::Value;

/// The variable that multiplies the rounds of all targets.
const ROUNDS: &str = "UNIKAI_FUZZ_ROUNDS";

/// Bytes of a failing input that are printed. All of them are in the file.
const PRINTED: usize = 4_096;

/// What is fuzzed.
pub struct Target<'t> {
    /// Its name, and that of the folder with its corpus.
    pub name: &'t str,
    /// How many changed inputs are tried.
    pub rounds: u64,
    /// Words of its grammar, or texts that its objects may hold.
    pub words: &'t [&'t str],
}

impl Target<'_> {
    /// Tries texts. The corpus has a text in each file, or one in each line of files that end in `.list`. The check says whether the input is valid.
    pub fn texts(&self, check: impl Fn(&str) -> bool) {
        let seeds = self.seeds();
        let change = |random: &mut Rng| text::changed(random, &seeds, self.words);
        self.run(&seeds, change, |text| text.clone().into_bytes(), |text, _| check(text));
    }

    /// Tries the texts of the corpus, and texts that are made, most of them valid. One in eight of these is changed.
    pub fn made_texts(&self, make: impl Fn(&mut Rng) -> String, check: impl Fn(&str) -> bool) {
        let change = |random: &mut Rng| {
            let made = make(random);
            if random.u8(..8) == 0 {
                text::changed_text(random, &made, self.words)
            } else {
                made
            }
        };
        let written = |text: &String| text.clone().into_bytes();
        let (valid, tried) = self.run(&self.seeds(), change, written, |text, _| check(text));
        assert!(valid > tried / 2, "{}: {valid} of {tried} inputs are valid", self.name);
    }

    fn seeds(&self) -> Vec<String> {
        let mut seeds = Vec::new();
        for (path, content) in self.corpus() {
            let text = String::from_utf8(content).expect("a corpus of texts is UTF-8");
            if path.extension().is_some_and(|end| end == "list") {
                seeds.extend(text.lines().map(ToOwned::to_owned));
            } else {
                seeds.push(text);
            }
        }
        seeds
    }

    /// Tries objects. The corpus has YAML, with one object or several in a file.
    pub fn objects(&self, check: impl Fn(&Value) -> bool) {
        let mut seeds = Vec::new();
        for (path, content) in self.corpus() {
            let documents = serde_yaml_ng::Deserializer::from_slice(&content);
            let read = documents.map(Value::deserialize);
            let read: Result<Vec<Value>, _> = read.collect();
            seeds.extend(read.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
        let change = |random: &mut Rng| json::changed(random, &seeds, self.words);
        let written = |value: &Value| value.to_string().into_bytes();
        self.run(&seeds, change, written, |value, _| check(value));
    }

    /// Tries bytes. Lines that are JSON are changed as objects, too. The check may use random numbers, which depend on the input's round.
    pub fn bytes(&self, check: impl Fn(&[u8], &mut Rng) -> bool) {
        let seeds: Vec<Vec<u8>> = self.corpus().into_iter().map(|(_, content)| content).collect();
        let change = |random: &mut Rng| bytes::changed(random, &seeds, self.words);
        self.run(&seeds, change, Clone::clone, |bytes, random| check(bytes, random));
    }

    /// The files of the corpus, in the order of their names.
    fn corpus(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = root().join("src/fuzz/corpora").join(self.name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{}: no seeds", folder.display());
        let read = |path: PathBuf| {
            let content = std::fs::read(&path).expect("a file of the corpus");
            (path, content)
        };
        paths.into_iter().map(read).collect()
    }

    /// Returns how many inputs are valid, of how many.
    fn run<I>(
        &self,
        seeds: &[I],
        change: impl Fn(&mut Rng) -> I,
        written: impl Fn(&I) -> Vec<u8>,
        check: impl Fn(&I, &mut Rng) -> bool,
    ) -> (u64, u64) {
        let times = std::env::var(ROUNDS).map(|text| text.parse::<u64>().expect("a number of rounds"));
        let many = times.is_ok();
        let rounds = self.rounds * times.unwrap_or(1);
        let check = |what: &str, input: &I, random: &mut Rng| {
            if many {
                // A stack overflow ends the process before anything is printed.
                self.keep("last", &written(input));
            }
            let result = catch_unwind(AssertUnwindSafe(|| check(input, random)));
            result.unwrap_or_else(|panic| self.failed(what, &written(input), panic))
        };
        let first = self
            .name
            .bytes()
            .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let random = |round: u64| Rng::with_seed(first.rotate_left(32) ^ round);
        let mut valid = 0_u64;
        for (number, seed) in seeds.iter().enumerate() {
            let what = format!("seed {number} of the corpus");
            valid += u64::from(check(&what, seed, &mut random(0)));
        }
        for round in 0..rounds {
            let mut random = random(round);
            let input = change(&mut random);
            valid += u64::from(check(&format!("round {round}"), &input, &mut random));
        }
        let tried = rounds + seeds.len() as u64;
        println!("fuzz {}: {tried} inputs, {valid} of them valid", self.name);
        assert!(
            valid > 0,
            "{}: no input of {tried} is valid, so the checks have little effect",
            self.name
        );
        (valid, tried)
    }

    fn failed(&self, what: &str, input: &[u8], panic: Box<dyn Any + Send>) -> ! {
        let path = self.keep("failed", input);
        let shown = String::from_utf8_lossy(input.get(..PRINTED).unwrap_or(input));
        eprintln!(
            "fuzz {}: {what} failed; the input is in {}, and belongs into src/fuzz/corpora/{}:\n{shown}",
            self.name,
            path.display(),
            self.name
        );
        resume_unwind(panic)
    }

    fn keep(&self, end: &str, input: &[u8]) -> PathBuf {
        let folder = root().join("target/fuzz");
        let path = folder.join(format!("{}.{end}", self.name));
        std::fs::create_dir_all(folder).expect("a folder");
        std::fs::write(&path, input).expect("a file");
        path
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One of the words, or an unusual text.
fn word<'w>(random: &mut Rng, words: &[&'w str]) -> &'w str {
    if words.is_empty() || random.u8(..4) == 0 {
        return random.choice(UNUSUAL).copied().unwrap_or_default();
    }
    random.choice(words).copied().unwrap_or_default()
}

/// Texts that parsers may not expect.
const UNUSUAL: &[&str] = &[
    "",
    " ",
    "\n",
    "\t",
    "\r\n",
    "\0",
    "\u{7f}",
    "\u{feff}",
    "\u{202e}",
    "\u{2028}",
    "ä",
    "İ",
    "ß",
    "𝟙",
    "e\u{301}",
    "🦀",
    "%s",
    "%00",
    "..",
    "/",
    "//",
    "-",
    "--",
    "=",
    ",",
    ":",
    ";",
    "*",
    "'",
    "\"",
    "\\",
    "`",
    "|",
    "&",
    "#",
    "null",
    "true",
    "False",
    "NaN",
    "inf",
    "-0",
    "-1",
    "+1",
    "007",
    "0x10",
    "1e400",
    "1e-400",
    "1E3",
    "1_000",
    "0.1",
    ".5",
    "5.",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999999",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "-009999-01-02T01:59:59Z",
    "2026-02-30T25:61:61Z",
];

mod tests {
    use super::*;

    /// The seeds are found, and a check that fails for some of the inputs fails the test.
    #[test]
    fn a_failing_check_ends_the_fuzzing_of_a_target() {
        let holds = Target {
            name: "hold",
            rounds: 500,
            words: &["until", "data"],
        };
        let failed = catch_unwind(AssertUnwindSafe(|| {
            holds.texts(|text| {
                assert!(!text.contains("until"), "it contains the word");
                true
            });
        }));
        let said = failed.expect_err("one of 500 texts contains it");
        assert_eq!(said.downcast_ref::<&str>(), Some(&"it contains the word"));
    }

    #[test]
    fn every_corpus_has_a_target() {
        let mut sources = String::new();
        let mut folders = vec![root().join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "rs") {
                    sources += &std::fs::read_to_string(path).expect("a source file");
                }
            }
        }
        for corpus in std::fs::read_dir(root().join("src/fuzz/corpora")).expect("a folder") {
            let name = corpus.expect("an entry").file_name();
            let target = format!("name: {name:?},");
            assert!(sources.contains(&target), "no target has {target}");
        }
    }
}
