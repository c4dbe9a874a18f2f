use super::*;

#[test]
fn the_first_sentence_comes_first_and_evidence_follows() {
    let mut verdict = Verdict::new(Cause::QueueLimit, "Queue team is at its limit of 2 GPUs");
    assert_eq!(verdict.to_string(), "Queue team is at its limit of 2 GPUs");
    verdict.evidence = vec!["3 nodes are full".to_owned(), "1 is cordoned".to_owned()];
    assert_eq!(
        verdict.to_string(),
        "Queue team is at its limit of 2 GPUs. 3 nodes are full. 1 is cordoned"
    );
}

#[test]
fn every_cause_has_a_word_of_its_own() {
    let mut words: Vec<&str> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
    assert!(
        words
            .iter()
            .all(|word| word.chars().all(|letter| letter == '_' || letter.is_ascii_lowercase()))
    );
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Cause::ALL.len());
}
