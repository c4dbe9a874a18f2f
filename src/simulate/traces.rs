//! Traces of real clusters, as jobs.

pub mod jobs;
pub mod openb;

use anyhow::{Context, anyhow, ensure};
use csv::StringRecord;

/// The columns of a table, by name.
struct Columns(Vec<String>);

impl Columns {
    fn of(header: &StringRecord) -> Self {
        let plain = |name: &str| name.trim().to_ascii_lowercase().replace([' ', '-'], "_");
        Self(header.iter().map(plain).collect())
    }

    /// The column with the first of these names that the table has.
    fn any(&self, names: &[&str]) -> Option<usize> {
        names
            .iter()
            .find_map(|name| self.0.iter().position(|column| column == name))
    }

    fn one(&self, names: &[&str]) -> anyhow::Result<usize> {
        self.any(names)
            .with_context(|| format!("there is no column {}", names.join(" or ")))
    }
}

/// A cell; empty if there is none.
fn cell(row: &StringRecord, column: Option<usize>) -> &str {
    column.and_then(|column| row.get(column)).unwrap_or_default().trim()
}

fn number(text: &str) -> anyhow::Result<f64> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|number| number.is_finite())
        .ok_or_else(|| anyhow!("{text:?} is not a number"))
}

/// An amount, which is not less than 0.
fn amount(text: &str) -> anyhow::Result<f64> {
    let amount = number(text)?;
    ensure!(amount >= 0.0, "{text:?} is less than 0");
    Ok(amount)
}

/// The rows of a table, each with its line number for errors.
fn rows<T>(
    text: &str,
    delimiter: u8,
    mut read: impl FnMut(&Columns, &StringRecord) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Vec<T>> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .flexible(true)
        .from_reader(text.as_bytes());
    let columns = Columns::of(reader.headers()?);
    let mut all = Vec::new();
    for row in reader.records() {
        let row = row?;
        let line = row.position().map_or(0, csv::Position::line);
        let read = read(&columns, &row).with_context(|| format!("line {line}"))?;
        all.extend(read);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
