//! Output: generated YAML as a stream of documents or as files, other answers in one of two formats.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// Prints a line. If standard output is closed, the command continues.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}
pub(super) use say;

/// Whether an error is that of a closed standard output, as in `unikai demo | head`.
#[must_use]
pub fn nobody_reads(error: &anyhow::Error) -> bool {
    let of_pipe = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(of_pipe))
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One line of JSON per file.
    Json,
}

/// Prints files as one stream of YAML documents or, with a folder, writes them into it and prints their paths.
///
/// # Errors
/// When a file cannot be written, or standard output is gone.
pub fn emit(files: &[(String, String)], dir: Option<&Path>) -> anyhow::Result<()> {
    let Some(dir) = dir else {
        let stream = files
            .iter()
            .map(|(_, text)| text.as_str())
            .collect::<Vec<_>>()
            .join("---\n");
        return std::io::stdout()
            .write_all(stream.as_bytes())
            .context("standard output");
    };
    for (name, text) in files {
        let path = dir.join(name);
        let folder = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        say!("{}", path.display());
    }
    Ok(())
}
