//! Label and field selectors: parsing as the query strings of list and watch requests write them, and matching.

use serde_json::{Number, Value};

use super::status::{ApiError, ApiResult};

/// One requirement on labels.
#[derive(Clone, Debug, PartialEq)]
struct LabelRequirement {
    key: String,
    operator: LabelOperator,
}

#[derive(Clone, Debug, PartialEq)]
enum LabelOperator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    GreaterThan(i64),
    LessThan(i64),
}

/// A label selector; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<LabelRequirement>);

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    pub fn parse(text: &str) -> ApiResult<Self> {
        let refused = |why: String| ApiError::bad_request(format!("unable to parse requirement: {why}"));
        split_requirements(text)
            .into_iter()
            .map(|part| label_requirement(part.trim()).map_err(refused))
            .collect::<ApiResult<_>>()
            .map(Self)
    }

    /// Reads a `metav1.LabelSelector`; `None` when it is malformed.
    pub fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        if let Some(labels) = selector["matchLabels"].as_object() {
            for (key, value) in labels {
                requirements.push(LabelRequirement {
                    key: key.clone(),
                    operator: LabelOperator::In(vec![value.as_str()?.to_owned()]),
                });
            }
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let values = || -> Option<Vec<String>> {
                expression["values"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|value| value.as_str().map(str::to_owned))
                    .collect()
            };
            let operator = match expression["operator"].as_str()? {
                "In" => LabelOperator::In(values()?),
                "NotIn" => LabelOperator::NotIn(values()?),
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::Absent,
                _ => return None,
            };
            requirements.push(LabelRequirement {
                key: expression["key"].as_str()?.to_owned(),
                operator,
            });
        }
        Some(LabelSelector(requirements))
    }

    /// True when it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|requirement| {
            let value = labels[&requirement.key].as_str();
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                LabelOperator::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
                LabelOperator::NotIn(values) => {
                    value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value))
                }
                LabelOperator::Exists => value.is_some(),
                LabelOperator::Absent => value.is_none(),
                LabelOperator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
                LabelOperator::LessThan(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

/// Splits at commas outside parentheses.
fn split_requirements(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_i32);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn label_requirement(text: &str) -> Result<LabelRequirement, String> {
    let requirement = |key: &str, operator| {
        let key = key.trim();
        let known = !key.is_empty()
            && key
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter));
        if known {
            Ok(LabelRequirement {
                key: key.to_owned(),
                operator,
            })
        } else {
            Err(format!("invalid label key {key:?} in {text:?}"))
        }
    };
    if let Some((key, set)) = text.split_once(" notin") {
        return requirement(key, LabelOperator::NotIn(label_set(set)?));
    }
    if let Some((key, set)) = text.split_once(" in") {
        return requirement(key, LabelOperator::In(label_set(set)?));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return requirement(key, LabelOperator::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return requirement(key, LabelOperator::In(vec![value.trim().to_owned()]));
    }
    let bound = |value: &str| {
        value
            .trim()
            .parse()
            .map_err(|_| format!("for 'Gt', 'Lt' operators, the value must be an integer: {text:?}"))
    };
    if let Some((key, value)) = text.split_once('>') {
        return requirement(key, LabelOperator::GreaterThan(bound(value)?));
    }
    if let Some((key, value)) = text.split_once('<') {
        return requirement(key, LabelOperator::LessThan(bound(value)?));
    }
    if let Some(key) = text.strip_prefix('!') {
        return requirement(key, LabelOperator::Absent);
    }
    requirement(text, LabelOperator::Exists)
}

fn label_set(text: &str) -> Result<Vec<String>, String> {
    let inner = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let inner = inner.ok_or_else(|| format!("found {text:?}, expected: '('"))?;
    Ok(inner.split(',').map(|value| value.trim().to_owned()).collect())
}

/// A field selector: equalities and inequalities on a few known fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSelector(Vec<FieldRequirement>);

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    path: Vec<String>,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads `metadata.name=a,spec.nodeName!=b`; fields outside `known` (beside the object's name and namespace) are refused,
    /// with another message for a `bare` kind, which has no others.
    pub fn parse<'a>(text: &str, known: impl Fn(&str) -> bool + 'a, bare: bool) -> ApiResult<Self> {
        let mut requirements = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (field, equal, value) = if let Some((field, value)) = part.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = part.split_once('=') {
                (field, true, value.strip_prefix('=').unwrap_or(value))
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: {part:?}; can't understand {part:?}"
                )));
            };
            let field = field.trim();
            if !matches!(field, "metadata.name" | "metadata.namespace") && !known(field) {
                let why = if bare {
                    format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                } else {
                    format!("field label not supported: {field}")
                };
                return Err(ApiError::bad_request(why));
            }
            let path = field.split('.').map(str::to_owned).collect();
            requirements.push(FieldRequirement {
                path,
                equal,
                value: value.trim().to_owned(),
            });
        }
        Ok(FieldSelector(requirements))
    }

    /// The same, for one object by name.
    pub fn and_name(mut self, name: &str) -> Self {
        let path = vec!["metadata".to_owned(), "name".to_owned()];
        self.0.push(FieldRequirement {
            path,
            equal: true,
            value: name.to_owned(),
        });
        self
    }

    /// The name that this selector demands, if any.
    pub fn wanted_name(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|requirement| requirement.equal && requirement.path == ["metadata", "name"])
            .map(|requirement| requirement.value.as_str())
    }

    /// True when it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's fields satisfy every requirement; an absent field is the empty string, an absent flag `false`.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| {
            let found = requirement.path.iter().try_fold(object, |value, step| value.get(step));
            let equal = match found {
                None | Some(Value::Null) => requirement.value.is_empty() || requirement.value == "false",
                Some(Value::String(text)) => *text == requirement.value,
                Some(Value::Bool(flag)) => requirement.value == if *flag { "true" } else { "false" },
                Some(Value::Number(number)) => requirement.value.parse().is_ok_and(|wanted: Number| wanted == *number),
                Some(Value::Array(_) | Value::Object(_)) => false,
            };
            equal == requirement.equal
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_match_as_kubernetes_matches_them() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "1", "empty": ""}}});
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==web,tier=1", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("app notin (db)", true),
            ("other notin (db)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("tier>0", true),
            ("tier<1", false),
            ("empty=", true),
        ];
        for (text, expected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        for text in ["a in b", "a b=c", "=x"] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().code, 400, "{text}");
        }
    }

    #[test]
    fn fields_match_and_unknown_fields_are_refused() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "flag": true}});
        let known = |field: &str| field.starts_with("spec.");
        let cases = [
            ("metadata.name=a", true),
            ("spec.nodeName!=n", false),
            ("spec.other=", true),
            ("spec.flag=true", true),
            ("spec.host=false", true),
        ];
        for (text, expected) in cases {
            assert_eq!(
                FieldSelector::parse(text, known, false).unwrap().matches(&object),
                expected,
                "{text}"
            );
        }
        assert_eq!(
            FieldSelector::parse("status.x=1", known, false).unwrap_err().message,
            "field label not supported: status.x"
        );
    }
}
