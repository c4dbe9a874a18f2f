//! Device selectors: CEL expressions on one device, compiled once and evaluated for many.
//!
//! Supported: `device.driver`, `device.attributes[domain].name`, `device.capacity[domain].name`, `device.allowMultipleAllocations`, `cel.bind`,
//! quantities and semantic versions. An expression that could be expensive ([`cost`], [`patterns`]) is not compiled; the API server refuses most of
//! them.

mod cost;
mod patterns;

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{ComprehensionExpr, Expr, ListExpr, LiteralValue};
use cel::extractors::{Arguments, This};
use cel::objects::{Key, Map, Opaque};
use cel::parser::{Macro, MacroExprHelper};
use cel::{ExecutionError, IdedExpr, ParseError, Value};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

use crate::api::limits;
use crate::api::quantity::{self, Amount};
use cost::Cost;

/// Bytes of an error that are kept, for each device.
const ERROR_BYTES: usize = 512;

static ENVIRONMENT: LazyLock<Arc<cel::Env>> = LazyLock::new(|| {
    let mut environment = cel::Env::stdlib();
    for extension in [cel::extensions::strings, cel::extensions::lists] {
        let added = environment.add_extension(extension);
        debug_assert!(added.is_ok(), "the extensions do not collide");
    }
    let added = environment.add_macro(Macro::receiver("bind", 3, bind));
    debug_assert!(added.is_ok(), "no extension has it");
    Arc::new(environment)
});

/// Makes of `cel.bind(variable, value, result)` a loop over an empty list that begins with the value, as the CEL specification does.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    arguments: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let is_cel = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name == "cel");
    if !target.as_ref().is_some_and(is_cel) {
        return Ok(None);
    }
    let Ok([variable, value, result]) = <[IdedExpr; 3]>::try_from(mem::take(arguments)) else {
        return Ok(None);
    };
    let Expr::Ident(name) = variable.expr else {
        return Err(helper.new_error(variable.id, "the first argument of `cel.bind` must be a name"));
    };
    let comprehension = ComprehensionExpr {
        iter_range: helper.next_expr(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "@unused".to_owned(),
        iter_var2: None,
        accu_var: name.clone(),
        accu_init: value,
        loop_cond: helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: helper.next_expr(Expr::Ident(name)),
        result,
    };
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(comprehension)))))
}

/// A compiled selector.
pub struct Selector {
    program: cel::Program,
    /// Estimated steps per device, beside those of every selector.
    pub steps: usize,
    /// String literals, which may be domains: domains without attributes on a device are empty, not missing.
    texts: Vec<String>,
}

impl Selector {
    /// Compiles an expression.
    ///
    /// # Errors
    /// If it does not parse, or could be too expensive.
    pub fn compile(text: &str) -> Result<Self, String> {
        let longest = limits::CLAIM_SELECTOR_BYTES;
        if text.len() > longest {
            return Err(format!("CEL compile error: longer than {longest} bytes"));
        }
        let refused = |reason: &'static str| format!("CEL compile error: {reason}");
        let cost = Cost::of(text).map_err(refused)?;
        let compile = || {
            let program = ENVIRONMENT.compile(text);
            let program = program.map_err(|error| told(format!("CEL compile error: {error}")))?;
            let patterns = patterns::steps(program.expression(), cost.entries).map_err(refused)?;
            Ok::<_, String>((program, patterns))
        };
        let (program, patterns) =
            on_a_deep_stack(compile).ok_or_else(|| "CEL compile error: the expression cannot be read".to_owned())??;
        let steps = cost.steps.saturating_add(patterns);
        if steps > limits::CLAIM_SELECTOR_STEPS {
            return Err(refused("the expression could cost too much"));
        }
        let texts = cost::texts(text).map(ToOwned::to_owned).collect();
        Ok(Self { program, steps, texts })
    }

