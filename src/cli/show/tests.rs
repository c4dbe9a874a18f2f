use serde_json::json;

use super::*;

#[test]
fn columns_are_aligned_whatever_their_colours() {
    let look = Look {
        terminal: true,
        wide: false,
        now: Timestamp::UNIX_EPOCH,
    };
    let rows = [
        vec!["NAME".to_owned(), "STATE".to_owned(), "AGE".to_owned()],
        vec!["a".to_owned(), look.paint(Colour::Red, "Waiting"), "1s".to_owned()],
        vec!["longer".to_owned(), "█░".to_owned(), "2s".to_owned()],
    ];
    let text = table(&rows);
    let plain = text.replace("\x1b[31m", "").replace("\x1b[0m", "");
    assert_eq!(
        plain,
        "NAME    STATE    AGE\na       Waiting  1s\nlonger  █░       2s\n"
    );
}

#[test]
fn amounts_are_printed_with_few_digits() {
    assert_eq!([number(2.0), number(0.5), number(1.0 / 3.0)], ["2", "0.5", "0.33"]);
    assert_eq!((bound(None), bound(Some(0.0))), ("-".to_owned(), "0".to_owned()));
    assert_eq!([bytes(512.0 * 1024.0 * 1024.0 * 1024.0), bytes(1.0)], ["512Gi", "1B"]);
    assert_eq!(
        [bar(1.0, 2.0, 4), bar(3.0, 2.0, 4), bar(1.0, 0.0, 4)],
        ["██░░", "████", "░░░░"]
    );
    assert_eq!(
        [sentence("It waits"), sentence("It waits.")],
        ["It waits.", "It waits."]
    );
    let look = Look {
        terminal: false,
        wide: false,
        now: Timestamp::from_second(1_000_000).unwrap(),
    };
    let ages = [90, 7_000, 100_000, 900_000].map(|ago| look.age(Timestamp::from_second(1_000_000 - ago).ok()));
    assert_eq!(ages, ["90s", "116m", "27h", "10d"]);
    assert_eq!(look.paint(Colour::Red, "x"), "x");
}

#[test]
fn control_characters_are_escaped_in_all_strings_of_an_answer() {
    let mut answer = json!({
        "total": 2,
        "workloads": [{"name": "train", "verdict": {"sentence": "Topology \u{1b}]0;x\u{7}\nteam  forged does not exist"}}],
        "notes": ["\u{9b}2J", "für α"],
        "message": "first\u{1b}[2J\nsecond",
    });
    escape_strings(&mut answer);
    let expected = json!({
        "total": 2,
        "workloads": [{"name": "train", "verdict": {"sentence": "Topology \\u{1b}]0;x\\u{7}\\nteam  forged does not exist"}}],
        "notes": ["\\u{9b}2J", "für α"],
        "message": "first\\u{1b}[2J\nsecond",
    });
    assert_eq!(answer, expected);
}
