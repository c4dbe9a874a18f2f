//! `unikai reserve`: the process of a reservation pod. It finds the one GPU that the pod was given, writes its UUID into the pod's
//! annotations, and holds it until it is told to end.

use std::process::ExitCode;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::names::{annotation, env};
use crate::operator::shutdown;

/// Where the driver lists the GPUs that a container sees.
const DRIVER: &str = "/proc/driver/nvidia/gpus";

/// Arguments of `unikai reserve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pod that this process runs in
    #[arg(long, env = env::POD_NAME, value_name = "NAME")]
    pod_name: String,

    /// Its namespace
    #[arg(long, env = env::POD_NAMESPACE, value_name = "NAME")]
    pod_namespace: String,

    /// The UUID of the GPU, where it is not to be looked for
    #[arg(long, env = "UNIKAI_RESERVE_DEVICE", value_name = "UUID")]
    device: Option<String>,
}

/// Runs until SIGTERM.
///
/// # Errors
/// When the pod does not have exactly one GPU, or cannot be annotated.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let end = CancellationToken::new();
    let told = tokio::spawn(shutdown::on_signal(end.clone()));
    let config = kube::Config::incluster().context("this process does not run in a pod")?;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, &args.pod_namespace);
    if let Some(ended) = end.run_until_cancelled(report(&pods, &args)).await {
        ended?;
        end.cancelled().await;
    }
    told.abort();
    Ok(ExitCode::SUCCESS)
}

/// Writes down which GPU the pod has, unless that is written already.
async fn report(pods: &Api<Pod>, args: &Args) -> anyhow::Result<()> {
    let pod = pods.get(&args.pod_name).await.context("cannot read the pod")?;
    let annotations = pod.metadata.annotations.unwrap_or_default();
    if let Some(device) = annotations.get(annotation::RESERVED_GPU) {
        info!(device, "the pod says already which GPU it has");
        return Ok(());
    }
    let device = match &args.device {
        Some(device) => device.clone(),
        None => find()?,
    };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::RESERVED_GPU: device}}}));
    pods.patch(&args.pod_name, &PatchParams::default(), &patch)
        .await
        .context("cannot annotate the pod")?;
    info!(device, "GPU reserved");
    Ok(())
}

/// The UUID of the one GPU: as the driver's library says, else the container's environment, else the driver's files.
fn find() -> anyhow::Result<String> {
    let visible = std::env::var(env::NVIDIA_VISIBLE_DEVICES).unwrap_or_default();
    let devices = match by_library() {
        Some(devices) => devices,
        None => Some(named(&visible))
            .filter(|devices| !devices.is_empty())
            .unwrap_or_else(|| by_driver(DRIVER)),
    };
    match <[String; 1]>::try_from(devices) {
        Ok([device]) => Ok(device),
        Err(devices) => bail!("found {} devices, 1 was expected", devices.len()),
    }
}

/// What NVML says; `None` where it cannot be asked.
#[cfg(feature = "nvml")]
fn by_library() -> Option<Vec<String>> {
    let nvml = nvml_wrapper::Nvml::init()
        .inspect_err(|error| info!(%error, "NVML cannot be asked"))
        .ok()?;
    let count = nvml.device_count().ok()?;
    (0..count)
        .map(|index| nvml.device_by_index(index)?.uuid())
        .collect::<Result<_, _>>()
        .ok()
}

#[cfg(not(feature = "nvml"))]
fn by_library() -> Option<Vec<String>> {
    None
}

/// The UUIDs that the device plugin or the container device interface names in the environment; none if it names them otherwise.
fn named(visible: &str) -> Vec<String> {
    let uuid = |device: &str| device.rsplit('=').next().unwrap_or_default().trim().to_owned();
    let devices = visible.split(',').map(uuid);
    devices
        .filter(|device| device.starts_with("GPU-") || device.starts_with("MIG-"))
        .collect()
}

/// The UUIDs in the driver's files.
fn by_driver(folder: &str) -> Vec<String> {
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = folders.filter_map(|folder| std::fs::read_to_string(folder.path().join("information")).ok());
    let uuid = |text: String| {
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix("GPU UUID:")?.trim().to_owned()))
    };
    texts.filter_map(uuid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_counts_where_it_names_devices() {
        assert_eq!(named("GPU-6e0e"), ["GPU-6e0e"]);
        assert_eq!(named("k8s.device-plugin.nvidia.com/gpu=GPU-6e0e"), ["GPU-6e0e"]);
        assert_eq!(named("GPU-a,GPU-b").len(), 2);
        for nothing in ["", "all", "void", "none", "0"] {
            assert!(named(nothing).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn the_driver_lists_its_devices() {
        let folder = tempfile::tempdir().unwrap();
        let gpu = folder.path().join("0000:07:00.0");
        std::fs::create_dir(&gpu).unwrap();
        std::fs::write(
            gpu.join("information"),
            "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-6e0e\n",
        )
        .unwrap();
        assert_eq!(by_driver(&folder.path().display().to_string()), ["GPU-6e0e"]);
        assert!(by_driver("/nowhere").is_empty());
    }
}
