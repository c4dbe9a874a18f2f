//! `unikai reserve`: the process of a reservation pod. It finds the GPU that the pod was given, writes its UUID into the pod's annotations, and holds
//! it until it is terminated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::names::{annotation, env};
use crate::components::fractions::OTHER_DEVICE;
use crate::operator::shutdown;

/// Arguments of `unikai reserve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pod that this process runs in
    #[arg(long, env = env::POD_NAME, value_name = "NAME")]
    pod_name: String,

    /// The namespace of that pod
    #[arg(long, env = env::POD_NAMESPACE, value_name = "NAME")]
    pod_namespace: String,

    /// The UUID of the GPU [default: the one that the container got]
    #[arg(long, env = "UNIKAI_RESERVE_DEVICE", value_name = "UUID")]
    device: Option<String>,

    /// Do not look for the GPU: it is fake, and the operator of the fake GPUs annotates the pod
    #[arg(long)]
    fake_gpu: bool,
}

/// Runs until SIGTERM.
///
/// # Errors
/// When the pod does not have exactly one GPU, or cannot be annotated.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let end = CancellationToken::new();
    let told = tokio::spawn(shutdown::on_signal(end.clone()));
    if let Some(ended) = end.run_until_cancelled(report(&args)).await {
        ended?;
        end.cancelled().await;
    }
    told.abort();
    Ok(ExitCode::SUCCESS)
}

/// Writes the pod's GPU into its annotation, unless it is written already.
async fn report(args: &Args) -> anyhow::Result<()> {
    if args.fake_gpu {
        return Ok(());
    }
    let config = kube::Config::incluster().context("this process does not run in a pod")?;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, &args.pod_namespace);
    let pod = pods.get(&args.pod_name).await.context("cannot read the pod")?;
    let annotations = pod.metadata.annotations.unwrap_or_default();
    let found = match &args.device {
        Some(device) => Ok(device.clone()),
        None => Places::of_this_container().find(),
    };
    let Some(device) = to_write(found, annotations.get(annotation::RESERVED_GPU))? else {
        return Ok(());
    };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::RESERVED_GPU: device}}}));
    pods.patch(&args.pod_name, &PatchParams::default(), &patch)
        .await
        .context("cannot annotate the pod")?;
    info!(device, "GPU reserved");
    Ok(())
}

/// What to write for the found GPU. After a restart it may be another one: the annotation stays, as the users of the GPU got the one that it
/// names, and the process ends with a message by which the operator recognises that they have lost it.
fn to_write(found: anyhow::Result<String>, says: Option<&String>) -> anyhow::Result<Option<String>> {
    match (found, says) {
        (Ok(device), Some(says)) if device == *says => {
            info!(device, "the pod has the annotation with its GPU already");
            Ok(None)
        }
        (Ok(device), Some(says)) => {
            bail!("{OTHER_DEVICE}: {says} is reserved, and {device} is here")
        }
        (Err(error), Some(says)) => {
            warn!(error = %format!("{error:#}"), says, "the GPU cannot be found again; the annotation of the pod is kept");
            Ok(None)
        }
        (found, None) => found.map(Some),
    }
}

/// Where to look for the GPU.
struct Places {
    /// The variable of visible devices.
    visible: String,
    /// The driver's folder of all GPUs of the machine, inside or outside of the container.
    driver: PathBuf,
    /// The container's device files, `nvidia<minor number>` for each of its GPUs.
    devices: PathBuf,
}

impl Places {
    fn of_this_container() -> Self {
        Self {
            visible: std::env::var(env::NVIDIA_VISIBLE_DEVICES).unwrap_or_default(),
            driver: "/proc/driver/nvidia/gpus".into(),
            devices: "/dev".into(),
        }
    }

    /// The UUID of the container's GPU: by the environment, else by its device file, else the only one of the driver.
    fn find(&self) -> anyhow::Result<String> {
        let named = self.named();
        let found = if named.is_empty() { self.by_device() } else { named };
        match <[String; 1]>::try_from(found) {
            Ok([device]) => Ok(device),
            Err(devices) => bail!("found {} devices, 1 was expected", devices.len()),
        }
    }

    /// The UUIDs that the device plugin names in the environment, or as files in a folder that the environment names; none if it names the devices
    /// otherwise, or passes them by CDI (`void`).
    fn named(&self) -> Vec<String> {
        let mounted = names_in(Path::new(&self.visible)).filter(|_| self.visible.starts_with('/'));
        let uuid = |device: &str| device.rsplit('=').next().unwrap_or_default().trim().to_owned();
        let devices = self.visible.split(',').map(uuid).chain(mounted);
        devices
            .filter(|device| device.starts_with("GPU-") || device.starts_with("MIG-"))
            .collect()
    }

