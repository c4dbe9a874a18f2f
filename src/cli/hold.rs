//! `unikai hold`: pod groups wait, even if they fit, until `unikai release`. Both change one annotation, with the caller's rights.

use std::fmt::Debug;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::client::{Cluster, Kubeconfig};
use super::output::say;
use crate::api::PodGroup;
use crate::api::hold::Hold;
use crate::api::names::annotation;

/// Arguments of `unikai hold`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub(super) groups: PodGroups,

    /// The reason, which is shown while the pod group waits
    #[arg(long, value_name = "TEXT", default_value = "true", hide_default_value = true, value_parser = reason)]
    reason: String,
}

/// Pod groups.
#[derive(Debug, clap::Args)]
pub struct PodGroups {
    /// The kind of the objects
    #[arg(value_enum)]
    kind: Kind,

    /// The names of the objects
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,

    /// The namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    #[command(flatten)]
    pub kubeconfig: Kubeconfig,
}

const EXAMPLES: &str = "\
Examples:
  unikai hold podgroup train -n team --reason 'waits for the data'
  unikai release podgroup train -n team

Pods that run stay. It takes the right to patch podgroups.scheduling.run.ai in the namespace.";

/// What can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A pod group
    #[value(alias = "pg", alias = "podgroups")]
    Podgroup,
}

/// Parses the reason for a hold.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let hold = Hold::parse(text).ok_or("says nothing; give a reason")?;
    Ok(hold.reason.unwrap_or_else(|| "true".to_owned()))
}

/// Runs the subcommand.
///
/// # Errors
/// When the API server cannot be reached or refuses.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let cluster = Cluster::open(&args.groups.kubeconfig).await?;
    let (api, namespace) = args.groups.api(&cluster);
    for name in &args.groups.names {
        let running = set(&api, name, Some(&args.reason)).await?.context("it is not there")?;
        let runs = running.status.and_then(|status| status.summary?.running);
        let runs = runs.filter(|runs| !runs.starts_with("0/"));
        let stay = runs.map_or_else(String::new, |runs| format!("; of its pods {runs} have a node and stay"));
        say!("podgroup {namespace}/{name} is held{stay}");
    }
    Ok(ExitCode::SUCCESS)
}

impl PodGroups {
    /// The API of their namespace, and its name.
    pub(super) fn api(&self, cluster: &Cluster) -> (Api<PodGroup>, String) {
        let namespace = self.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
        (Api::namespaced(cluster.api.clone(), &namespace), namespace)
    }
}

/// The API server refused a change, so it has no effect. After other errors it may have one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(String);

/// Holds an object for a reason, or releases it. Returns the object; `None` where there is none to release.
///
/// # Errors
/// When the API server cannot be reached, or refuses ([`Refused`]).
pub(super) async fn set<K>(api: &Api<K>, name: &str, reason: Option<&str>) -> anyhow::Result<Option<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    ensure!(!name.contains('/'), "{name}: not the name of an object");
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::HOLD: reason}}}));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 && reason.is_none() => Ok(None),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
            Err(Refused(format!("{kind} {name}: {}", status.message)).into())
        }
        Err(kube::Error::Api(status)) => anyhow::bail!("{kind} {name}: {}", status.message),
        Err(error) => Err(error).with_context(|| format!("{kind} {name}: the API server cannot be asked")),
    }
}
