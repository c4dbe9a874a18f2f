//! Queries in the language of jq, as far as they are bounded and change nothing: whatever an administrator writes ends soon.

use jaq_core::data::JustLut;
use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Pattern, Term};
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::path::{Part, Path};
use jaq_core::{Compiler, Ctx, Vars, compile, unwrap_valr};
use jaq_json::Val;
use serde_json::Value;

/// Filters that end soon for every input, touch nothing outside, and change nothing.
#[rustfmt::skip]
const ALLOWED: &[&str] = &[
    "true", "false", "null", "not", "empty", "error", "select", "length", "keys", "keys_unsorted", "has", "contains", "inside", "map",
    "to_entries", "from_entries", "with_entries", "join", "split", "test", "match", "capture", "scan", "sub", "gsub", "tostring",
    "tonumber", "tojson", "type", "ascii_downcase", "ascii_upcase", "ltrimstr", "rtrimstr", "startswith", "endswith", "trim", "ltrim",
    "rtrim", "add", "any", "all", "min", "max", "min_by", "max_by", "sort", "sort_by", "group_by", "unique", "unique_by", "reverse",
    "flatten", "first", "last", "nth", "limit", "isempty", "index", "rindex", "indices", "floor", "ceil", "round", "abs", "values",
    "nulls", "strings", "numbers", "booleans", "arrays", "objects", "scalars", "iterables", "explode", "implode", "getpath",
];
/// A query with more results than this is a mistake.
const RESULTS_MAX: usize = 1000;

/// Why a query gave no answer.
pub type Failed = String;

/// An object to ask.
pub struct Subject(Val);

impl Subject {
    /// The object, in the form that queries read.
    #[must_use]
    pub fn new(object: Value) -> Self {
        Self(serde_json::from_value(object).unwrap_or_default())
    }
}

/// A query that is known to be harmless.
pub struct Query {
    code: String,
    filter: compile::Filter<jaq_core::Native<JustLut<Val>>>,
}

impl std::fmt::Debug for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.code)
    }
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// If it does not parse, changes something, or may run for ever.
    pub fn new(code: &str) -> Result<Self, String> {
        let term = load::parse(code, |parser| parser.term()).ok_or_else(|| format!("{code:?} is no jq"))?;
        check(&term).map_err(|reason| format!("{code:?}: {reason}"))?;
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let modules = Loader::new(defs).load(&arena, File { code, path: () });
        let modules = modules.map_err(|_| format!("{code:?} is no jq"))?;
        let filter = Compiler::default().with_funs(funs).compile(modules);
        Ok(Self {
            code: code.to_owned(),
            filter: filter.map_err(|_| format!("{code:?} calls what jq does not have"))?,
        })
    }

    /// Asks the object.
    ///
    /// # Errors
    /// If the query does not fit the object, or has too many results.
    pub fn run(&self, subject: &Subject) -> Result<Vec<Value>, Failed> {
        let context = Ctx::<JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let results = self.filter.id.run((context, subject.0.clone())).map(unwrap_valr);
        let mut found = Vec::new();
        for result in results {
            let result = result.map_err(|error| format!("{}: {error}", self.code))?;
            found.push(serde_json::from_str(&result.to_string()).unwrap_or_default());
            if found.len() == RESULTS_MAX {
                return Err(format!("{} has {RESULTS_MAX} results or more", self.code));
            }
        }
        Ok(found)
    }

    /// The one result as text; numbers and truth values are printed.
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

    /// Texts.
    ///
    /// # Errors
    /// If a result is something else.
    pub fn texts(&self, subject: &Subject) -> Result<Vec<String>, Failed> {
        let text = |value: Value| match value {
            Value::String(text) if !text.is_empty() => Ok(text),
            number @ (Value::Number(_) | Value::Bool(_)) => Ok(number.to_string()),
            _ => Err(format!("{} has a result that is empty or no text", self.code)),
        };
        self.run(subject)?.into_iter().map(text).collect()
    }
}

/// Whether all of the term is harmless.
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
            check(left)?;
            check(right)
        }
        Term::Fold(_, over, pattern, terms) => {
            check(over)?;
            check_pattern(pattern)?;
            terms.iter().try_for_each(check)
        }
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
