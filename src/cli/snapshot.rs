//! `unikai snapshot`: fetches a snapshot of the cluster from a running operator, as one file for `unikai replay`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::download::{Download, Operator};
use crate::cli::output::say;
use crate::snapshot;

/// Timeout of the transfer.
const LONGEST: Duration = Duration::from_secs(310);

/// Arguments of `unikai snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "snapshot.zip")]
    out: PathBuf,

    /// The SchedulingShard [default: that of the default node pool]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    shard: Option<String>,

    #[command(flatten)]
    operator: Operator,
}

/// Whether it is a name of a Kubernetes object.
fn object_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("not the name of an object".to_owned())
    }
}

const EXAMPLES: &str = "\
Examples:
  kubectl port-forward -n kai-scheduler deployment/unikai 8080 &
  UNIKAI_TOKEN=$(kubectl create token -n monitoring maintainer) unikai snapshot
  unikai replay --explain snapshot.zip

Without a token that is named, the one of the pod's service account is shown. Its owner must be allowed to get
/get-snapshot, as with the ClusterRole unikai-maintainer.";

/// Runs the subcommand.
///
/// # Errors
/// When there is no token, the operator refuses or cannot be reached, or the snapshot is incomplete.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let shard = args.shard.map(|shard| format!("?shard={shard}")).unwrap_or_default();
    let wanted = Download {
        path: &format!("/get-snapshot{shard}"),
        out: &args.out,
        longest: LONGEST,
        verify: snapshot::verify,
    };
    let bytes = args.operator.download(&wanted).await?;
    say!("{}: {bytes} bytes", args.out.display());
    Ok(ExitCode::SUCCESS)
}
