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
fn every_cause_has_a_distinct_word() {
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

#[test]
fn the_documentation_lists_every_cause() {
    let page = include_str!("../../../../docs/pending.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: Vec<&str> = rows.map(|(word, _)| word).collect();
    let causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
    let missing: Vec<_> = causes.iter().filter(|word| !listed.contains(word)).collect();
    let strange: Vec<_> = listed.iter().filter(|word| !causes.contains(word)).collect();
    assert!(
        missing.is_empty() && strange.is_empty(),
        "missing {missing:?}, strange {strange:?}"
    );
}
