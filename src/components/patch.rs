//! Merge patches with nothing but the changes.

use serde::Serialize;
use serde_json::{Map, Value};

/// The JSON merge patch that turns `old` into `new`; `None` if nothing changes. Lists are replaced as a whole.
#[must_use]
pub fn merge_diff<T: Serialize>(old: &T, new: &T) -> Option<Value> {
    let value = |object: &T| serde_json::to_value(object).unwrap_or_default();
    diff(&value(old), &value(new))
}

fn diff(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let change = old.get(key).map_or_else(|| Some(value.clone()), |old| diff(old, value));
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn says_only_what_changes() {
        let old = json!({"same": 1, "gone": 2, "map": {"a": 1, "b": 2}, "list": [1, 2]});
        let new = json!({"same": 1, "map": {"a": 1, "b": 3, "c": {}}, "list": [2]});
        let patch = merge_diff(&old, &new);
        assert_eq!(
            patch,
            Some(json!({"gone": null, "map": {"b": 3, "c": {}}, "list": [2]}))
        );
        assert_eq!(merge_diff(&new, &new), None);
    }

    #[test]
    fn applied_it_gives_the_new_object() {
        let old = json!({"a": {"b": [1], "c": "x"}});
        let new = json!({"a": {"b": [1, 2]}, "d": null});
        let mut patched = old.clone();
        json_patch::merge(&mut patched, &merge_diff(&old, &new).unwrap());
        assert_eq!(patched, json!({"a": {"b": [1, 2]}}));
    }
}
