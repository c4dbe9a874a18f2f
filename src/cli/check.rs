//! `unikai check`: checks an installation with the rights of the caller. First the objects are read (`seen`), then checked (`judge`, pure). Nothing
//! is changed.

mod judge;
mod seen;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::client::{self, Kubeconfig};
use crate::api::names::object;
use judge::{Mark, Section};
use seen::Installation;

/// Timeout of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// Arguments of `unikai check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The operator's namespace
    #[arg(long, value_name = "NAMESPACE", default_value = object::NAMESPACE)]
    namespace: String,

    /// Output format: text, or one JSON object
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,

    // Last, since its heading is that of all flags after it.
    #[command(flatten)]
    kubeconfig: Kubeconfig,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Sections with a mark for each line, and remedies.
    Text,
    /// One JSON object.
    Json,
}

const EXAMPLES: &str = "\
Examples:
  unikai check
  unikai check -o json | jq '.sections[].findings[] | select(.mark != \"ok\")'

Marks: √ in order, ‼ a warning, × a failure. The exit status is 1 if there is a failure.";

/// Runs the subcommand. The status is 1 if something is wrong; warnings do not count.
///
/// # Errors
/// When the API server does not answer, or standard output is gone.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = client::api_server(&args.kubeconfig, REQUEST).await?;
    let installation = Box::pin(Installation::look(&client, &args.namespace)).await?;
    let sections = judge::judge(&installation, Timestamp::now());
    let marks = || {
        sections
            .iter()
            .flat_map(|section| &section.findings)
            .map(|found| found.mark)
    };
    let failed = marks().any(|mark| mark == Mark::Failed);
    let text = match args.output {
        Format::Text => text(&sections, std::io::stdout().is_terminal()),
        Format::Json => format!("{}\n", json!({"ok": !failed, "sections": sections})),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(sections: &[Section], colours: bool) -> String {
    let mut text = String::new();
    let mut counts = [0, 0];
    for Section { name, findings } in sections {
        text += &format!("{name}\n{}\n", "-".repeat(name.len()));
        for found in findings {
            let (sign, colour) = match found.mark {
                Mark::Ok => ("√", 32),
                Mark::Warning => ("‼", 33),
                Mark::Failed => ("×", 31),
            };
            let sign = if colours {
                format!("\x1b[{colour}m{sign}\x1b[0m")
            } else {
                sign.to_owned()
            };
            text += &format!("{sign} {}\n", found.says);
            if let Some(remedy) = &found.remedy {
                text += &format!("    {remedy}\n");
            }
            counts[0] += usize::from(found.mark == Mark::Failed);
            counts[1] += usize::from(found.mark == Mark::Warning);
        }
        text.push('\n');
    }
    let [failures, warnings] = counts;
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    text += &format!(
        "{failures} failure{}, {warnings} warning{}\n",
        plural(failures),
        plural(warnings)
    );
    text
}

#[cfg(test)]
mod tests;
