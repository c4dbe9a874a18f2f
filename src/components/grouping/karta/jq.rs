//! A subset of jq whose queries are bounded and read-only, so that evaluation ends soon for any query.
//!
//! Their input is written by tenants, so it must not determine the amount of work: patterns and separators are literals of the query, factors of
//! a multiplication are numbers (strings would be repeated), there is no `reduce` (each step could double the value), and a query that multiplies the
//! object, iterates over the whole of it in nested loops or compares two lists is refused for a large object, and so is one that combines something large
//! with each element of a list. A query whose growth exceeds `GROWTH_MAX` is refused for every object.

mod growth;

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use jaq_core::data::JustLut;
use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Pattern, Term};
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};
use jaq_core::{Compiler, Ctx, Vars, compile, unwrap_valr};
use jaq_json::Val;
use serde_json::Value;

use self::growth::Growth;

/// Bounded filters without side effects.
#[rustfmt::skip]
const ALLOWED: &[&str] = &[
    "true", "false", "null", "not", "empty", "error", "select", "length", "keys", "keys_unsorted", "has", "contains", "inside", "map",
    "to_entries", "from_entries", "with_entries", "join", "split", "test", "match", "capture", "scan", "sub", "gsub", "tostring",
    "tonumber", "tojson", "type", "ascii_downcase", "ascii_upcase", "ltrimstr", "rtrimstr", "startswith", "endswith", "trim", "ltrim",
    "rtrim", "add", "any", "all", "min", "max", "min_by", "max_by", "sort", "sort_by", "group_by", "unique", "unique_by", "reverse",
    "flatten", "first", "last", "nth", "limit", "isempty", "index", "rindex", "indices", "floor", "ceil", "round", "abs", "values",
    "nulls", "strings", "numbers", "booleans", "arrays", "objects", "scalars", "iterables", "explode", "implode", "getpath",
];
/// Filters whose arguments must be string literals: patterns, separators, replacements.
const LITERAL: &[&str] = &[
    "test", "match", "capture", "scan", "sub", "gsub", "split", "join", "index", "rindex", "indices",
];
/// Filters whose result is a number or empty.
const NUMBERS: &[&str] = &["length", "tonumber", "numbers", "floor", "ceil", "round"];
/// Filters that iterate over elements.
const EACH: &[&str] = &[
    "map",
    "any",
    "all",
    "min_by",
    "max_by",
    "sort_by",
    "group_by",
    "unique_by",
    "with_entries",
];
/// Limit on the bytes of a query.
const BYTES_MAX: usize = 1_024;
/// Limit on the punctuation characters of a query: each may add a level to its tree, whose evaluation recurses.
const PUNCTUATION_MAX: usize = 100;
/// Limit on results of a query.
const RESULTS_MAX: usize = 1000;
/// Filters that compare each element of one list with each of another.
const QUADRATIC: &[&str] = &["contains", "inside"];
/// Filters with a result for each match in a text.
const MATCHES: &[&str] = &["scan", "match", "capture"];
/// Filters that make a list of the parts of a text, or another that may be longer than any list of the object.
const SPLITS: &[&str] = &["explode", "split", "scan", "match", "capture", "indices", "flatten"];
/// Limit on how many times as large as its object the result of a query may be. A query that may exceed it is refused for every object.
const GROWTH_MAX: usize = 1 << 16;
/// Limit on the estimated bytes of what a query makes of an object.
const SIZE_MAX: usize = 32 << 20;
/// The same where something is combined with each element of a list. It is estimated as if that were the whole object, which it hardly ever is.
const MIXED_MAX: usize = 4 * SIZE_MAX;
/// Limit on the estimated steps of a query.
const STEPS_MAX: usize = 10_000_000;

/// Why a query failed.
pub type Failed = String;

/// An object as input of queries.
pub struct Subject {
    object: Val,
    size: Size,
}

impl Subject {
    /// Converts an object.
    #[must_use]
    pub fn new(object: Value) -> Self {
        Self {
            size: Size::of(&object),
            object: serde_json::from_value(object).unwrap_or_default(),
        }
    }
}

