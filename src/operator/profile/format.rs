//! The format of profiles that `go tool pprof` reads: a protocol buffer of samples, each with the places on its stack.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A stack and how often it was seen.
pub struct Stack {
    /// The name of the thread.
    pub thread: String,
    /// Where the thread was, the innermost function first.
    pub addresses: Vec<usize>,
    /// How often.
    pub samples: i64,
}

/// When a profile was recorded.
pub struct Time {
    /// Its beginning.
    pub began: SystemTime,
    /// Its duration.
    pub lasted: Duration,
    /// CPU time between two samples.
    pub period: Duration,
}

/// The profile of these stacks. Looks up the names of functions in this process's binary.
pub fn profile(stacks: impl Iterator<Item = Stack>, time: &Time) -> Profile {
    let mut tables = Tables::default();
    // The format demands that the first text is empty.
    tables.text("");
    let thread = tables.text("thread");
    let [samples, cpu] = [("samples", "count"), ("cpu", "nanoseconds")].map(|(kind, unit)| ValueType {
        kind: tables.text(kind),
        unit: tables.text(unit),
    });
    let period = nanoseconds(time.period);
    let sample = stacks.map(|stack| Sample {
        locations: stack
            .addresses
            .iter()
            .map(|address| tables.location(*address))
            .collect(),
        values: vec![stack.samples, stack.samples.saturating_mul(period)],
        labels: vec![Label {
            key: thread,
            text: tables.text(&stack.thread),
        }],
    });
    let sample = sample.collect();
    // It keeps the whole binary's table of symbols.
    backtrace::clear_symbol_cache();
    let mapping = Mapping {
        id: MAPPING,
        limit: u64::MAX,
        file: tables.text(env!("CARGO_PKG_NAME")),
        has_functions: true,
        has_files: true,
        has_lines: true,
        has_inlined: true,
    };
    Profile {
        sample_types: vec![samples, cpu],
        samples: sample,
        mappings: vec![mapping],
        locations: tables.locations,
        functions: tables.functions,
        texts: tables.texts,
        began: time.began.duration_since(UNIX_EPOCH).map_or(0, nanoseconds),
        lasted: nanoseconds(time.lasted),
        period_type: Some(cpu),
        period,
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The binary, to which all addresses belong.
const MAPPING: u64 = 1;

/// What samples refer to by number: each function, line and text is written once.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    functions: Vec<Function>,
    locations: Vec<Location>,
    text_numbers: HashMap<String, i64>,
    function_numbers: HashMap<(i64, i64), u64>,
    location_numbers: HashMap<Vec<(u64, i64)>, u64>,
    address_numbers: HashMap<usize, u64>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(number) = self.text_numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as i64;
        self.texts.push(text.to_owned());
        self.text_numbers.insert(text.to_owned(), number);
        number
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let (name, file) = (self.text(name), self.text(file));
        let next = self.functions.len() as u64 + 1;
        let number = *self.function_numbers.entry((name, file)).or_insert(next);
        if number == next {
            self.functions.push(Function { id: next, name, file });
        }
        number
    }

    /// The place at an address: the line of a function and, if that is inlined, the lines into which it is.
    fn location(&mut self, address: usize) -> u64 {
        if let Some(number) = self.address_numbers.get(&address) {
            return *number;
        }
        let mut lines = Vec::new();
        backtrace::resolve(without_provenance_mut::<c_void>(address), |symbol| {
            // Without the hash that the compiler appends.
            let name = symbol.name().map(|name| format!("{name:#}"));
            let file = symbol.filename().map(|file| file.to_string_lossy().into_owned());
            let function = self.function(name.as_deref().unwrap_or(UNKNOWN), file.as_deref().unwrap_or_default());
            lines.push((function, i64::from(symbol.lineno().unwrap_or_default())));
        });
        if lines.is_empty() {
            lines.push((self.function(UNKNOWN, ""), 0));
        }
        let next = self.locations.len() as u64 + 1;
        let number = *self.location_numbers.entry(lines.clone()).or_insert(next);
        if number == next {
            let lines = lines.into_iter().map(|(function, line)| Line { function, line });
            self.locations.push(Location {
                id: next,
                mapping: MAPPING,
                lines: lines.collect(),
            });
        }
        self.address_numbers.insert(address, number);
        number
    }
}

/// The name of a function whose name is not in the binary.
const UNKNOWN: &str = "[unknown]";

/// A profile.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Profile {
    /// What is counted in samples.
    #[prost(message, repeated, tag = "1")]
    pub sample_types: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    /// Binaries.
    #[prost(message, repeated, tag = "3")]
    pub mappings: Vec<Mapping>,
    /// Places in functions.
    #[prost(message, repeated, tag = "4")]
    pub locations: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub functions: Vec<Function>,
    /// All texts; elsewhere are their numbers.
    #[prost(string, repeated, tag = "6")]
    pub texts: Vec<String>,
    /// The beginning, in nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub began: i64,
    /// The duration in nanoseconds.
    #[prost(int64, tag = "10")]
    pub lasted: i64,
    /// What passes between samples.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// How much of it.
    #[prost(int64, tag = "12")]
    pub period: i64,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ValueType {
    /// Its name.
    #[prost(int64, tag = "1")]
    pub kind: i64,
    /// Its unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack and how often it was seen.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sample {
    /// Its places, the innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub locations: Vec<u64>,
    /// The count and the CPU time.
    #[prost(int64, repeated, tag = "2")]
    pub values: Vec<i64>,
    /// The thread.
    #[prost(message, repeated, tag = "3")]
    pub labels: Vec<Label>,
}

/// A label of a sample.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Label {
    /// Its name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Its value.
    #[prost(int64, tag = "2")]
    pub text: i64,
}

/// A binary.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Mapping {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The address where it ends.
    #[prost(uint64, tag = "3")]
    pub limit: u64,
    /// Its file.
    #[prost(int64, tag = "5")]
    pub file: i64,
    /// Whether the profile has the names of its functions, their files, their lines, and functions that are inlined.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// See above.
    #[prost(bool, tag = "8")]
    pub has_files: bool,
    /// See above.
    #[prost(bool, tag = "9")]
    pub has_lines: bool,
    /// See above.
    #[prost(bool, tag = "10")]
    pub has_inlined: bool,
}

/// A place in a function.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Location {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its binary.
    #[prost(uint64, tag = "2")]
    pub mapping: u64,
    /// Its line and, if that is in an inlined function, the lines into which it is inlined.
    #[prost(message, repeated, tag = "4")]
    pub lines: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Line {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function: u64,
    /// The line in its file.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Function {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Its file.
    #[prost(int64, tag = "4")]
    pub file: i64,
}
