//! Static analysis of an expression: which fields it reads, and errors such as undeclared names and fields that a schema lacks.

use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr};

use super::super::json_type::JsonType;
use super::identifiers::escape;
use super::{Shape, Variable};

/// The part of a value that an expression reads; the rest need not be converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reads {
    All,
    Fields(BTreeMap<String, Reads>),
}

impl Reads {
    fn add(&mut self, path: &[&str]) {
        match (self, path) {
            (Self::All, _) => {}
            (this, []) => *this = Self::All,
            (Self::Fields(fields), [first, rest @ ..]) => {
                fields
                    .entry((*first).to_owned())
                    .or_insert_with(|| Self::Fields(BTreeMap::new()))
                    .add(rest);
            }
        }
    }
}

impl Reads {
    /// Whether that field is among them.
    pub fn includes(&self, field: &str) -> bool {
        match self {
            Self::All => true,
            Self::Fields(fields) => fields.contains_key(field),
        }
    }
}

/// Functions and operators that an expression may call.
const FUNCTIONS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "type",
    "dyn",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "join",
    "format",
    "reverse",
    "strings.quote",
    "slice",
    "flatten",
    "distinct",
    "sort",
    "lists.range",
    "max",
    "min",
    "hasValue",
    "value",
    "orValue",
    "or",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
];

/// The result of the analysis of an expression.
pub(super) struct Analysis {
    pub reads: BTreeMap<String, Reads>,
    pub errors: Vec<String>,
    /// The type of the whole expression, where it is known.
    pub result: Option<JsonType>,
}

/// The result of the analysis of a subexpression.
#[derive(Clone, Copy, Default)]
struct Known<'a> {
    shape: Option<&'a dyn Shape>,
    json_type: Option<JsonType>,
}

impl Known<'_> {
    fn of_type(json_type: JsonType) -> Self {
        Self {
            shape: None,
            json_type: Some(json_type),
        }
    }
}

struct Walk<'a> {
    /// Variables in scope, innermost last.
    scope: Vec<(String, Option<&'a dyn Shape>)>,
    /// How many of `scope` the caller has declared; the others are variables of macros.
    declared: usize,
    analysis: Analysis,
}

