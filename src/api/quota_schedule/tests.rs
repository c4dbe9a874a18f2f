mod fuzz;

use super::*;

const NIGHTS: &str = r#"
timeZone: Europe/Berlin
entries:
- {name: nights, days: Mon-Fri, from: "20:00", to: "06:00", gpu: {quota: 16, limit: -1}}
- {name: weekend, days: "Sat,Sun", gpu: {overQuotaWeight: 4}, memory: {quota: 0}}
"#;

#[test]
fn an_entry_changes_only_the_fields_that_it_sets() {
    let schedule = QuotaSchedule::parse(NIGHTS).expect("a schedule");
    let own = QueueResource {
        quota: Some(2.0),
        limit: Some(8.0),
        over_quota_weight: Some(1.0),
    };
    let own = QueueResources {
        gpu: Some(own),
        cpu: Some(own),
        memory: None,
    };
    let at = |text: &str| {
        let (entry, until) = schedule.at(text.parse().expect("an instant"));
        let resources = entry.map_or(own, |entry| entry.over(own));
        assert_eq!(resources.cpu, own.cpu);
        let gpu = resources.gpu.expect("gpus");
        let until = until.map(|until| until.to_string()).unwrap_or_default();
        (
            entry.map_or("", |entry| &entry.name),
            [gpu.quota, gpu.limit, gpu.over_quota_weight].map(Option::unwrap_or_default),
            resources.memory.and_then(|memory| memory.quota),
            until,
        )
    };
    let monday = at("2025-07-14T12:00:00Z");
    assert_eq!(monday, ("", [2.0, 8.0, 1.0], None, "2025-07-14T18:00:00Z".to_owned()));
    let night = at("2025-07-14T18:00:00Z");
    assert_eq!(
        night,
        ("nights", [16.0, -1.0, 1.0], None, "2025-07-15T04:00:00Z".to_owned())
    );
    // Friday's night goes before the weekend.
    let saturday = at("2025-07-19T04:00:00Z");
    assert_eq!(
        saturday,
        ("weekend", [2.0, 8.0, 4.0], Some(0.0), "2025-07-20T22:00:00Z".to_owned())
    );
}

#[test]
fn invalid_values_are_refused() {
    let entry = |text: &str| format!("entries: [{{name: a, gpu: {{quota: 1}}, {text}}}]");
    let many = format!("entries: [{}]", "{name: a},".repeat(40));
    let cases = [
        (
            entry("days: Someday"),
            "entry a: days: \"Someday\" names no days, such as Mon-Fri or Sat,Sun",
        ),
        (
            entry("from: \"8\""),
            "entry a: from: \"8\" is not a time of day, such as \"20:00\"",
        ),
        (
            entry("to: \"25:00\""),
            "entry a: to: \"25:00\" is not a time of day, such as \"20:00\"",
        ),
        (
            entry("cpu: {limit: -2}"),
            "entry a: cpu.limit: -2 is no amount of 0 or more, or -1 for no bound",
        ),
        (
            entry("cpu: {overQuotaWeight: -1}"),
            "entry a: cpu.overQuotaWeight: -1 is no amount of 0 or more",
        ),
        (
            entry("memory: {quota: .inf}"),
            "entry a: memory.quota: inf is no amount of 0 or more, or -1 for no bound",
        ),
        (
            "entries: [{name: a}]".to_owned(),
            "entry a: it changes nothing; give it gpu, cpu or memory",
        ),
        ("entries: []".to_owned(), "it has 0 entries; there may be 1 to 32"),
        (many, "it has 40 entries; there may be 1 to 32"),
        (
            "{timeZone: Mars/Base, entries: [{name: a, gpu: {quota: 1}}]}".to_owned(),
            "timeZone: \"Mars/Base\" is not a time zone, such as Europe/Berlin or UTC",
        ),
        (
            "entries: [{name: a, gpu: {quota: 1}}, {name: a, gpu: {quota: 1}}]".to_owned(),
            "two entries are called \"a\"",
        ),
        (
            "entries: [{name: 'a b', gpu: {quota: 1}}]".to_owned(),
            "an entry's name has 1 to 63 letters, digits, dots and dashes; \"a b\" is none",
        ),
        ("x".repeat(9_000), "it has 9000 bytes; 8192 are read"),
    ];
    for (text, says) in cases {
        assert_eq!(QuotaSchedule::parse(&text).unwrap_err(), says, "{text}");
    }
    for text in [
        "",
        "- a",
        "entries: 5",
        "{entries: [{name: a, gpus: {quota: 1}}]}",
        "&a [*a]",
    ] {
        assert!(QuotaSchedule::parse(text).is_err(), "{text}");
    }
    assert!(QuotaSchedule::parse(&entry("from: \"08:30:15\", to: \"24:00\"")).is_ok());
}
