//! `unikai snapshot`: fetches a snapshot of the cluster from a running operator, as one file for `unikai replay`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use axum::body::Body;
use futures::StreamExt;
use http::{Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::client::Token;
use crate::cli::output::say;
use crate::snapshot;

/// Path of a pod's service account token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Timeout of the transfer.
const LONGEST: Duration = Duration::from_secs(310);
/// Timeout without data.
const SILENCE: Duration = Duration::from_secs(30);
/// Characters of an error's body in messages.
const REFUSAL_MAX: usize = 4 << 10;

/// Arguments of `unikai snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "snapshot.zip")]
    out: PathBuf,

    /// URL of the operator's HTTP server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,

    /// The SchedulingShard [default: that of the default node pool]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    shard: Option<String>,

    #[command(flatten)]
    token: Token,
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
    let token = token(&args)?;
    let fetched = tokio::time::timeout(LONGEST, fetch(&args, token.trim())).await;
    let bytes = fetched.unwrap_or_else(|_| Err(anyhow::anyhow!("the snapshot takes too long")))?;
    say!("{}: {bytes} bytes", args.out.display());
    Ok(ExitCode::SUCCESS)
}

fn token(args: &Args) -> anyhow::Result<String> {
    if let Some(token) = args.token.named()? {
        return Ok(token);
    }
    std::fs::read_to_string(SERVICE_ACCOUNT_TOKEN)
        .with_context(|| format!("no token; name one with --token-file or UNIKAI_TOKEN: {SERVICE_ACCOUNT_TOKEN}"))
}

async fn fetch(args: &Args, token: &str) -> anyhow::Result<u64> {
    let mut url = format!("{}/get-snapshot", args.url.trim_end_matches('/'));
    if let Some(shard) = &args.shard {
        url = format!("{url}?shard={shard}");
    }
    ensure!(
        url.starts_with("http://"),
        "--url {}: the operator serves plain HTTP; not of the form http://HOST:PORT",
        args.url
    );
    let request = Request::get(&url)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::empty())
        .with_context(|| format!("--url {}", args.url))?;
    let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client
        .request(request)
        .await
        .with_context(|| format!("{url} cannot be reached"))?;
    let status = answer.status();
    let body = Body::new(answer.into_body());
    if status != StatusCode::OK {
        let text = axum::body::to_bytes(body, REFUSAL_MAX).await.unwrap_or_default();
        bail!("{url}: {status}: {}", String::from_utf8_lossy(&text).trim());
    }
    let mut part = args.out.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = write(body, &part).await.and_then(|bytes| {
        snapshot::verify(&part)?;
        std::fs::rename(&part, &args.out).with_context(|| args.out.display().to_string())?;
        Ok(bytes)
    });
    if written.is_err() {
        // An incomplete snapshot is useless; an error of its removal adds nothing.
        let _ = std::fs::remove_file(&part);
    }
    written
}

async fn write(body: Body, part: &Path) -> anyhow::Result<u64> {
    let about = || part.display().to_string();
    let mut file = io::BufWriter::new(File::create(part).with_context(about)?);
    let (mut chunks, mut bytes) = (body.into_data_stream(), 0);
    while let Some(chunk) = tokio::time::timeout(SILENCE, chunks.next())
        .await
        .context("no more data is received")?
    {
        let chunk = chunk.context("the operator closed the connection")?;
        bytes += chunk.len() as u64;
        file.write_all(&chunk).with_context(about)?;
    }
    file.flush().with_context(about)?;
    Ok(bytes)
}