    /// Whether a device matches.
    ///
    /// # Errors
    /// If evaluation fails: the device lacks an attribute that the expression reads, or the result is not a boolean.
    pub fn meets(&self, device: &Subject) -> Result<bool, String> {
        let mut context = cel::Context::with_env(Arc::clone(&ENVIRONMENT));
        declare(&mut context);
        context.add_variable_from_value("device", device.value(&self.texts));
        let answer = catch_unwind(AssertUnwindSafe(|| self.program.execute(&context)));
        match answer.map_err(|_| "CEL runtime error".to_owned())? {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(other) => Err(format!("CEL expression must evaluate to bool, not {}", other.type_of())),
            Err(ExecutionError::NoSuchKey(key)) => Err(told(format!("CEL runtime error: no such key: {key}"))),
            Err(error) => Err(told(format!("CEL runtime error: {error}"))),
        }
    }
}

/// The beginning of an error, which may quote the expression or values that it makes.
fn told(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(ERROR_BYTES));
    error.shrink_to_fit();
    error
}

/// Stack size for parsing and evaluating expressions.
const STACK: usize = 64 << 20;

/// Runs a deeply recursive function on a thread with that stack; `None` if it panicked.
pub fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        thread.ok()?.join().ok()
    })
}

/// The `device` variable of expressions.
pub struct Subject {
    driver: String,
    multi: bool,
    attributes: HashMap<Key, HashMap<Key, Value>>,
    capacity: HashMap<Key, HashMap<Key, Value>>,
}

impl Subject {
    /// A driver's device.
    #[must_use]
    pub fn new(driver: &str, device: &Device) -> Self {
        let mut subject = Self {
            driver: driver.to_owned(),
            multi: device.allow_multiple_allocations == Some(true),
            attributes: HashMap::new(),
            capacity: HashMap::new(),
        };
        for (name, attribute) in device.attributes.iter().flatten() {
            if let Some(value) = attribute_value(attribute) {
                let (domain, id) = parts(driver, name);
                subject
                    .attributes
                    .entry(domain.into())
                    .or_default()
                    .insert(id.into(), value);
            }
        }
        for (name, capacity) in device.capacity.iter().flatten() {
            if let Ok(amount) = Amount::of(&capacity.value) {
                let (domain, id) = parts(driver, name);
                let value = Value::Opaque(Arc::new(Quantity(amount)));
                subject
                    .capacity
                    .entry(domain.into())
                    .or_default()
                    .insert(id.into(), value);
            }
        }
        subject
    }

    fn value(&self, texts: &[String]) -> Value {
        let by_domain = |known: &HashMap<Key, HashMap<Key, Value>>| {
            let named: BTreeSet<&str> = texts.iter().map(String::as_str).collect();
            let mut all: HashMap<Key, Value> = named
                .into_iter()
                .map(|domain| (Key::from(domain), map(HashMap::new())))
                .collect();
            all.extend(
                known
                    .iter()
                    .map(|(domain, values)| (domain.clone(), map(values.clone()))),
            );
            map(all)
        };
        let fields: [(&str, Value); 4] = [
            ("driver", Value::String(Arc::new(self.driver.clone()))),
            ("allowMultipleAllocations", Value::Bool(self.multi)),
            ("attributes", by_domain(&self.attributes)),
            ("capacity", by_domain(&self.capacity)),
        ];
        map(fields
            .into_iter()
            .map(|(name, value)| (Key::from(name), value))
            .collect())
    }
}

fn map(map: HashMap<Key, Value>) -> Value {
    Value::Map(Map { map: Arc::new(map) })
}

/// Domain and name of a qualified name; the domain is the driver if there is none.
#[must_use]
pub fn parts<'a>(driver: &'a str, name: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

fn attribute_value(attribute: &DeviceAttribute) -> Option<Value> {
    if let Some(truth) = attribute.bool {
        Some(Value::Bool(truth))
    } else if let Some(number) = attribute.int {
        Some(Value::Int(number))
    } else if let Some(text) = &attribute.string {
        Some(Value::String(Arc::new(text.clone())))
    } else {
        let version = attribute.version.as_ref()?;
        Some(Value::Opaque(Arc::new(Version::read(version)?)))
    }
}

