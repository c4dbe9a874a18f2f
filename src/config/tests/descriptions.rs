//! What `kubectl explain config` says of fields.

use super::{leaves, schema};
use crate::config::fields::{self, Effect};

/// A description that several components share names those of which it is not true.
#[test]
fn descriptions_of_fields_without_effect_say_so() {
    let schema = schema("Config");
    for leaf in leaves("Config") {
        let mut field = &schema;
        let mut texts = Vec::new();
        for name in &leaf[1..] {
            field = match name.as_str() {
                "any" => &field["additionalProperties"],
                name => &field["properties"][name],
            };
            texts.push(field["description"].as_str().unwrap_or_default());
        }
        let path: Vec<_> = leaf.iter().map(String::as_str).collect();
        let effect = fields::row("Config", &path).unwrap().effect;
        let says_so = texts.iter().any(|text| text.contains("Accepted and not used"));
        let has_exceptions = texts.iter().any(|text| text.contains("Accepted and not used, except"));
        assert!(
            has_exceptions || says_so == matches!(effect, Effect::Nothing(_)),
            "{}: {texts:?}",
            leaf.join(".")
        );
    }
}
