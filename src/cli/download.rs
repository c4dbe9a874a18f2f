//! Files that a running operator sends. A file gets its name when it is complete.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use axum::body::Body;
use futures::StreamExt;
use http::{Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::client::Token;

/// Path of a pod's service account token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Timeout without data.
const SILENCE: Duration = Duration::from_secs(30);
/// Characters of an error's body in messages.
const REFUSAL_MAX: usize = 4 << 10;

/// Where the operator is.
#[derive(Debug, clap::Args)]
pub struct Operator {
    /// URL of the operator's HTTP server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,

    #[command(flatten)]
    token: Token,
}

/// A file of the operator.
pub struct Download<'a> {
    /// Its path in the operator, with parameters.
    pub path: &'a str,
    /// Where it is written.
    pub out: &'a Path,
    /// Timeout of the whole.
    pub longest: Duration,
    /// Checks that the file is complete.
    pub verify: fn(&Path) -> anyhow::Result<()>,
}

impl Operator {
    /// Fetches a file, and returns its size.
    ///
    /// # Errors
    /// When there is no token, the operator refuses or cannot be reached, or the file is incomplete.
    pub async fn download(&self, wanted: &Download<'_>) -> anyhow::Result<u64> {
        let token = self.token()?;
        let fetched = tokio::time::timeout(wanted.longest, self.fetch(wanted, token.trim())).await;
        fetched.unwrap_or_else(|_| Err(anyhow!("{} takes too long", wanted.path)))
    }

    fn token(&self) -> anyhow::Result<String> {
        if let Some(token) = self.token.named()? {
            return Ok(token);
        }
        std::fs::read_to_string(SERVICE_ACCOUNT_TOKEN)
            .with_context(|| format!("no token; name one with --token-file or UNIKAI_TOKEN: {SERVICE_ACCOUNT_TOKEN}"))
    }

    async fn fetch(&self, wanted: &Download<'_>, token: &str) -> anyhow::Result<u64> {
        let url = format!("{}{}", self.url.trim_end_matches('/'), wanted.path);
        ensure!(
            url.starts_with("http://"),
            "--url {}: the operator serves plain HTTP; not of the form http://HOST:PORT",
            self.url
        );
        let request = Request::get(&url)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Body::empty())
            .with_context(|| format!("--url {}", self.url))?;
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
        let mut part = wanted.out.to_owned().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let written = write(body, &part).await.and_then(|bytes| {
            (wanted.verify)(&part)?;
            std::fs::rename(&part, wanted.out).with_context(|| wanted.out.display().to_string())?;
            Ok(bytes)
        });
        if written.is_err() {
            // An incomplete file is useless; an error of its removal adds nothing.
            let _ = std::fs::remove_file(&part);
        }
        written
    }
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
