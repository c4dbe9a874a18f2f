use std::collections::BTreeMap;

/// Limits as the source has them: name, number.
fn in_source() -> BTreeMap<String, u64> {
    let constant = |line: &str| {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        let (_, number) = rest.split_once(" = ")?;
        let number = number.trim_end_matches(';').replace('_', "");
        let number = number
            .parse()
            .unwrap_or_else(|_| panic!("{name} is not a plain integer"));
        Some((name.to_owned(), number))
    };
    include_str!("../limits.rs").lines().filter_map(constant).collect()
}

/// Limits as the table has them: a row's first cell is the name, its second begins with the number.
fn in_table() -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let name = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
        let [_, number, what, beyond] = *cells else {
            panic!("{name}: four cells are name, limit, what, beyond it")
        };
        assert!(
            !what.is_empty() && !beyond.is_empty(),
            "{name}: say what it limits and what happens beyond it"
        );
        let number = number.split(' ').next()?.replace(',', "");
        let number = number
            .parse()
            .unwrap_or_else(|_| panic!("{name}: the second cell begins with the number"));
        Some((name.to_owned(), number))
    };
    include_str!("../../../docs/limits.md")
        .lines()
        .filter_map(row)
        .collect()
}

#[test]
fn the_documented_limits_are_those_of_the_code() {
    let limits = in_source();
    assert!(!limits.is_empty());
    assert_eq!(
        in_table(),
        limits,
        "docs/limits.md (left) and src/api/limits.rs (right) say different things"
    );
}