    /// The UUIDs of the driver's GPUs with a device file in the container; of all if there are no such files.
    fn by_device(&self) -> Vec<String> {
        let minor = |name: String| name.strip_prefix("nvidia")?.parse::<u32>().ok();
        let given: BTreeSet<u32> = names_in(&self.devices).filter_map(minor).collect();
        let listed = listed(&self.driver).into_iter();
        let present = listed.filter(|gpu| given.is_empty() || gpu.minor.is_some_and(|minor| given.contains(&minor)));
        present.map(|gpu| gpu.uuid).collect()
    }
}

/// A GPU as the driver lists it.
struct Listed {
    uuid: String,
    minor: Option<u32>,
}

/// The GPUs in the driver's folder, which holds a folder with a file `information` for each.
fn listed(folder: &Path) -> Vec<Listed> {
    let texts = names_in(folder).filter_map(|name| std::fs::read_to_string(folder.join(name).join("information")).ok());
    let gpu = |text: String| {
        let value = |key: &str| {
            text.lines()
                .find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
        };
        Some(Listed {
            uuid: value("GPU UUID:")?,
            minor: value("Device Minor:").and_then(|minor| minor.parse().ok()),
        })
    };
    texts.filter_map(gpu).collect()
}

/// The names in a folder; none if it cannot be read.
fn names_in(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two GPUs, with the container's device files and environment.
    fn found(devices: &[&str], visible: &str) -> Result<String, String> {
        let root = tempfile::tempdir().unwrap();
        let (driver, dev) = (root.path().join("gpus"), root.path().join("dev"));
        std::fs::create_dir(&dev).unwrap();
        for (slot, minor, uuid) in [("0000:07:00.0", 0, "GPU-a"), ("0000:0f:00.0", 1, "GPU-b")] {
            std::fs::create_dir_all(driver.join(slot)).unwrap();
            let text = format!("Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
            std::fs::write(driver.join(slot).join("information"), text).unwrap();
        }
        for device in devices {
            std::fs::write(dev.join(device), "").unwrap();
        }
        let visible = visible.replace("ROOT", &root.path().display().to_string());
        if visible.starts_with('/') {
            std::fs::create_dir(&visible).unwrap();
            std::fs::write(format!("{visible}/GPU-b"), "").unwrap();
        }
        let places = Places {
            visible,
            driver,
            devices: dev,
        };
        places.find().map_err(|error| error.to_string())
    }

    #[test]
    fn the_device_is_taken_from_the_environment() {
        let ok = |uuid: &str| Ok(uuid.to_owned());
        assert_eq!(found(&["nvidia1"], "GPU-6e0e"), ok("GPU-6e0e"));
        assert_eq!(found(&[], "k8s.device-plugin.nvidia.com/gpu=GPU-6e0e"), ok("GPU-6e0e"));
        assert_eq!(found(&[], "ROOT/mounted"), ok("GPU-b"));
        assert_eq!(
            found(&[], "GPU-a,GPU-b"),
            Err("found 2 devices, 1 was expected".to_owned())
        );
    }

    #[test]
    fn without_a_usable_environment_the_device_files_name_the_device() {
        for visible in ["void", "", "all", "none", "0"] {
            let others = ["nvidiactl", "nvidia-uvm", "nvidia-modeset", "null", "nvidia1"];
            assert_eq!(found(&others, visible), Ok("GPU-b".to_owned()), "{visible}");
        }
        let two = found(&["nvidia0", "nvidia1"], "void");
        assert_eq!(two, Err("found 2 devices, 1 was expected".to_owned()));
        let other = found(&["nvidia7"], "void");
        assert_eq!(other, Err("found 0 devices, 1 was expected".to_owned()));
        let none = found(&[], "void");
        assert_eq!(
            none,
            Err("found 2 devices, 1 was expected".to_owned()),
            "the driver lists both"
        );
    }

    #[test]
    fn a_restart_with_another_gpu_is_an_error() {
        let (a, b) = ("GPU-a".to_owned(), "GPU-b".to_owned());
        let lost = || Err(anyhow::anyhow!("found 0 devices"));
        assert_eq!(to_write(Ok(a.clone()), None).unwrap(), Some(a.clone()));
        assert_eq!(to_write(Ok(a.clone()), Some(&a)).unwrap(), None);
        assert_eq!(
            to_write(Ok(b), Some(&a)).unwrap_err().to_string(),
            "the container has another GPU than before: GPU-a is reserved, and GPU-b is here"
        );
        assert_eq!(to_write(lost(), Some(&a)).unwrap(), None);
        to_write(lost(), None).unwrap_err();
    }

    /// Without a cluster, anything else fails.
    #[tokio::test]
    async fn a_fake_gpu_is_not_looked_for() {
        let args = Args {
            pod_name: "p".to_owned(),
            pod_namespace: "ns".to_owned(),
            device: None,
            fake_gpu: true,
        };
        report(&args).await.unwrap();
    }

    #[test]
    fn without_a_driver_no_device_is_found() {
        assert!(listed(Path::new("/nowhere")).is_empty());
    }
}
