//! Field errors: what is wrong at which path, in the API server's words, and the `Status` object that carries them.

use std::fmt;

use serde_json::{Value, json};

/// What sort of mistake a field holds; decides the `reason` of the cause and the words before the detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A required field is absent.
    Required,
    /// A list or map of unique entries holds one twice.
    Duplicate,
    /// A value breaks a rule.
    Invalid,
    /// A value is not one of the supported ones.
    NotSupported,
    /// A value may not be set here.
    Forbidden,
    /// A string or list is longer than allowed.
    TooLong,
    /// A list holds more entries than allowed.
    TooMany,
    /// A value has the wrong JSON type.
    TypeInvalid,
}

impl ErrorKind {
    /// The `reason` of a status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// Whether rules can no longer be evaluated on an object with such a mistake.
    pub fn blocks_rules(self) -> bool {
        match self {
            Self::Required | Self::NotSupported | Self::TooLong | Self::TooMany | Self::TypeInvalid => true,
            Self::Duplicate | Self::Invalid | Self::Forbidden => false,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// One mistake at one path. Displays as the API server prints it: `spec.levels: Invalid value: …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// What sort of mistake.
    pub kind: ErrorKind,
    /// Path of the field, such as `spec.levels[0].nodeLabel`.
    pub field: String,
    /// Everything after `path: `, such as `Required value` or `Invalid value: 0: must be positive`.
    pub body: String,
}

impl FieldError {
    /// An error that shows the bad value, and says `detail` when that is not empty.
    pub fn with_value(kind: ErrorKind, field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let tail = if detail.is_empty() {
            String::new()
        } else {
            format!(": {detail}")
        };
        Self {
            kind,
            field: field.into(),
            body: format!("{}: {value}{tail}", kind.words()),
        }
    }

    /// A value that breaks a rule.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(ErrorKind::Invalid, field, value, detail)
    }

    /// An error that shows no value: required and forbidden fields, things that are too long or too many.
    pub fn plain(kind: ErrorKind, field: impl Into<String>, detail: &str) -> Self {
        let tail = if detail.is_empty() {
            String::new()
        } else {
            format!(": {detail}")
        };
        Self {
            kind,
            field: field.into(),
            body: format!("{}{tail}", kind.words()),
        }
    }

    /// A value that is none of the supported ones.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        Self::with_value(
            ErrorKind::NotSupported,
            field,
            value,
            &format!("supported values: {}", supported.join(", ")),
        )
    }

    /// The note that rules were left out because of other errors.
    pub fn rules_not_checked() -> Self {
        let detail = "some validation rules were not checked because the object was invalid; \
                      correct the existing errors to complete validation";
        Self::invalid("<nil>", &Value::Null, detail)
    }

    /// A required field that is absent.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::plain(ErrorKind::Required, field, detail)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

/// The 422 `Status` for an object that fails validation: `Queue.scheduling.run.ai "a" is invalid: …` with one cause per error.
pub fn invalid_status(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Value {
    let qualified = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    let mut sentences: Vec<String> = Vec::new();
    for error in errors {
        let sentence = error.to_string();
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    let all = match sentences.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let causes: Vec<Value> = errors
        .iter()
        .map(|error| json!({"reason": error.kind.reason(), "message": error.body, "field": error.field}))
        .collect();
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{qualified} {name:?} is invalid: {all}"),
        "reason": "Invalid",
        "details": {"name": name, "group": group, "kind": kind, "causes": causes},
        "code": 422,
    })
}
