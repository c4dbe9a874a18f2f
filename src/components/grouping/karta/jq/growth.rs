//! How much larger than its input what a query makes of it may be, so that no chain of filters multiplies it again and again.
//!
//! Sizes are those of JSON texts. Elements of lists that are combined ([`Work`](super::Work)), with one another or with something else, are not counted
//! here.

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};

use super::{EACH, is_literal};

/// What a term makes of its input.
#[derive(Clone, Copy)]
pub struct Growth {
    /// Number of results. The elements of a list count as one.
    results: usize,
    /// How many times as large as the input the results are, together.
    pub size: usize,
}

impl Growth {
    const SAME: Self = Self { results: 1, size: 1 };

    /// The results of both.
    fn and(self, other: Self) -> Self {
        Self {
            results: self.results.saturating_add(other.results),
            size: self.size.saturating_add(other.size),
        }
    }

    /// The other one on each result.
    fn then(self, other: Self) -> Self {
        Self {
            results: self.results.saturating_mul(other.results),
            size: self.size.saturating_mul(other.size),
        }
    }

    /// A result of both parts for each result of one with each of the other.
    fn with(self, other: Self) -> Self {
        let size = self.size.saturating_mul(other.results);
        Self {
            results: self.results.saturating_mul(other.results),
            size: size.saturating_add(other.size.saturating_mul(self.results)),
        }
    }

    /// One of both.
    fn or(self, other: Self) -> Self {
        Self {
            results: self.results.max(other.results),
            size: self.size.max(other.size),
        }
    }

    fn all_with(parts: impl Iterator<Item = Self>) -> Self {
        parts.reduce(Self::with).unwrap_or(Self::SAME)
    }

    fn all_then(parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(Self::SAME, Self::then)
    }

    fn times(self, factor: usize) -> Self {
        Self {
            size: self.size.saturating_mul(factor),
            ..self
        }
    }

    fn one_result(self) -> Self {
        Self { results: 1, ..self }
    }

    pub fn of(term: &Term<&str>) -> Self {
        match term {
            Term::Id | Term::Recurse | Term::Num(_) | Term::Break(_) | Term::Var(_) | Term::Def(..) => Self::SAME,
            Term::Str(format, parts) => {
                let factor = if format.is_some() { ENCODED } else { TEXT };
                Self::all_with(parts.iter().filter_map(|part| match part {
                    StrPart::Term(term) => Some(Self::of(term).times(factor)),
                    StrPart::Str(_) | StrPart::Char(_) => None,
                }))
            }
            Term::Arr(inside) => inside.as_deref().map_or(Self::SAME, Self::of).one_result(),
            Term::Obj(entries) => Self::all_with(entries.iter().map(|(key, value)| {
                let value = value.as_ref().map_or(Self::SAME, Self::of);
                if is_literal(key) {
                    value
                } else {
                    Self::of(key).with(value)
                }
            })),
            Term::Neg(inside) | Term::Label(_, inside) => Self::of(inside),
            Term::BinOp(left, BinaryOp::Pipe(None), right) => Self::of(left).then(Self::of(right)),
            Term::BinOp(left, BinaryOp::Pipe(Some(pattern)), right) => {
                // The right side reads the input, and the variables.
                let variables = Self::of(left).then(Self::of_pattern(pattern));
                Self {
                    size: variables.size.saturating_add(1),
                    ..variables
                }
                .then(Self::of(right))
            }
            Term::BinOp(left, BinaryOp::Comma, right) => Self::of(left).and(Self::of(right)),
            Term::BinOp(left, BinaryOp::Alt, right) => Self::of(left).or(Self::of(right)),
            Term::BinOp(left, BinaryOp::Math(Math::Add), right) => Self::of(left).with(Self::of(right)),
            Term::BinOp(left, _, right) => {
                let (left, right) = (Self::of(left), Self::of(right));
                let both = left.with(right);
                // The result is no larger than one of both.
                let size = left.size.saturating_mul(right.results);
                Self {
                    size: size.max(right.size.saturating_mul(left.results)),
                    ..both
                }
            }
            Term::Fold(_, over, _, terms) => Self::of(over).then(Self::all_then(terms.iter().map(Self::of))),
            Term::TryCatch(inside, None) => Self::of(inside),
            Term::TryCatch(inside, Some(catch)) => Self::of(inside).and(Self::of(catch)),
            Term::IfThenElse(cases, otherwise) => {
                let otherwise = otherwise.as_deref().map_or(Self::SAME, Self::of);
                cases.iter().rev().fold(otherwise, |otherwise, (condition, then)| {
                    Self::of(condition).then(Self::of(then).or(otherwise))
                })
            }
            Term::Call(name, arguments) => {
                let inside = Self::all_then(arguments.iter().map(Self::of)).times(factor(name, arguments));
                if EACH.contains(name) {
                    inside.one_result()
                } else {
                    inside
                }
            }
            Term::Path(of, Path(parts)) => {
                let parts = parts.iter().flat_map(|(part, _)| match part {
                    Part::Index(index) => vec![index],
                    Part::Range(from, to) => from.iter().chain(to).collect(),
                });
                Self::of(of).then(Self::all_then(parts.map(Self::of)))
            }
        }
    }

    fn of_pattern(pattern: &Pattern<&str>) -> Self {
        match pattern {
            Pattern::Var(_) => Self::SAME,
            Pattern::Arr(inside) => Self::all_then(inside.iter().map(Self::of_pattern)),
            Pattern::Obj(entries) => Self::all_then(
                entries
                    .iter()
                    .flat_map(|(key, inside)| [Self::of(key), Self::of_pattern(inside)]),
            ),
        }
    }
}

/// Each quote and backslash of a JSON text is escaped.
const TEXT: usize = 2;
/// `@html` writes a quote as `&quot;`.
const ENCODED: usize = 6;

/// How many times as large as its input the result of a filter is.
fn factor(name: &str, arguments: &[Term<&str>]) -> usize {
    match name {
        "tojson" | "tostring" => TEXT,
        // A list of the characters.
        "explode" | "split" | "scan" => 4,
        // An object for each character.
        "match" | "capture" => 64,
        "to_entries" | "with_entries" => 4,
        "join" => 1 + arguments.first().map_or(0, literal_bytes),
        "sub" | "gsub" => 1 + arguments.get(1).map_or(0, literal_bytes),
        name if name.starts_with('@') => ENCODED,
        _ => 1,
    }
}

/// Bytes of a string literal.
fn literal_bytes(term: &Term<&str>) -> usize {
    let Term::Str(_, parts) = term else { return 0 };
    let bytes = parts.iter().map(|part| match part {
        StrPart::Str(text) => text.len(),
        StrPart::Char(_) => 4,
        StrPart::Term(_) => 0,
    });
    bytes.sum()
}
