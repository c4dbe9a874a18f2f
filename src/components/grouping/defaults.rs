//! The administrator's defaults per kind of workload: a ConfigMap that names priority classes and preemptibility.
//!
//! ```yaml
//! data:
//!   types: |
//!     [{"typeName": "Deployment", "group": "apps", "priorityName": "inference", "preemptibility": "non-preemptible"}]
//! ```

use std::collections::HashMap;

use serde_json::Value;
use tracing::warn;

use super::workload::Workload;

/// One entry. Empty fields are unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Priority class.
    pub priority_class: String,
    /// Preemptibility, as written.
    pub preemptibility: String,
}

/// All entries, by `Kind.group` and by `Kind`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    entries: HashMap<String, Entry>,
}

impl Defaults {
    /// Reads the ConfigMap. Invalid content gives no defaults, so that it does not block pods.
    #[must_use]
    pub fn of(config_map: &Workload) -> Self {
        let text = config_map.body.pointer("/data/types").and_then(Value::as_str);
        Self::parse(text.unwrap_or_default()).unwrap_or_else(|reason| {
            warn!(name = config_map.name, reason, "default priorities cannot be read");
            Self::default()
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let list: Vec<Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut entries = HashMap::new();
        for entry in &list {
            let [kind, group, priority_class, preemptibility] =
                ["typeName", "group", "priorityName", "preemptibility"].map(|key| field(entry, key));
            let (kind, group) = (kind?, group?);
            let key = if group.is_empty() {
                kind
            } else {
                format!("{kind}.{group}")
            };
            entries.insert(
                key,
                Entry {
                    priority_class: priority_class?,
                    preemptibility: preemptibility?,
                },
            );
        }
        Ok(Self { entries })
    }

    /// The entry for the workload's kind: the one that names its group before the one that names none.
    #[must_use]
    pub fn get(&self, workload: &Workload) -> Option<&Entry> {
        let exact = self.entries.get(&format!("{}.{}", workload.kind, workload.group));
        exact.or_else(|| self.entries.get(&workload.kind))
    }
}

/// A string field of an entry; keys match case-insensitively, and the last one counts.
fn field(entry: &Value, key: &str) -> Result<String, String> {
    let fields = match entry {
        Value::Null => return Ok(String::new()),
        Value::Object(fields) => fields,
        _ => return Err("an entry is no object".to_owned()),
    };
    let named = fields.iter().rfind(|(name, _)| name.eq_ignore_ascii_case(key));
    match named.map(|(_, value)| value) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{key} is no text")),
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

    use super::*;

    fn class(defaults: &Defaults, api_version: &str, kind: &str) -> String {
        let found = defaults.get(&Workload::new(api_version, kind, &ObjectMeta::default()));
        found.map(|entry| entry.priority_class.clone()).unwrap_or_default()
    }

    #[test]
    fn an_entry_with_a_group_counts_for_that_group_only() {
        let text = r#"[{"typeName": "T", "group": "apps", "priorityName": "a"}, {"TypeName": "T", "priorityname": "k"},
                       {"typeName": "D.apps", "priorityName": "d"}]"#;
        let defaults = Defaults::parse(text).unwrap();
        assert_eq!(class(&defaults, "apps/v1", "T"), "a");
        assert_eq!(class(&defaults, "batch/v1", "T"), "k");
        assert_eq!(class(&defaults, "apps/v1", "D"), "d");
        assert_eq!(class(&defaults, "batch/v1", "D"), "");
    }

    #[test]
    fn an_invalid_config_map_gives_no_defaults() {
        for wrong in ["", "{}", "[3]", r#"[{"typeName": 3}]"#] {
            assert!(Defaults::parse(wrong).is_err(), "{wrong}");
        }
    }
}