/// A quantity.
#[derive(Debug, PartialEq, Eq)]
struct Quantity(Amount);

impl Opaque for Quantity {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

/// A semantic version. Build metadata is ignored.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    core: [u64; 3],
    /// A release sorts after its pre-releases.
    release: bool,
    before: Vec<Part>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(String),
}

impl Opaque for Version {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Semver"
    }
}

impl Version {
    fn read(text: &str) -> Option<Self> {
        let text = text.split_once('+').map_or(text, |(text, _)| text);
        let (core, before) = text
            .split_once('-')
            .map_or((text, None), |(core, before)| (core, Some(before)));
        let mut numbers = core.split('.').map(|part| {
            let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>()
                .ok()
                .filter(|_| plain && (part == "0" || !part.starts_with('0')))
        });
        let core = [numbers.next()??, numbers.next()??, numbers.next()??];
        if numbers.next().is_some() {
            return None;
        }
        let part = |text: &str| match text.parse() {
            Ok(number) => Part::Number(number),
            Err(_) => Part::Text(text.to_owned()),
        };
        Some(Self {
            core,
            release: before.is_none(),
            before: before.map_or_else(Vec::new, |before| before.split('.').map(part).collect()),
        })
    }
}

/// A version as text without the `v` before it and zeros before its numbers, and with numbers that are missing. A version that lacks numbers has no
/// pre-release.
fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (core, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let numbers = core.split('.').map(|number| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0",
        number => number,
    });
    let mut numbers: Vec<&str> = numbers.collect();
    if rest.is_empty() {
        numbers.resize(numbers.len().max(3), "0");
    }
    format!("{}{rest}", numbers.join("."))
}

fn quantity_of(value: &Value) -> Option<Amount> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<Quantity>().map(|quantity| quantity.0),
        _ => None,
    }
}

fn version_of(value: &Value) -> Option<&Version> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<Version>(),
        _ => None,
    }
}

fn wrong(function: &str, message: &str) -> ExecutionError {
    ExecutionError::FunctionError {
        function: function.to_owned(),
        message: message.to_owned(),
    }
}

fn compare(function: &'static str, left: &Value, right: Option<&Value>) -> Result<Ordering, ExecutionError> {
    if let (Some(left), Some(right)) = (quantity_of(left), right.and_then(quantity_of)) {
        return Ok(left.cmp(&right));
    }
    if let (Some(left), Some(right)) = (version_of(left), right.and_then(version_of)) {
        return Ok(left.cmp(right));
    }
    Err(wrong(function, "takes two quantities, or two versions"))
}

/// The sum or difference of a quantity and another one, or an integer.
fn total(function: &'static str, left: &Value, right: Option<&Value>, of: impl Fn(Amount, Amount) -> Amount) -> Answer {
    let right = match right {
        Some(Value::Int(units)) => Some(Amount::from_units(*units)),
        other => other.and_then(quantity_of),
    };
    match (quantity_of(left), right) {
        (Some(left), Some(right)) => Ok(Value::Opaque(Arc::new(Quantity(of(left, right))))),
        _ => Err(wrong(function, "takes two quantities, or a quantity and an integer")),
    }
}

fn text_of(args: &[Value]) -> Option<&str> {
    match args.first() {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// The version that the arguments of `semver` stand for: a text, and whether it is normalized.
fn version_in(args: &[Value]) -> Option<Version> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Version::read(text),
        [Value::String(text), Value::Bool(true)] => Version::read(&normalized(text)),
        _ => None,
    }
}

type Answer = Result<Value, ExecutionError>;

