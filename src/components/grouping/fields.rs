//! Typed access to fields of untyped objects. An absent field is `None`; a wrong type is an error, so that a
//! mistake in a manifest is reported.

use serde_json::{Map, Value};

use super::wanted::RuleError;

/// The value at the path. A missing key, or a null on the way, is absent.
///
/// # Errors
/// If something on the way is no object, or the value is null.
pub fn value<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a Value>, RuleError> {
    let mut at = object;
    for (depth, key) in path.iter().enumerate() {
        let fields = match at {
            Value::Null => return Ok(None),
            Value::Object(fields) => fields,
            _ => return Err(wrong(path.get(..depth).unwrap_or(path), "an object")),
        };
        match fields.get(*key) {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    if at.is_null() {
        return Err(wrong(path, "anything but null"));
    }
    Ok(Some(at))
}

/// A whole number that fits 32 bits.
///
/// # Errors
/// If the type is wrong.
pub fn integer(object: &Value, path: &[&str]) -> Result<Option<i32>, RuleError> {
    typed(object, path, "a whole number", |value| {
        value.as_i64().and_then(|number| i32::try_from(number).ok())
    })
}

/// A string.
///
/// # Errors
/// If the type is wrong.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a str>, RuleError> {
    typed(object, path, "text", Value::as_str)
}

/// A boolean.
///
/// # Errors
/// If the type is wrong.
pub fn boolean(object: &Value, path: &[&str]) -> Result<Option<bool>, RuleError> {
    typed(object, path, "true or false", Value::as_bool)
}

/// A list.
///
/// # Errors
/// If the type is wrong.
pub fn list<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a Vec<Value>>, RuleError> {
    typed(object, path, "a list", Value::as_array)
}

/// An object.
///
/// # Errors
/// If the type is wrong.
pub fn map<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a Map<String, Value>>, RuleError> {
    typed(object, path, "an object", Value::as_object)
}

fn typed<'a, T>(
    object: &'a Value,
    path: &[&str],
    expected: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, RuleError> {
    let Some(found) = value(object, path)? else {
        return Ok(None);
    };
    read(found).map(Some).ok_or_else(|| wrong(path, expected))
}

fn wrong(path: &[&str], expected: &str) -> RuleError {
    RuleError::Workload(format!("{} is not {expected}", path.join(".")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_are_no_errors() {
        let object = json!({"a": {"n": 3, "f": 3.0, "s": "3", "null": null, "big": 4_294_967_297_i64}});
        assert_eq!(integer(&object, &["a", "n"]), Ok(Some(3)));
        assert_eq!(integer(&object, &["a", "missing"]), Ok(None));
        assert_eq!(integer(&object, &["missing", "n"]), Ok(None));
        assert_eq!(integer(&object, &["a", "null", "n"]), Ok(None));
        for wrong in ["f", "s", "null", "big"] {
            assert!(integer(&object, &["a", wrong]).is_err(), "{wrong}");
        }
        assert!(integer(&object, &["a", "n", "below"]).is_err());
        assert_eq!(text(&object, &["a", "s"]), Ok(Some("3")));
        assert_eq!(boolean(&Value::Null, &["a"]), Ok(None));
    }
}
