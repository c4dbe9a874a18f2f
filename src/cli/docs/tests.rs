use clap::CommandFactory;

use super::*;
use crate::cli::Cli;

#[test]
fn every_field_of_a_queue_is_there_with_its_type_and_meaning() {
    let page = definitions::document();
    for row in [
        "| `spec.parentQueue` | string | ",
        "| `spec.resources.gpu.quota` | number | ",
        "| `spec.subGroups[].minMember` | integer | ",
        "| `status.allocated` | map to quantity | ",
    ] {
        assert!(page.contains(row), "{row}");
    }
    let empty: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| `spec") && line.ends_with("|  |"))
        .collect();
    assert!(empty.is_empty(), "fields without a description: {empty:?}");
}

#[test]
fn every_command_and_flag_is_there() {
    let page = flags::document(Cli::command());
    for command in Cli::command()
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        assert!(
            page.contains(&format!("\n## unikai {}\n", command.get_name())),
            "{}",
            command.get_name()
        );
        for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
            let long = flag.get_long().map(|long| format!("`--{long}"));
            assert!(long.is_none_or(|long| page.contains(&long)), "{}", flag.get_id());
        }
    }
    assert!(
        page.contains("| `--lease-duration SECONDS` | `UNIKAI_LEASE_DURATION` | `15` | "),
        "{page}"
    );
}
