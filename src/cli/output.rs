//! How answers leave the binary: generated YAML as a stream of documents or as files, the rest in one of two formats.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One line of JSON per file.
    Json,
}

/// Prints files as one stream of YAML documents or, where there is a folder, writes them into it and prints their paths.
///
/// # Errors
/// When a file cannot be written. A reader that closes the stream early is no error.
pub fn emit(files: &[(String, String)], dir: Option<&Path>) -> anyhow::Result<()> {
    let Some(dir) = dir else {
        let stream = files
            .iter()
            .map(|(_, text)| text.as_str())
            .collect::<Vec<_>>()
            .join("---\n");
        return match std::io::stdout().write_all(stream.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.context("standard output"),
        };
    };
    for (name, text) in files {
        let path = dir.join(name);
        let folder = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(())
}
