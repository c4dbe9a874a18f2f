//! Queries of Kartas, and the objects that they are evaluated on.

use allocation_counter::measure;
use serde_json::{Value, json};

use crate::components::grouping::karta::jq::{Query, Subject};
use crate::fuzz::Target;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    ".", ".spec", ".workers", "[]", "[0]", ".n", ".name", ".replicas", "|", ",", "//", "+", "-", "*", "/", "%", "==", "<", "and", "or", "not", "?",
    "map(.n)", "select(.n)", "length", "keys", "tostring", "tonumber", "tojson", "add", "any", "sort", "unique", "flatten", "reverse", "first",
    "limit(2; ", "test(\"a\")", "split(\"-\")", "join(\"\")", "gsub(\"a\"; \"b\")", "to_entries", "from_entries", "with_entries(.)", "contains(.)",
    "inside(.)", "getpath([\"a\"])", "if", "then", "else", "end", "try", "catch", "label $x", "break $x", "as $x", "$x", "reduce", "foreach",
    "def f: .;", "..", "@base64", "@sh", "\"\\(.)\"", "\"", "[", "]", "{", "}", "(", ")", ":", ";", "1", "-1", "1e9", "null", "error", "empty",
    "implode", "explode", "input", "env", "range(9)", "recurse",
];

fn flow() -> Value {
    json!({"metadata": {"name": "flow", "labels": {"role": "leader"}},
        "spec": {"replicas": 3, "size": "4", "names": "a-b", "workers": [{"name": "a", "n": 2}, {"name": "b", "n": 5}, {"name": "c"}]}})
}

#[test]
fn fuzz_queries() {
    let target = Target {
        name: "jq",
        rounds: 1_500,
        words: WORDS,
    };
    let subject = Subject::new(flow());
    target.texts(|text| {
        let query = match Query::new(text) {
            Ok(query) => query,
            Err(error) => {
                assert!(!error.is_empty());
                return false;
            }
        };
        let mut answer = Ok(Vec::new());
        let taken = measure(|| answer = query.run(&subject));
        assert!(taken.bytes_total < 16 << 20, "{taken:?}");
        assert_eq!(query.run(&subject), answer, "the same object gives the same results");
        match answer {
            Ok(results) => assert!(results.len() < 1_000),
            Err(error) => assert!(!error.is_empty()),
        }
        for error in [query.text(&subject).err(), query.texts(&subject).err()]
            .into_iter()
            .flatten()
        {
            assert!(!error.is_empty());
        }
        true
    });
}

/// The queries are those of the corpus; what tenants write must not make one of them expensive.
#[test]
fn fuzz_objects_of_queries() {
    let queries = include_str!("../../../../fuzz/corpora/jq/queries.list").lines();
    let queries: Vec<Query> = queries.map(|line| Query::new(line).expect(line)).collect();
    let target = Target {
        name: "jq-objects",
        rounds: 300,
        words: &[
            "a", "b", "spec", "workers", "replicas", "names", "n", "name", "-", "\"\\", "2",
        ],
    };
    target.objects(|object| {
        let bytes = object.to_string().len() as u64;
        let subject = Subject::new(object.clone());
        let mut valid = false;
        for query in &queries {
            let mut answer = Ok(Vec::new());
            let taken = measure(|| answer = query.run(&subject));
            // The report of a panic takes memory, too.
            let panicked = matches!(&answer, Err(error) if error.ends_with("cannot be evaluated"));
            assert!(
                panicked || taken.bytes_total <= (16 << 20) + 1_000 * bytes,
                "{query:?}: {taken:?} for {bytes} bytes"
            );
            match answer {
                Ok(results) => valid |= !results.is_empty() && results.iter().all(|result| !result.is_null()),
                Err(error) => assert!(!error.is_empty()),
            }
        }
        valid
    });
}
