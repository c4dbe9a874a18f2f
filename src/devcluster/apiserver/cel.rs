//! CEL expressions: validation rules of custom resources and match conditions of webhooks, compiled once. The language is
//! the `cel` crate's, with its string, list and math extensions. Absent: the cost budget, the authorizer, and types for
//! quantities, addresses and URLs; an expression that needs them does not compile.

mod analysis;
mod identifiers;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::json_type::JsonType;
use analysis::Analysis;

/// The parts of a schema that affect expressions.
pub(super) trait Shape: std::fmt::Debug {
    /// The type, where there is one.
    fn json_type(&self) -> Option<JsonType>;
    /// Whether it is a whole object, which has `apiVersion`, `kind` and `metadata` anyway.
    fn embedded(&self) -> bool;
    /// The schema of a field.
    fn property(&self, name: &str) -> Option<&dyn Shape>;
    /// The fields.
    fn property_names(&self) -> Box<dyn Iterator<Item = &str> + '_>;
    /// The schema of map values.
    fn additional(&self) -> Option<&dyn Shape>;
    /// The schema of list elements.
    fn items(&self) -> Option<&dyn Shape>;
}

/// A variable that an expression may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variable<'a> {
    /// Its name.
    pub name: &'static str,
    /// The schema of its value, where there is one: fields that it lacks are then errors at compile time.
    pub shape: Option<&'a dyn Shape>,
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Expression {
    program: Arc<cel::Program>,
    /// Which part of each variable the expression reads.
    reads: BTreeMap<String, analysis::Reads>,
    static_type: Option<JsonType>,
}

/// The results of named expressions.
#[derive(Debug, Default)]
pub(super) struct Computed(BTreeMap<String, Result<cel::Value, String>>);

impl Computed {
    /// Adds one.
    pub fn insert(&mut self, name: &str, value: Result<cel::Value, String>) {
        self.0.insert(name.to_owned(), value);
    }

    fn read(&self, reads: &analysis::Reads) -> Result<cel::Value, String> {
        let mut map = HashMap::new();
        for (name, value) in self.0.iter().filter(|(name, _)| reads.includes(name)) {
            map.insert(cel::objects::Key::from(name.as_str()), value.clone()?);
        }
        let map = Arc::new(map);
        Ok(cel::Value::Map(cel::objects::Map { map }))
    }
}

static ENVIRONMENT: LazyLock<Arc<cel::Env>> = LazyLock::new(|| {
    let mut environment = cel::Env::stdlib();
    for extension in [cel::extensions::strings, cel::extensions::lists, cel::extensions::math] {
        environment
            .add_extension(extension)
            .expect("the extensions do not collide");
    }
    Arc::new(environment)
});

/// Programs by their text. API servers in one process, as tests start them, have most expressions in common.
static PROGRAMS: LazyLock<Mutex<HashMap<String, Arc<cel::Program>>>> = LazyLock::new(Mutex::default);
/// How many are kept at most.
const PROGRAMS_MAX: usize = 1_000;

fn program(text: &str) -> Result<Arc<cel::Program>, String> {
    let programs = || PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = programs().get(text) {
        return Ok(Arc::clone(program));
    }
    let program = ENVIRONMENT.compile(text);
    let program = Arc::new(program.map_err(|error| format!("compilation failed: {error}"))?);
    let mut programs = programs();
    if programs.len() < PROGRAMS_MAX {
        programs.insert(text.to_owned(), Arc::clone(&program));
    }
    Ok(program)
}

impl Expression {
    /// Compiles `text`, which may use `variables`; the error is a message for users.
    pub fn compile(text: &str, variables: &[Variable<'_>]) -> Result<Self, String> {
        let program = program(text)?;
        let analysis = Analysis::of(program.expression(), variables);
        if let Some(error) = analysis.errors.first() {
            return Err(format!("compilation failed: ERROR: <input>: {error}"));
        }
        Ok(Self {
            reads: analysis.reads,
            static_type: analysis.result,
            program,
        })
    }

    /// Whether the expression reads that variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.reads.contains_key(variable)
    }

    /// The type of the result, where the schema tells.
    pub fn static_type(&self) -> Option<JsonType> {
        self.static_type
    }

    /// Evaluates a match condition on untyped values.
    pub fn matches(&self, variables: &[(&str, &Value)]) -> Result<bool, String> {
        let mut context = cel::Context::with_env(Arc::clone(&ENVIRONMENT));
        for (name, value) in variables {
            if let Some(reads) = self.reads.get(*name) {
                context.add_variable_from_value(*name, values::to_cel(value, None, reads));
            }
        }
        self.boolean(&context)
    }

    /// Evaluates the expression on untyped values, with `variables`, the results of earlier expressions; a failed one fails those that read it.
    pub fn compute(&self, given: &[(&str, &Value)], variables: &Computed) -> Result<cel::Value, String> {
        let mut context = cel::Context::with_env(Arc::clone(&ENVIRONMENT));
        for (name, value) in given {
            if let Some(reads) = self.reads.get(*name) {
                context.add_variable_from_value(*name, values::to_cel(value, None, reads));
            }
        }
        if let Some(reads) = self.reads.get("variables") {
            context.add_variable_from_value("variables", variables.read(reads)?);
        }
        self.evaluate(&context)
    }

    /// Evaluates a rule on a value and its old value; with `optional_old`, `oldSelf` is an optional.
    pub fn check(
        &self,
        node: &dyn Shape,
        value: &Value,
        old: Option<&Value>,
        optional_old: bool,
    ) -> Result<bool, String> {
        self.boolean(&self.context(node, value, old, optional_old))
    }

    /// Evaluates a message expression on a value and its old value.
    pub fn text(&self, node: &dyn Shape, value: &Value, old: Option<&Value>) -> Result<String, String> {
        match self.evaluate(&self.context(node, value, old, false))? {
            cel::Value::String(text) => Ok(text.to_string()),
            other => Err(format!("expression must evaluate to string, not {}", other.type_of())),
        }
    }

    fn context(
        &self,
        node: &dyn Shape,
        value: &Value,
        old: Option<&Value>,
        optional_old: bool,
    ) -> cel::Context<'static, 'static> {
        let mut context = cel::Context::with_env(Arc::clone(&ENVIRONMENT));
        if let Some(reads) = self.reads.get("self") {
            context.add_variable_from_value("self", values::to_cel(value, Some(node), reads));
        }
        if let Some(reads) = self.reads.get("oldSelf") {
            let old = old.map(|old| values::to_cel(old, Some(node), reads));
            match (old, optional_old) {
                (Some(old), false) => context.add_variable_from_value("oldSelf", old),
                (old, true) => values::add_optional(&mut context, "oldSelf", old),
                (None, false) => {}
            }
        }
        context
    }

    fn boolean(&self, context: &cel::Context<'_, '_>) -> Result<bool, String> {
        match self.evaluate(context)? {
            cel::Value::Bool(answer) => Ok(answer),
            other => Err(format!("expression must evaluate to bool, not {}", other.type_of())),
        }
    }

    fn evaluate(&self, context: &cel::Context<'_, '_>) -> Result<cel::Value, String> {
        self.program.execute(context).map_err(|error| match error {
            cel::ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            other => other.to_string(),
        })
    }
}