/// Kubernetes' CEL functions on quantities and versions.
fn declare(context: &mut cel::Context<'_, '_>) {
    let quantity = |Arguments(args): Arguments| -> Answer {
        let amount = text_of(&args).and_then(|text| quantity::parse(text).ok());
        let amount = amount.ok_or_else(|| wrong("quantity", "takes a quantity as text"))?;
        Ok(Value::Opaque(Arc::new(Quantity(amount.0))))
    };
    let is_quantity = |Arguments(args): Arguments| -> Answer {
        Ok(Value::Bool(
            text_of(&args).is_some_and(|text| quantity::parse(text).is_ok()),
        ))
    };
    let compared = |This(this): This<Value>, Arguments(args): Arguments| -> Answer {
        Ok(Value::Int(compare("compareTo", &this, args.last())? as i64))
    };
    let greater = |This(this): This<Value>, Arguments(args): Arguments| -> Answer {
        Ok(Value::Bool(compare("isGreaterThan", &this, args.last())?.is_gt()))
    };
    let less = |This(this): This<Value>, Arguments(args): Arguments| -> Answer {
        Ok(Value::Bool(compare("isLessThan", &this, args.last())?.is_lt()))
    };
    let sum = |This(this): This<Value>, Arguments(args): Arguments| -> Answer {
        total("add", &this, args.last(), Amount::saturating_add)
    };
    let difference = |This(this): This<Value>, Arguments(args): Arguments| -> Answer {
        total("sub", &this, args.last(), Amount::saturating_sub)
    };
    let whole = |amount: Amount| (amount.nanos() % 1_000_000_000 == 0).then(|| amount.units());
    let as_integer = move |This(this): This<Value>| -> Answer {
        let number = quantity_of(&this).and_then(whole);
        number
            .map(Value::Int)
            .ok_or_else(|| wrong("asInteger", "takes a whole quantity"))
    };
    let is_integer =
        move |This(this): This<Value>| -> Answer { Ok(Value::Bool(quantity_of(&this).and_then(whole).is_some())) };
    let as_float = |This(this): This<Value>| -> Answer {
        let amount = quantity_of(&this).ok_or_else(|| wrong("asApproximateFloat", "takes a quantity"))?;
        Ok(Value::Float(amount.nanos() as f64 / 1e9))
    };
    let sign = |This(this): This<Value>| -> Answer {
        let amount = quantity_of(&this).ok_or_else(|| wrong("sign", "takes a quantity"))?;
        Ok(Value::Int(amount.nanos().signum() as i64))
    };
    let results = [
        context.add_function("quantity", quantity),
        context.add_function("isQuantity", is_quantity),
        context.add_function("compareTo", compared),
        context.add_function("isGreaterThan", greater),
        context.add_function("isLessThan", less),
        context.add_function("add", sum),
        context.add_function("sub", difference),
        context.add_function("asInteger", as_integer),
        context.add_function("isInteger", is_integer),
        context.add_function("asApproximateFloat", as_float),
        context.add_function("sign", sign),
    ];
    debug_assert!(results.iter().all(Result::is_ok), "no function is declared twice");
    declare_versions(context);
}

/// Those on versions only.
fn declare_versions(context: &mut cel::Context<'_, '_>) {
    let semver = |Arguments(args): Arguments| -> Answer {
        let version = version_in(&args).ok_or_else(|| wrong("semver", "takes a semantic version as text"))?;
        Ok(Value::Opaque(Arc::new(version)))
    };
    let is_semver = |Arguments(args): Arguments| -> Answer { Ok(Value::Bool(version_in(&args).is_some())) };
    let number = |function: &'static str, at: usize| {
        move |This(this): This<Value>| -> Answer {
            let number = version_of(&this).and_then(|version| version.core.get(at));
            let number = number.and_then(|number| i64::try_from(*number).ok());
            number.map(Value::Int).ok_or_else(|| wrong(function, "takes a version"))
        }
    };
    let results = [
        context.add_function("semver", semver),
        context.add_function("isSemver", is_semver),
        context.add_function("major", number("major", 0)),
        context.add_function("minor", number("minor", 1)),
        context.add_function("patch", number("patch", 2)),
    ];
    debug_assert!(results.iter().all(Result::is_ok), "no function is declared twice");
}

#[cfg(test)]
mod tests;
