//! Flags of shared GPUs.

use std::time::Duration;

use crate::api::names::object;
use crate::components::gpu_operator::Cdi;
use crate::components::pods::{Account, OwnPods};
use crate::components::{fractions, scaleup};

use super::super::lease::seconds;

/// Flags of shared GPUs.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Shared GPUs")]
pub struct SharingArgs {
    /// Admit pods that request a part of a GPU
    #[arg(long, env = "UNIKAI_GPU_SHARING", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub gpu_sharing: bool,

    /// Runtime class that pods get which request a part of a GPU; empty: none is set
    #[arg(
        long,
        env = "UNIKAI_GPU_FRACTION_RUNTIME_CLASS_NAME",
        value_name = "CLASS",
        default_value = "nvidia"
    )]
    pub gpu_fraction_runtime_class_name: String,

    /// Image of reservation pods: an image with unikai
    #[arg(long, env = "UNIKAI_RESERVATION_IMAGE", value_name = "IMAGE", default_value = fractions::IMAGE)]
    pub reservation_image: String,

    /// Pull secret of reservation pods, scaling pods and the NUMA exporter's pods, beside those that Config names; it must exist in each of their namespaces
    #[arg(
        long = "image-pull-secret",
        env = "UNIKAI_IMAGE_PULL_SECRETS",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub image_pull_secrets: Vec<String>,

    /// Namespace of reservation pods, which hold shared GPUs; its rights: `unikai manifests --gpu-sharing` with the same flag
    #[arg(long, env = "UNIKAI_RESERVATION_NAMESPACE", value_name = "NAMESPACE", default_value = object::RESERVATION_NAMESPACE)]
    pub reservation_namespace: String,

    /// Service account of reservation pods
    #[arg(long, env = "UNIKAI_RESERVATION_SERVICE_ACCOUNT", value_name = "NAME", default_value = object::RESERVATION_SERVICE_ACCOUNT)]
    pub reservation_service_account: String,

    /// Label `app` of reservation pods
    #[arg(long, env = "UNIKAI_RESERVATION_APP_LABEL", value_name = "VALUE", default_value = object::RESERVATION_APP)]
    pub reservation_app_label: String,

    /// Namespace of scaling pods; its rights: `unikai manifests --gpu-sharing` with the same flag
    #[arg(long, env = "UNIKAI_SCALE_ADJUST_NAMESPACE", value_name = "NAMESPACE", default_value = object::SCALE_ADJUST_NAMESPACE)]
    pub scale_adjust_namespace: String,

    /// Service account of scaling pods
    #[arg(long, env = "UNIKAI_SCALE_ADJUST_SERVICE_ACCOUNT", value_name = "NAME", default_value = object::SCALE_ADJUST_SERVICE_ACCOUNT)]
    pub scale_adjust_service_account: String,

    /// Runtime class of reservation pods; empty: none
    #[arg(
        long,
        env = "UNIKAI_RESERVATION_RUNTIME_CLASS_NAME",
        value_name = "CLASS",
        default_value = ""
    )]
    pub reservation_runtime_class_name: String,

    /// How long a bind waits until the reservation pod reports its GPU
    #[arg(long, env = "UNIKAI_RESERVATION_TIMEOUT", value_name = "SECONDS", default_value = "40", value_parser = seconds)]
    pub reservation_timeout: Duration,

    /// Give GPUs to containers by names of the Container Device Interface (CDI); `auto`: if the GPU operator's ClusterPolicy enables CDI
    #[arg(long, env = "UNIKAI_CDI", value_name = "MODE", default_value = "auto", num_args = 0..=1, default_missing_value = "true")]
    pub cdi: Cdi,

    /// Set the GPU memory limit of containers that share a GPU, for the HAMi-core library to enforce
    #[arg(long, env = "UNIKAI_HAMI_CORE", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub hami_core: bool,

    /// Create scaling pods, which request whole GPUs, so that a cluster autoscaler sees the demand for shared GPUs
    #[arg(long, env = "UNIKAI_CLUSTER_AUTOSCALING", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub cluster_autoscaling: bool,

    /// The fraction of a GPU that scaling pods assume for a pod that requests GPU memory
    #[arg(long, env = "UNIKAI_GPU_MEMORY_TO_FRACTION_RATIO", value_name = "PART", default_value = "0.1", value_parser = hundredths)]
    pub gpu_memory_to_fraction_ratio: i64,

    /// Write all objects that KAI writes: a BindRequest for every pod, which is kept as long as the pod, the condition PodBound and the event Bound
    #[arg(long, env = "UNIKAI_ALWAYS_BIND_REQUESTS", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub always_bind_requests: bool,
}

impl SharingArgs {
    /// The settings of scaling pods.
    pub fn scaling(&self) -> scaleup::Settings {
        scaleup::Settings {
            on: self.cluster_autoscaling,
            image: self.reservation_image.clone(),
            pull_secrets: self.image_pull_secrets.clone(),
            memory_hundredths: self.gpu_memory_to_fraction_ratio,
            ..scaleup::Settings::default()
        }
    }

    /// The service accounts of the operator's own pods.
    pub fn own_pods(&self) -> OwnPods {
        OwnPods {
            reservation: Account::new(&self.reservation_namespace, &self.reservation_service_account),
            scaling: Account::new(&self.scale_adjust_namespace, &self.scale_adjust_service_account),
        }
    }

    /// The settings of reservation pods and of shared GPUs.
    pub fn settings(self) -> fractions::Settings {
        fractions::Settings {
            image: self.reservation_image,
            app_label: self.reservation_app_label,
            runtime_class: Some(self.reservation_runtime_class_name).filter(|class| !class.is_empty()),
            max_wait: self.reservation_timeout,
            cdi: self.cdi,
            hami_core: self.hami_core,
            always_bind_requests: self.always_bind_requests,
            pull_secrets: self.image_pull_secrets,
            ..fractions::Settings::default()
        }
    }
}

/// A portion in hundredths, at least one, as in Config.
fn hundredths(text: &str) -> Result<i64, String> {
    let part = text.parse::<f64>().ok().filter(|part| *part > 0.0 && *part <= 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "at most 100")]
    let hundredths = part.map(|part| (part * 100.0).round() as i64);
    hundredths
        .map(|hundredths| hundredths.max(1))
        .ok_or_else(|| "must be more than 0 and at most 1".to_owned())
}
