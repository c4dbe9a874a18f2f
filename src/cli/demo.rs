//! `unikai demo`: a demonstration, step by step, of two teams that share a cluster on this machine.

mod picture;
mod screen;
mod story;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;

use self::picture::Picture;
use self::screen::Screen;
use self::story::{STEPS, Step};
use super::client::Client;
use super::dev::cluster::LocalCluster;
use super::dev::{NodeArgs, install};
use crate::cli::output::say;
use crate::devcluster::apiserver::Identity;
use crate::operator::settings::Settings;

/// How long a step may take.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Interval of reading the cluster's state.
const REFRESH: Duration = Duration::from_millis(200);

/// Arguments of `unikai demo`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs all steps.
///
/// # Errors
/// When the cluster does not start, or a step does not end in time.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    say!("Starting a cluster on this machine, with the operator in it …");
    let mut settings = Settings::embedded();
    settings.common.admission.gpu_sharing = true;
    let starting = LocalCluster::start(NodeArgs::default().specs(), Some(settings));
    let mut cluster = Box::pin(starting).await?;
    let told = match cluster.operator_url() {
        Some(url) => {
            let admin = Identity::admin();
            let operator = Client::direct(url, cluster.server().token(&admin));
            let client = cluster.server().client(&admin).await?;
            tokio::select! {
                told = tell(&client, &operator) => told,
                error = cluster.failed() => Err(error),
            }
        }
        None => Ok(()),
    };
    let stopped = cluster.stop().await;
    told.and(stopped)?;
    say!(
        "\nNow try it yourself: `unikai dev` keeps such a cluster up for kubectl and for `unikai queues`, `jobs`, `explain`, `top`."
    );
    Ok(ExitCode::SUCCESS)
}

async fn tell(client: &kube::Client, operator: &Client) -> anyhow::Result<()> {
    for (number, step) in (1..).zip(&STEPS) {
        say!("\n{number}. {}\n", step.sentence);
        install::yaml(client, step.manifests).await?;
        let mut screen = Screen::default();
        let last = follow(operator, step, &mut screen).await?;
        screen.show_last(&last).await?;
    }
    Ok(())
}

/// Draws the cluster until the step has ended; returns its last state.
async fn follow(operator: &Client, step: &Step, screen: &mut Screen) -> anyhow::Result<Picture> {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        if let Some(picture) = Picture::take(operator).await? {
            if (step.done)(&picture) {
                return Ok(picture);
            }
            screen.draw(&picture)?;
        }
        if Instant::now() > deadline {
            bail!("the step did not complete within {} s", MAX_WAIT.as_secs());
        }
        tokio::time::sleep(REFRESH).await;
    }
}