/// A parsed query that is known to be bounded and read-only.
pub struct Query {
    code: String,
    work: Work,
    /// How many times as large as the object what it makes of it may be.
    growth: usize,
    filter: compile::Filter<jaq_core::Native<JustLut<Val>>>,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)
    }
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// If it does not parse, is not read-only, or is not bounded.
    pub fn new(code: &str) -> Result<Self, String> {
        let punctuation = code.chars().filter(char::is_ascii_punctuation);
        let punctuation = punctuation.filter(|sign| !matches!(sign, '.' | '"' | '_')).count();
        if code.len() > BYTES_MAX || punctuation > PUNCTUATION_MAX {
            let start: String = code.chars().take(64).collect();
            return Err(format!(
                "{start:?}… is too long: a query has at most {BYTES_MAX} bytes and {PUNCTUATION_MAX} punctuation characters"
            ));
        }
        let term = load::parse(code, |parser| parser.term()).ok_or_else(|| format!("{code:?} is no jq"))?;
        check(&term).map_err(|reason| format!("{code:?}: {reason}"))?;
        let growth = Growth::of(&term).size;
        if growth > GROWTH_MAX {
            return Err(format!("{code:?}: its result could be too large"));
        }
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let modules = Loader::new(defs).load(&arena, File { code, path: () });
        let modules = modules.map_err(|_| format!("{code:?} is no jq"))?;
        let filter = Compiler::default().with_funs(funs).compile(modules);
        Ok(Self {
            code: code.to_owned(),
            work: Work::of(&term),
            growth,
            filter: filter.map_err(|_| format!("{code:?} calls what jq does not have"))?,
        })
    }

    /// Evaluates the query.
    ///
    /// # Errors
    /// If evaluation fails, or has too many results.
    pub fn run(&self, subject: &Subject) -> Result<Vec<Value>, Failed> {
        let size = &subject.size;
        let elements = if self.work.splits {
            size.values.max(size.longest)
        } else {
            size.values
        };
        let is_long = elements.saturating_pow(self.work.loops()) > STEPS_MAX;
        let made = size.bytes.saturating_mul(self.growth);
        let mixed = if self.work.mixes {
            made.saturating_mul(self.work.times(size))
        } else {
            0
        };
        if is_long || made > SIZE_MAX || mixed > MIXED_MAX {
            return Err(format!(
                "the object is too large for {}: it has {} values and {} bytes",
                self.code, size.values, size.bytes
            ));
        }
        // Some filters of the library panic for a few values, such as `length` for the least integer in debug builds.
        let results = catch_unwind(AssertUnwindSafe(|| self.results(subject)));
        results.unwrap_or_else(|_| Err(format!("{} cannot be evaluated", self.code)))
    }

    fn results(&self, subject: &Subject) -> Result<Vec<Value>, Failed> {
        let context = Ctx::<JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let results = self.filter.id.run((context, subject.object.clone())).map(unwrap_valr);
        let (text, left) = (String::new(), SIZE_MAX);
        let (mut found, mut buffer) = (Vec::new(), Limited { text, left });
        for result in results {
            let result = result.map_err(|error| format!("{}: {error}", self.code))?;
            buffer.text.clear();
            if write!(buffer, "{result}").is_err() {
                return Err(format!("{} has results of more than {} MiB", self.code, SIZE_MAX >> 20));
            }
            found.push(serde_json::from_str(&buffer.text).unwrap_or_default());
            if found.len() == RESULTS_MAX {
                return Err(format!("{} has {RESULTS_MAX} results or more", self.code));
            }
        }
        Ok(found)
    }

    /// The single result as a string; numbers and booleans are formatted.
    ///
    /// # Errors
    /// If there is not exactly one, or it is empty.
    pub fn text(&self, subject: &Subject) -> Result<String, Failed> {
        match self.run(subject)?.as_slice() {
            [Value::String(text)] if !text.is_empty() => Ok(text.clone()),
            [number @ (Value::Number(_) | Value::Bool(_))] => Ok(number.to_string()),
            [_] => Err(format!("{} is empty or no text", self.code)),
            several => Err(format!("{} has {} results instead of one", self.code, several.len())),
        }
    }

    /// All results as strings.
    ///
    /// # Errors
    /// If a result is not a string.
    pub fn texts(&self, subject: &Subject) -> Result<Vec<String>, Failed> {
        let text = |value: Value| match value {
            Value::String(text) if !text.is_empty() => Ok(text),
            number @ (Value::Number(_) | Value::Bool(_)) => Ok(number.to_string()),
            _ => Err(format!("{} has a result that is empty or no text", self.code)),
        };
        self.run(subject)?.into_iter().map(text).collect()
    }
}

