//! Output of the operator's answers: as tables, coloured on a terminal, or as JSON or YAML.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For people with wide terminals.
    Wide,
    /// As the API answers.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Prints a text. A reader that closes the stream early is no error.
///
/// # Errors
/// When standard output is gone otherwise.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Prints an answer in a format.
///
/// # Errors
/// When standard output is gone.
pub fn answer<T: Serialize>(output: Output, answer: &T, words: impl FnOnce(&Look) -> String) -> anyhow::Result<()> {
    match output {
        Output::Json => print(&format!("{}\n", serde_json::to_string_pretty(answer)?)),
        Output::Yaml => print(&serde_yaml_ng::to_string(answer)?),
        Output::Table | Output::Wide => print(&words(&Look::of(output))),
    }
}

/// A text with its control characters, line ends too, as escapes such as `\u{1b}`: tenants choose parts of some texts, and a terminal would execute
/// them.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            escaped.extend(c.escape_debug());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The same for a text of several lines.
#[must_use]
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// The same for all strings of an answer. Only fields with the name `message` are of several lines.
pub fn escape_strings(answer: &mut Value) {
    match answer {
        Value::String(text) if text.contains(char::is_control) => *text = escaped(text),
        Value::Array(elements) => elements.iter_mut().for_each(escape_strings),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "message" => *text = escaped_lines(text),
                    field => escape_strings(field),
                }
            }
        }
        _ => {}
    }
}

/// Adds a line to a text, escaped.
pub fn add_line(text: &mut String, line: &str) {
    text.push_str(&escaped(line));
    text.push('\n');
}

/// How tables are printed.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Colours and bars.
    pub terminal: bool,
    /// More columns.
    pub wide: bool,
    /// The time for computing ages.
    pub now: Timestamp,
}

/// A colour of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Something is wrong.
    Red = 31,
    /// All is well.
    Green = 32,
    /// Something waits.
    Yellow = 33,
    /// Less important.
    Grey = 90,
}

impl Look {
    /// The style for standard output.
    #[must_use]
    pub fn of(output: Output) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            terminal: std::io::stdout().is_terminal() && !no_colour,
            wide: output == Output::Wide,
            now: Timestamp::now(),
        }
    }

    /// A text in a colour.
    #[must_use]
    pub fn paint(&self, colour: Colour, text: &str) -> String {
        if self.terminal {
            format!("\x1b[{}m{text}\x1b[0m", colour as u8)
        } else {
            text.to_owned()
        }
    }

    /// Time since an instant, in its two largest units.
    #[must_use]
    pub fn age(&self, since: Option<Timestamp>) -> String {
        let Some(since) = since else { return "-".to_owned() };
        let seconds = self.now.duration_since(since).as_secs().max(0);
        match seconds {
            0..120 => format!("{seconds}s"),
            120..7_200 => format!("{}m", seconds / 60),
            7_200..172_800 => format!("{}h", seconds / 3_600),
            _ => format!("{}d", seconds / 86_400),
        }
    }
}

/// Rows of cells, the first of them the headings; columns are as wide as their widest cell.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| columns_of(cell))
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += cell;
            line += &" ".repeat(width - columns_of(cell) + 2);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Number of columns that a text takes on a terminal; colours take none.
fn columns_of(text: &str) -> usize {
    let (mut columns, mut in_colour) = (0, false);
    for c in text.chars() {
        match c {
            '\x1b' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            _ => columns += 1,
        }
    }
    columns
}

/// A part of a whole, as a bar of this width.
#[must_use]
pub fn bar(part: f64, whole: f64, columns: usize) -> String {
    let share = if whole > 0.0 {
        (part / whole).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let full = (share * columns as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(columns - full))
}

/// With at most two decimals.
#[must_use]
pub fn number(amount: f64) -> String {
    let text = format!("{amount:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A limit, or unlimited.
#[must_use]
pub fn bound(bound: Option<f64>) -> String {
    bound.map_or_else(|| "-".to_owned(), number)
}

/// Bytes in a suitable unit.
#[must_use]
pub fn bytes(amount: f64) -> String {
    let units = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut amount, mut unit) = (amount, 0);
    while amount.abs() >= 1024.0 && unit + 1 < units.len() {
        (amount, unit) = (amount / 1024.0, unit + 1);
    }
    format!("{}{}", number(amount), units[unit])
}

/// A sentence, with its full stop.
#[must_use]
pub fn sentence(text: &str) -> String {
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{text}{end}")
}

/// Notes on missing parts of a list.
#[must_use]
pub fn remarks(meta: &crate::api::views::Meta, about_verdicts: bool) -> String {
    let mut text = String::new();
    if meta.namespaces_left_out > 0 {
        text += &format!(
            "{} namespaces were left out; name one with -n.\n",
            meta.namespaces_left_out
        );
    }
    if about_verdicts && !meta.leads {
        let leader = meta.leader.as_deref().unwrap_or("another replica");
        text += &format!("This replica does not schedule, {leader} does; it has the recent decisions.\n");
    }
    text
}

#[cfg(test)]
mod tests;
