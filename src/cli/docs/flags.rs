//! The subcommands and their flags, as Markdown.

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::cell;

const HEAD: &str = "\
# Commands and flags

<!-- Generated from the command line by `cargo gen-docs`. -->

`unikai COMMAND --help` says the same. Where both are given, the flag counts, not the variable. Which fields of Config and SchedulingShard say the same as flags of `unikai run` is in
[configuration](../configuration.md).
";

/// The page on the command line `command`.
pub fn document(command: Command) -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## All commands\n");
    table(&command, &mut text);
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        if let Some(sub) = command.find_subcommand(&name) {
            describe(sub, &format!("unikai {name}"), &mut text);
        }
    }
    text
}

fn describe(command: &Command, called: &str, text: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut usage = called.to_owned();
    for argument in command.get_positionals().filter(|argument| !argument.is_hide_set()) {
        let _ = write!(usage, " {}", positional(argument));
    }
    let _ = writeln!(
        text,
        "\n## {called}\n\n{}.\n\n```\n{usage}\n```",
        about.trim_end_matches('.')
    );
    table(command, text);
    for sub in command.get_subcommands() {
        describe(sub, &format!("{called} {}", sub.get_name()), text);
    }
}

/// The flags, by their headings, in the order of `--help`.
fn table(command: &Command, text: &mut String) {
    let shown =
        |argument: &&Arg| !argument.is_hide_set() && argument.get_long().is_some() && argument.get_id() != "help";
    let flags: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for flag in &flags {
        if !headings.contains(&flag.get_help_heading()) {
            headings.push(flag.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            let _ = writeln!(text, "\n**{heading}**");
        }
        text.push_str("\n| flag | variable | default | meaning |\n|---|---|---|---|\n");
        for flag in flags.iter().filter(|flag| flag.get_help_heading() == heading) {
            row(flag, text);
        }
    }
}

fn row(flag: &Arg, text: &mut String) {
    let takes = flag.get_action().takes_values();
    let value = if takes {
        format!(" {}", value_names(flag))
    } else {
        String::new()
    };
    let short = flag
        .get_short()
        .map(|short| format!("`-{short}`, "))
        .unwrap_or_default();
    let variable = flag
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()))
        .unwrap_or_default();
    let defaults: Vec<_> = flag
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    let default = match defaults.join(",") {
        none if none.is_empty() || !takes => String::new(),
        some => format!("`{some}`"),
    };
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<_> = flag
        .get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect();
    let values = if values.is_empty() || flag.is_hide_possible_values_set() || !takes {
        String::new()
    } else {
        format!(" (`{}`)", values.join("`, `"))
    };
    let long = flag.get_long().unwrap_or_default();
    let _ = writeln!(
        text,
        "| {short}`--{long}{}` | {variable} | {} | {}{values} |",
        value.replace('|', "/"),
        cell(&default),
        cell(&help)
    );
}

fn value_names(flag: &Arg) -> String {
    let names = flag.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A positional argument in a usage.
fn positional(argument: &Arg) -> String {
    let many = argument.get_num_args().is_some_and(|range| range.max_values() > 1);
    let name = format!("{}{}", value_names(argument), if many { "..." } else { "" });
    if argument.is_required_set() {
        name
    } else {
        format!("[{name}]")
    }
}