impl Analysis {
    pub fn of(expression: &IdedExpr, variables: &[Variable<'_>]) -> Self {
        let mut walk = Walk {
            scope: variables
                .iter()
                .map(|variable| (variable.name.to_owned(), variable.shape))
                .collect(),
            declared: variables.len(),
            analysis: Self {
                reads: BTreeMap::new(),
                errors: Vec::new(),
                result: None,
            },
        };
        walk.analysis.result = walk.visit(expression).json_type;
        walk.analysis
    }
}

impl<'a> Walk<'a> {
    fn visit(&mut self, expression: &IdedExpr) -> Known<'a> {
        match &expression.expr {
            Expr::Unspecified => Known::default(),
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => self.chain(name, &[]),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                for element in &list.elements {
                    self.visit(element);
                }
                Known::of_type(JsonType::Array)
            }
            Expr::Map(map) => {
                self.entries(map.entries.iter().map(|entry| &entry.expr));
                Known::of_type(JsonType::Object)
            }
            Expr::Struct(object) => {
                self.entries(object.entries.iter().map(|entry| &entry.expr));
                Known::of_type(JsonType::Object)
            }
        }
    }

    fn entries<'e>(&mut self, entries: impl Iterator<Item = &'e EntryExpr>) {
        for entry in entries {
            match entry {
                EntryExpr::StructField(field) => {
                    self.visit(&field.value);
                }
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key);
                    self.visit(&entry.value);
                }
            }
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Known<'a> {
        let mut path = vec![select.field.as_str()];
        let mut operand = &select.operand.expr;
        while let Expr::Select(inner) = operand {
            path.push(&inner.field);
            operand = &inner.operand.expr;
        }
        path.reverse();
        let known = match operand {
            Expr::Ident(root) => self.chain(root, &path),
            _ => {
                let root = self.visit(&root_of(select).operand);
                self.follow(root.shape, &path)
            }
        };
        if select.test {
            Known::of_type(JsonType::Boolean)
        } else {
            known
        }
    }

    /// A variable, or fields selected from one.
    fn chain(&mut self, root: &str, path: &[&str]) -> Known<'a> {
        let Some(found) = self.scope.iter().rposition(|(name, _)| name == root) else {
            if !root.starts_with('@') {
                self.analysis
                    .errors
                    .push(format!("undeclared reference to '{root}' (in container '')"));
            }
            return Known::default();
        };
        if found < self.declared {
            let reads = self
                .analysis
                .reads
                .entry(root.to_owned())
                .or_insert_with(|| Reads::Fields(BTreeMap::new()));
            reads.add(path);
        }
        let shape = self.scope[found].1;
        self.follow(shape, path)
    }

    /// The schema below `shape` along `path`; reports the first field that does not exist.
    fn follow(&mut self, mut shape: Option<&'a dyn Shape>, path: &[&str]) -> Known<'a> {
        for name in path {
            let Some(node) = shape else { return Known::default() };
            let property = node.property_names().find(|field| escape(field) == *name);
            let implied = node.embedded() && matches!(*name, "apiVersion" | "kind" | "metadata");
            if property.is_none()
                && node.json_type() == Some(JsonType::Object)
                && node.additional().is_none()
                && !implied
            {
                self.analysis.errors.push(format!("undefined field '{name}'"));
                return Known::default();
            }
            shape = property
                .and_then(|field| node.property(field))
                .or(node.additional())
                .filter(|_| !implied);
        }
        Known {
            shape,
            json_type: shape.and_then(Shape::json_type),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Known<'a> {
        let name = call.func_name.as_str();
        let operator = name.starts_with(['_', '@', '!', '-']);
        if !operator && !name.starts_with("math.") && !FUNCTIONS.contains(&name) && !self.is_namespaced(call) {
            self.analysis
                .errors
                .push(format!("undeclared reference to '{name}' (in container '')"));
        }
        if !self.is_namespaced(call)
            && let Some(target) = &call.target
        {
            self.visit(target);
        }
        let arguments: Vec<Known<'a>> = call.args.iter().map(|argument| self.visit(argument)).collect();
        match name {
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => {
                self.comparable(name, &arguments);
                Known::of_type(JsonType::Boolean)
            }
            "_&&_" | "_||_" | "!_" | "@in" => Known::of_type(JsonType::Boolean),
            "_[_]" => {
                let shape = arguments
                    .first()
                    .and_then(|list| list.shape)
                    .and_then(|list| list.items().or(list.additional()));
                Known {
                    shape,
                    json_type: shape.and_then(Shape::json_type),
                }
            }
            "_?:_" | "_?_:_" => Known {
                shape: None,
                json_type: arguments.get(1).and_then(|branch| branch.json_type),
            },
            _ => Known::default(),
        }
    }

    /// `math.greatest(…)`, `optional.of(…)`: the target is a namespace, not a variable.
    fn is_namespaced(&self, call: &CallExpr) -> bool {
        let Some(Expr::Ident(name)) = call.target.as_ref().map(|target| &target.expr) else {
            return false;
        };
        matches!(name.as_str(), "math" | "optional" | "lists" | "strings")
            && !self.scope.iter().any(|(known, _)| known == name)
    }

    fn comparable(&mut self, operator: &str, arguments: &[Known<'_>]) {
        let [Some(left), Some(right)] = [0, 1].map(|i| arguments.get(i).and_then(|known| known.json_type)) else {
            return;
        };
        let number = |side: JsonType| matches!(side, JsonType::Integer | JsonType::Number);
        if left != right && !(number(left) && number(right)) {
            let (left, right) = (left.name(), right.name());
            self.analysis.errors.push(format!(
                "found no matching overload for '{operator}' applied to '({left}, {right})'"
            ));
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Known<'a> {
        let range = self.visit(&comprehension.iter_range);
        self.visit(&comprehension.accu_init);
        // Over a map, the first variable is a key.
        let element = range.shape.and_then(Shape::items);
        let depth = self.scope.len();
        self.scope.push((comprehension.iter_var.clone(), element));
        self.scope
            .extend(comprehension.iter_var2.iter().map(|name| (name.clone(), None)));
        self.scope.push((comprehension.accu_var.clone(), None));
        for part in [
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ] {
            self.visit(part);
        }
        self.scope.truncate(depth);
        Known::default()
    }
}

/// The innermost selection of a chain.
fn root_of(mut select: &SelectExpr) -> &SelectExpr {
    while let Expr::Select(inner) = &select.operand.expr {
        select = inner;
    }
    select
}

fn literal_type(literal: &LiteralValue) -> Known<'static> {
    match literal {
        LiteralValue::Boolean(_) => Known::of_type(JsonType::Boolean),
        LiteralValue::String(_) => Known::of_type(JsonType::String),
        LiteralValue::Int(_) | LiteralValue::UInt(_) => Known::of_type(JsonType::Integer),
        LiteralValue::Double(_) => Known::of_type(JsonType::Number),
        LiteralValue::Bytes(_) | LiteralValue::Null => Known::default(),
    }
}