/// A buffer with a limit on all bytes that are written to it.
struct Limited {
    text: String,
    left: usize,
}

impl fmt::Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.left = self.left.checked_sub(text.len()).ok_or(fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}

/// The size of an object.
#[derive(Default)]
struct Size {
    /// Number of values in it, including itself.
    values: usize,
    /// Approximate length of its JSON text.
    bytes: usize,
    /// Bytes of its longest text.
    longest: usize,
    /// Number of elements of its longest list or object.
    widest: usize,
}

impl Size {
    fn of(object: &Value) -> Self {
        let mut size = Self::default();
        size.add(object);
        size
    }

    fn add(&mut self, value: &Value) {
        self.values += 1;
        self.bytes += 2;
        match value {
            Value::Array(items) => {
                self.widest = self.widest.max(items.len());
                items.iter().for_each(|item| self.add(item));
            }
            Value::Object(fields) => {
                self.widest = self.widest.max(fields.len());
                for (key, value) in fields {
                    self.add_text(key);
                    self.add(value);
                }
            }
            Value::String(text) => self.add_text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        self.bytes += text.len() + 2;
        self.longest = self.longest.max(text.len());
    }
}

/// Iteration structure of a query.
#[derive(Clone, Copy, Default)]
struct Work {
    /// Depth of iteration.
    lists: u32,
    /// It may iterate over the whole object again for each element, or combine the elements of two lists.
    combines: bool,
    /// It may compare each element of a list with each of another.
    compares: bool,
    /// It iterates over parts of texts.
    splits: bool,
    /// It may combine something with each element of a list, or have it as a result so often.
    mixes: bool,
    /// How often it joins lists.
    joins: u32,
}

impl Work {
    /// Nested lists are visited once per value; only combined lists multiply, and those that are compared.
    fn loops(self) -> u32 {
        let lists = if self.combines { self.lists.max(1) } else { 1 };
        lists + u32::from(self.compares)
    }

    fn and(self, other: Self) -> Self {
        Self {
            lists: self.lists.saturating_add(other.lists),
            combines: self.combines || other.combines,
            compares: self.compares || other.compares,
            splits: self.splits || other.splits,
            mixes: self.mixes || other.mixes,
            joins: self.joins.saturating_add(other.joins),
        }
    }

    /// How often something is combined with elements of lists of the object, at most.
    fn times(self, size: &Size) -> usize {
        let (elements, all) = if self.splits {
            (size.bytes, size.bytes)
        } else {
            (size.widest, size.values)
        };
        let times = elements.max(2).saturating_pow(self.lists.saturating_add(self.joins));
        if self.combines { times } else { times.min(all) }
    }

    /// It iterates, and each time something else is read.
    fn repeats(self) -> Self {
        Self {
            mixes: self.mixes || self.lists > 0,
            ..self
        }
    }

    /// The structure of several terms; combined if more than one iterates.
    fn each_with_each(all: impl Iterator<Item = Self>) -> Self {
        let all: Vec<Self> = all.collect();
        let several = all.iter().filter(|work| work.lists > 0).count() > 1;
        let is_one = all.len() == 1;
        let sum = all.into_iter().fold(Self::default(), Self::and);
        let sum = if is_one { sum } else { sum.repeats() };
        Self {
            combines: sum.combines || several,
            ..sum
        }
    }

