//! Parses YAML into values of bounded memory. By aliases, a short text may stand for a very long one, so the memory is limited to what a text of its length
//! needs without them.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The values may be so many times as long as the text, so that moderate use of aliases is possible.
const TIMES: usize = 4;
/// The budget of short texts.
const AT_LEAST: usize = 1 << 10;

/// The remaining budget of a text: each value costs one, and the bytes of its string.
pub struct Budget(Cell<usize>);

impl Budget {
    /// The budget of a text.
    pub fn of(text: &str) -> Self {
        Self(Cell::new(text.len() * TIMES + AT_LEAST))
    }

    /// Parses a document.
    ///
    /// # Errors
    /// If it does not parse, or exceeds the budget.
    pub fn take<'de, D: Deserializer<'de>>(&self, document: D) -> Result<Value, D::Error> {
        self.deserialize(document)
    }

    fn use_up<E: Error>(&self, amount: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(amount);
        self.0
            .set(left.ok_or_else(|| E::custom("its aliases repeat too much"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &Budget {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Budget {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a value as JSON has them")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.use_up(1)?;
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.use_up(1)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.use_up(1)?;
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.use_up(1)?;
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.use_up(1)?;
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.use_up(1 + value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.use_up(1)?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.use_up(1)?;
        let mut all = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.use_up(1 + key.len())?;
            all.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        let mut documents = serde_yaml_ng::Deserializer::from_str(text);
        let budget = Budget::of(text);
        budget
            .take(documents.next().unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_text_is_read_as_usual() {
        let text = "a: [1, -2, 2.5, true, null, x]\nb: &b {c: '1'}\nd: *b\n1: one\n";
        let usual = Value::deserialize(serde_yaml_ng::Deserializer::from_str(text)).unwrap();
        assert_eq!(read(text).unwrap(), usual);
        assert_eq!(usual["d"], json!({"c": "1"}));
    }

    #[test]
    fn yaml_with_too_many_alias_expansions_is_refused() {
        let mut text = "- &a [x, x, x, x, x, x, x, x]\n".to_owned();
        for (letter, before) in ["b", "c", "d", "e", "f"].into_iter().zip(["a", "b", "c", "d", "e"]) {
            let many = vec![format!("*{before}"); 20].join(", ");
            text += &format!("- &{letter} [{many}]\n");
        }
        let said = read(&text).unwrap_err();
        assert!(said.contains("its aliases repeat too much"), "{said}");

        let long = format!("- &a {}\n{}", "y".repeat(10_000), "- *a\n".repeat(10_000));
        let said = read(&long).unwrap_err();
        assert!(said.contains("its aliases repeat too much"), "{said}");
    }
}
