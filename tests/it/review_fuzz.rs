//! The webhooks' rules on hostile requests: none panics, and no pod is admitted whose requests cannot be counted.

#[path = "../../benches/admission/questions.rs"]
mod questions;

use questions::{Random, Webhooks};

#[test]
fn no_admission_request_causes_a_panic_or_an_invalid_response() {
    let webhooks = Webhooks::new();
    for seed in 0..4 {
        let mut random = Random::new(seed);
        for _ in 0..5_000 {
            let (kind, question) = random.question();
            let answer: serde_json::Value = serde_json::from_slice(&webhooks.answer(kind, &question)).unwrap();
            let response = &answer["response"];
            let denied = response["allowed"] == false;
            assert_eq!(response["uid"], "u");
            assert_eq!(
                denied,
                response["status"]["message"]
                    .as_str()
                    .is_some_and(|message| !message.is_empty())
            );
        }
    }
}