    fn of(term: &Term<&str>) -> Self {
        let list = |lists| Self {
            lists,
            ..Self::default()
        };
        match term {
            Term::Id | Term::Recurse | Term::Num(_) | Term::Break(_) | Term::Var(_) | Term::Def(..) => Self::default(),
            Term::Str(_, parts) => Self::each_with_each(parts.iter().filter_map(|part| match part {
                StrPart::Term(term) => Some(Self::of(term)),
                StrPart::Str(_) | StrPart::Char(_) => None,
            })),
            Term::Arr(inside) => inside.as_deref().map(Self::of).unwrap_or_default(),
            Term::Obj(entries) => {
                let terms = entries
                    .iter()
                    .flat_map(|(key, value)| std::iter::once(key).chain(value));
                Self::each_with_each(terms.map(Self::of))
            }
            Term::Neg(inside) | Term::Label(_, inside) => Self::of(inside),
            Term::BinOp(left, BinaryOp::Pipe(Some(_)), right) => {
                let both = Self::of(left).and(Self::of(right)).repeats();
                Self { combines: true, ..both }
            }
            Term::BinOp(left, BinaryOp::Pipe(None) | BinaryOp::Comma | BinaryOp::Alt, right) => {
                Self::of(left).and(Self::of(right))
            }
            // Of two lists, the elements of one are sought in the other.
            Term::BinOp(left, BinaryOp::Math(Math::Sub), right) if !is_number(left) && !is_number(right) => {
                let both = Self::each_with_each([Self::of(left), Self::of(right)].into_iter());
                Self { compares: true, ..both }
            }
            Term::BinOp(left, _, right) => Self::each_with_each([Self::of(left), Self::of(right)].into_iter()),
            Term::Fold(_, over, _, terms) => terms.iter().map(Self::of).fold(Self::of(over), Self::and),
            Term::TryCatch(inside, catch) => {
                let catch = catch.as_deref().map(Self::of).unwrap_or_default();
                Self::of(inside).and(catch)
            }
            Term::IfThenElse(cases, otherwise) => {
                let cases = cases
                    .iter()
                    .flat_map(|(condition, then)| [Self::of(condition).repeats(), Self::of(then)]);
                let otherwise = otherwise.as_deref().map(Self::of).unwrap_or_default();
                cases.fold(otherwise, Self::and)
            }
            Term::Call(name, arguments) => {
                let inside = Self::each_with_each(arguments.iter().map(Self::of));
                let inside = if EACH.contains(name) { inside } else { inside.repeats() };
                let own = Self {
                    lists: u32::from(EACH.contains(name) || MATCHES.contains(name)),
                    compares: QUADRATIC.contains(name) && !arguments.iter().all(is_constant),
                    splits: SPLITS.contains(name),
                    joins: u32::from(*name == "add"),
                    ..Self::default()
                };
                own.and(inside)
            }
            Term::Path(of, Path(parts)) => {
                let parts = parts.iter().map(|(part, _)| match part {
                    Part::Index(index) => Self::of(index).repeats(),
                    Part::Range(None, None) => list(1),
                    Part::Range(from, to) => Self::each_with_each(from.iter().chain(to).map(Self::of)).repeats(),
                });
                parts.fold(Self::of(of), Self::and)
            }
        }
    }
}

/// Whether the term's result is always a number or empty.
fn is_number(term: &Term<&str>) -> bool {
    match term {
        Term::Num(_) => true,
        Term::Neg(inside) => is_number(inside),
        Term::BinOp(left, BinaryOp::Math(_) | BinaryOp::Alt, right) => is_number(left) && is_number(right),
        Term::BinOp(_, BinaryOp::Pipe(_), right) => is_number(right),
        Term::Call(name, arguments) => arguments.is_empty() && NUMBERS.contains(name),
        _ => false,
    }
}

/// Whether the term is a string literal.
fn is_literal(term: &Term<&str>) -> bool {
    matches!(term, Term::Str(None, parts) if !parts.iter().any(|part| matches!(part, StrPart::Term(_))))
}

/// Whether the term reads nothing of its input, and calls nothing.
fn is_constant(term: &Term<&str>) -> bool {
    match term {
        Term::Num(_) => true,
        Term::Call(name, arguments) => arguments.is_empty() && ["true", "false", "null"].contains(name),
        Term::Arr(inside) => inside.as_deref().is_none_or(is_constant),
        Term::Obj(entries) => {
            let mut entries = entries.iter();
            entries.all(|(key, value)| is_constant(key) && value.as_ref().is_some_and(is_constant))
        }
        Term::BinOp(left, BinaryOp::Comma, right) => is_constant(left) && is_constant(right),
        term => is_literal(term),
    }
}

/// Whether the whole term is bounded and read-only.
fn check(term: &Term<&str>) -> Result<(), String> {
    match term {
        Term::Id | Term::Num(_) | Term::Break(_) | Term::Var(_) => Ok(()),
        Term::Recurse => Err("`..` is not allowed".to_owned()),
        Term::Def(..) => Err("definitions are not allowed".to_owned()),
        Term::Str(_, parts) => parts.iter().try_for_each(|part| match part {
            StrPart::Term(term) => check(term),
            StrPart::Str(_) | StrPart::Char(_) => Ok(()),
        }),
        Term::Arr(inside) => inside.as_deref().map_or(Ok(()), check),
        Term::Obj(entries) => entries.iter().try_for_each(|(key, value)| {
            check(key)?;
            value.iter().try_for_each(check)
        }),
        Term::Neg(inside) | Term::Label(_, inside) => check(inside),
        Term::BinOp(left, operator, right) => {
            check_operator(operator)?;
            if matches!(operator, BinaryOp::Math(Math::Mul)) && !(is_number(left) && is_number(right)) {
                return Err(
                    "what is multiplied must be numbers for sure, as in `(.a | numbers) * (.b | numbers)`".to_owned(),
                );
            }
            check(left)?;
            check(right)
        }
        Term::Fold(..) => Err("`reduce` and `foreach` are not allowed".to_owned()),
        Term::TryCatch(inside, catch) => {
            check(inside)?;
            catch.as_deref().map_or(Ok(()), check)
        }
        Term::IfThenElse(cases, otherwise) => {
            cases.iter().try_for_each(|(condition, then)| {
                check(condition)?;
                check(then)
            })?;
            otherwise.as_deref().map_or(Ok(()), check)
        }
        Term::Call(name, arguments) => {
            if !ALLOWED.contains(name) && !name.starts_with('@') {
                return Err(format!("`{name}` is not allowed"));
            }
            if LITERAL.contains(name) && !arguments.iter().all(is_literal) {
                return Err(format!("the arguments of `{name}` must be string literals"));
            }
            arguments.iter().try_for_each(check)
        }
        Term::Path(of, Path(parts)) => {
            check(of)?;
            parts.iter().try_for_each(|(part, _)| match part {
                Part::Index(index) => check(index),
                Part::Range(from, to) => from.iter().chain(to).try_for_each(check),
            })
        }
    }
}

fn check_operator(operator: &BinaryOp<&str>) -> Result<(), String> {
    match operator {
        BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
            Err("assignments are not allowed".to_owned())
        }
        BinaryOp::Pipe(Some(pattern)) => check_pattern(pattern),
        BinaryOp::Pipe(None)
        | BinaryOp::Comma
        | BinaryOp::Alt
        | BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::Math(_)
        | BinaryOp::Cmp(_) => Ok(()),
    }
}

fn check_pattern(pattern: &Pattern<&str>) -> Result<(), String> {
    match pattern {
        Pattern::Var(_) => Ok(()),
        Pattern::Arr(inside) => inside.iter().try_for_each(check_pattern),
        Pattern::Obj(entries) => entries.iter().try_for_each(|(key, inside)| {
            check(key)?;
            check_pattern(inside)
        }),
    }
}
