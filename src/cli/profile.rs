//! `unikai profile`: records a CPU profile of a running operator, as one file for `go tool pprof`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use flate2::read::GzDecoder;

use super::download::{Download, Operator};
use crate::cli::output::say;
use crate::operator::http::PROFILE;
use crate::operator::profile::{SECONDS, SECONDS_MAX};

/// Time for what follows the recording: names of functions are looked up, and the file is sent.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// Arguments of `unikai profile`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "profile.pb.gz")]
    out: PathBuf,

    /// How long to record, in seconds
    #[arg(short, long, value_name = "NUMBER", default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,

    #[command(flatten)]
    operator: Operator,
}

const EXAMPLES: &str = "\
Examples:
  kubectl port-forward -n kai-scheduler deployment/unikai 8080 &
  UNIKAI_TOKEN=$(kubectl create token -n monitoring maintainer) unikai profile --seconds 10
  go tool pprof -top profile.pb.gz
  go tool pprof -http localhost:8081 profile.pb.gz      a flame graph in a browser

Without a token that is named, the one of the pod's service account is shown. Its owner must be allowed to get
/debug/pprof/profile, as with the ClusterRole unikai-maintainer.";

/// Runs the subcommand.
///
/// # Errors
/// When there is no token, the operator refuses or cannot be reached, or the profile is incomplete.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let wanted = Download {
        path: &format!("{PROFILE}?seconds={}", args.seconds),
        out: &args.out,
        longest: Duration::from_secs(args.seconds) + AFTERWARDS,
        verify: is_complete,
    };
    let bytes = args.operator.download(&wanted).await?;
    say!("{}: {bytes} bytes", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// Whether the checksum at the file's end is right.
fn is_complete(file: &Path) -> anyhow::Result<()> {
    let about = || file.display().to_string();
    let mut profile = GzDecoder::new(File::open(file).with_context(about)?);
    io::copy(&mut profile, &mut io::sink()).with_context(about)?;
    Ok(())
}
