//! What the regular expressions of an expression cost. Each is compiled anew for each evaluation, so their sizes count as steps.
//!
//! So each must be known before: the pattern of `matches` is a literal, or the variable of a loop over literals, or of `cel.bind` for a literal.

use std::slice;

use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue};
use regex::RegexBuilder;

/// Sizes of a compiled pattern and the steps that each takes. The last one is the limit; `\w{3}` has about its size.
const SIZES: &[(usize, usize)] = &[
    (2 << 10, 50),
    (8 << 10, 100),
    (32 << 10, 400),
    (128 << 10, 1_600),
    (256 << 10, 3_200),
];

/// A variable, and what it may stand for if that is known: of a loop, the elements of the list if that is a literal.
type Variable<'e> = (&'e str, Option<&'e [IdedExpr]>);

/// The steps that compiling the patterns takes in an evaluation, if loops over lists that are no literals have so many entries.
///
/// # Errors
/// If a pattern is not known before evaluation, is invalid or is too large.
pub fn steps(expression: &IdedExpr, entries: usize) -> Result<usize, &'static str> {
    of(expression, entries, &mut Vec::new())
}

fn of<'e>(expression: &'e IdedExpr, entries: usize, variables: &mut Vec<Variable<'e>>) -> Result<usize, &'static str> {
    let mut all = |parts: Vec<&'e IdedExpr>| {
        parts.into_iter().try_fold(0_usize, |sum, part| {
            Ok(sum.saturating_add(of(part, entries, variables)?))
        })
    };
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Ok(0),
        Expr::Select(select) => of(&select.operand, entries, variables),
        Expr::List(list) => all(list.elements.iter().collect()),
        Expr::Map(map) => all(map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect()),
        Expr::Struct(object) => all(object.entries.iter().flat_map(|entry| parts(&entry.expr)).collect()),
        Expr::Call(call) => {
            let inside = all(call.target.as_deref().into_iter().chain(&call.args).collect())?;
            match call.args.last() {
                Some(pattern) if call.func_name == "matches" => {
                    Ok(inside.saturating_add(of_pattern(pattern, variables)?))
                }
                _ => Ok(inside),
            }
        }
        Expr::Comprehension(comprehension) => of_loop(comprehension, entries, variables),
    }
}

fn of_loop<'e>(
    of_what: &'e ComprehensionExpr,
    entries: usize,
    variables: &mut Vec<Variable<'e>>,
) -> Result<usize, &'static str> {
    let literal = match &of_what.iter_range.expr {
        Expr::List(list) => Some(list.elements.as_slice()),
        _ => None,
    };
    let mut once = 0_usize;
    for part in [&of_what.iter_range, &of_what.accu_init] {
        once = once.saturating_add(of(part, entries, variables)?);
    }
    let outer = variables.len();
    // `cel.bind` is a loop over an empty list: its variable keeps its first value.
    let kept = literal.filter(|elements| elements.is_empty());
    let kept = kept.map(|_| slice::from_ref(&of_what.accu_init));
    variables.push((&of_what.accu_var, kept));
    once = once.saturating_add(of(&of_what.result, entries, variables)?);
    variables.push((&of_what.iter_var, literal.filter(|_| of_what.iter_var2.is_none())));
    variables.extend(of_what.iter_var2.as_deref().map(|second| (second, None)));
    let mut each = 0_usize;
    for part in [&of_what.loop_cond, &of_what.loop_step] {
        each = each.saturating_add(of(part, entries, variables)?);
    }
    variables.truncate(outer);
    let times = literal.map_or(entries, <[IdedExpr]>::len);
    Ok(once.saturating_add(each.saturating_mul(times)))
}

/// The steps of a pattern; of a loop's variable, those of an element on average.
fn of_pattern(pattern: &IdedExpr, variables: &[Variable]) -> Result<usize, &'static str> {
    let unknown = Err(
        "the pattern of `matches` must be a string literal, or the variable of a loop over a list of string literals",
    );
    let patterns = match &pattern.expr {
        Expr::Literal(LiteralValue::String(pattern)) => return compiled(pattern.inner()),
        Expr::Ident(name) => match variables.iter().rfind(|(variable, _)| variable == name) {
            Some((_, Some(elements))) => *elements,
            _ => return unknown,
        },
        _ => return unknown,
    };
    let mut sum = 0_usize;
    for pattern in patterns {
        let Expr::Literal(LiteralValue::String(pattern)) = &pattern.expr else {
            return unknown;
        };
        sum = sum.saturating_add(compiled(pattern.inner())?);
    }
    Ok(sum.div_ceil(patterns.len().max(1)))
}

fn compiled(pattern: &str) -> Result<usize, &'static str> {
    for (size, steps) in SIZES {
        match RegexBuilder::new(pattern).size_limit(*size).build() {
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return Err("a regular expression is invalid"),
            Ok(_) => return Ok(*steps),
        }
    }
    Err("a regular expression is too large")
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
