//! `unikai numa-exporter`: the process of the DaemonSet `numa-placement-exporter`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::run;
use crate::api::duration;
use crate::api::names::env;
use crate::numa_exporter::{self, Settings, WATCH};
use crate::operator::client::{self, Reach, Timeouts};
use crate::operator::shutdown;

/// Timeout of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// Arguments of `unikai numa-exporter`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node that this process runs on
    #[arg(long, env = env::NODE_NAME, value_name = "NAME")]
    node_name: String,

    /// The socket of the kubelet's pod resources API
    #[arg(long, value_name = "FILE", default_value = numa_exporter::kubelet::SOCKET)]
    podresources_socket: PathBuf,

    /// The path of the host's sysfs
    #[arg(long, value_name = "FOLDER", default_value = "/sys")]
    sysfs_root: PathBuf,

    /// The interval between queries of the kubelet
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    poll_interval: Duration,

    /// The interval at which written annotations are compared with those of the pods; 0 = never
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = span)]
    drift_resync_interval: Duration,

    /// The kubeconfig file [default: the service account of the pod that this process runs in]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig to use [default: its current one]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
}

/// Parses a duration in Go's format.
fn span(text: &str) -> Result<Duration, String> {
    let span = duration::parse_go(text).map_err(|error| error.to_string())?;
    Duration::try_from(span).map_err(|_| "must not be negative".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let least = numa_exporter::POLL_LEAST;
    match span(text)? {
        short if short < least => Err(format!("must be at least {} ms", least.as_millis())),
        span => Ok(span),
    }
}

/// Runs until SIGTERM.
///
/// # Errors
/// When the node's CPUs or the cluster's configuration cannot be read.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!args.node_name.is_empty(), "--node-name is empty");
    let config = run::cluster(args.kubeconfig, args.context).await?;
    let timeouts = Timeouts {
        request: REQUEST,
        watch: Duration::from_secs(u64::from(WATCH)) + REQUEST,
    };
    let clients = client::connect(Reach::Network(Box::new(config)), timeouts, REQUEST)?;
    let settings = Settings {
        node: args.node_name,
        socket: args.podresources_socket,
        sysfs: args.sysfs_root,
        poll: args.poll_interval,
        resync: Some(args.drift_resync_interval).filter(|span| !span.is_zero()),
    };
    let end = CancellationToken::new();
    let told = shutdown::on_signal(end.clone());
    tokio::select! {
        ended = numa_exporter::run(settings, clients.reads, clients.watches, end) => ended?,
        never = told => { never.context("cannot listen to signals")?; }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::{self, numa_daemon_set};

    #[test]
    fn the_daemon_set_runs_this_command() {
        use clap::Parser as _;

        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let set = numa_daemon_set::daemon_set(&components::Settings::default(), None);
        let pod = set.spec.unwrap().template.spec.unwrap();
        let args = pod.containers[0].args.clone().unwrap();
        let line = Line::try_parse_from(args.iter().map(String::as_str).chain(["--node-name=a"])).unwrap();
        assert_eq!(line.args.poll_interval, Duration::from_secs(1));
        assert_eq!(line.args.drift_resync_interval, Duration::from_secs(60));
        assert_eq!(
            line.args.podresources_socket.to_str(),
            Some(numa_exporter::kubelet::SOCKET)
        );
    }

    #[test]
    fn durations_are_go_durations() {
        assert_eq!(span("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("0"), Ok(Duration::ZERO));
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        for wrong in ["", "1", "-1s", "soon"] {
            span(wrong).unwrap_err();
        }
        for wrong in ["0", "1ms", "99ms"] {
            interval(wrong).unwrap_err();
        }
    }
}
