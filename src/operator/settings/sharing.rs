//! Flags of shared GPUs: whether there are any, and how they are held and told.

use std::time::Duration;

use crate::components::fractions;

use super::super::lease::seconds;

/// Flags of shared GPUs.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Shared GPUs")]
pub struct SharingArgs {
    /// Admit pods that ask for a part of a GPU
    #[arg(long, env = "UNIKAI_GPU_SHARING", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub gpu_sharing: bool,

    /// Runtime class of pods that ask for a part of a GPU; empty: leave it alone
    #[arg(
        long,
        env = "UNIKAI_GPU_FRACTION_RUNTIME_CLASS_NAME",
        value_name = "CLASS",
        default_value = "nvidia"
    )]
    pub gpu_fraction_runtime_class_name: String,

    /// Image of the pods that reserve shared GPUs: that of unikai itself
    #[arg(long, env = "UNIKAI_RESERVATION_IMAGE", value_name = "IMAGE", default_value = fractions::IMAGE)]
    pub reservation_image: String,

    /// Runtime class of the pods that reserve shared GPUs; empty: none
    #[arg(
        long,
        env = "UNIKAI_RESERVATION_RUNTIME_CLASS_NAME",
        value_name = "CLASS",
        default_value = ""
    )]
    pub reservation_runtime_class_name: String,

    /// How long a pod that reserves a GPU may take to say which
    #[arg(long, env = "UNIKAI_RESERVATION_TIMEOUT", value_name = "SECONDS", default_value = "40", value_parser = seconds)]
    pub reservation_timeout: Duration,

    /// Name GPUs to containers as the container device interface does
    #[arg(long, env = "UNIKAI_CDI", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub cdi: bool,

    /// Tell containers that share a GPU the memory limit that the HAMi-core library in them enforces
    #[arg(long, env = "UNIKAI_HAMI_CORE", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub hami_core: bool,

    /// Leave KAI's full trail: a BindRequest for every pod, which stays as long as the pod, the condition PodBound and the event Bound
    #[arg(long, env = "UNIKAI_ALWAYS_BIND_REQUESTS", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub always_bind_requests: bool,
}

impl SharingArgs {
    /// The components' settings as far as these flags go.
    pub fn settings(self) -> fractions::Settings {
        fractions::Settings {
            image: self.reservation_image,
            runtime_class: Some(self.reservation_runtime_class_name).filter(|class| !class.is_empty()),
            patience: self.reservation_timeout,
            cdi: self.cdi,
            hami_core: self.hami_core,
            always_bind_requests: self.always_bind_requests,
        }
    }
}
