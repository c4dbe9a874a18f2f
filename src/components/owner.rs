//! The owner of the objects that we create: the ClusterRole of the manifests. So they are deleted when unikai is uninstalled.

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource, ResourceExt};
use tracing::{info, warn};

use super::Context;
use crate::api::names::object;

/// The owner of an object that is to be created.
pub enum Owner {
    /// Not looked up yet.
    Unknown,
    /// There is none and was none: unikai was not installed by the manifests.
    Absent,
    /// It exists.
    Found(OwnerReference),
    /// It was deleted: nothing is created any more.
    Gone,
}

impl Owner {
    /// Whether objects may be written.
    #[must_use]
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Absent | Self::Found(_))
    }

    /// The owner reference for objects.
    #[must_use]
    pub fn reference(&self) -> Option<&OwnerReference> {
        match self {
            Self::Found(reference) => Some(reference),
            Self::Unknown | Self::Absent | Self::Gone => None,
        }
    }

    /// Looks the ClusterRole up. `owned`: an existing object has an owner reference, so there was a ClusterRole. `what`: what ends without the ClusterRole, for the log.
    pub async fn look_up(self, context: &Context, owned: bool, what: &str) -> Self {
        let api: Api<ClusterRole> = Api::all(context.reads.clone());
        let was_there = owned || matches!(self, Self::Found(_) | Self::Gone);
        let nothing = if was_there { Self::Gone } else { Self::Absent };
        match api.get_metadata_opt(object::OPERATOR).await {
            Ok(Some(role)) => Self::Found(OwnerReference {
                api_version: ClusterRole::api_version(&()).into_owned(),
                kind: ClusterRole::kind(&()).into_owned(),
                name: object::OPERATOR.to_owned(),
                uid: role.uid().unwrap_or_default(),
                ..OwnerReference::default()
            }),
            Ok(None) => {
                if was_there && !matches!(self, Self::Gone) {
                    info!("our ClusterRole was deleted: no {what} any more");
                }
                nothing
            }
            // Without the ClusterRole there is no right to read it either.
            Err(kube::Error::Api(status)) if status.code == 403 => nothing,
            Err(error) => {
                warn!(%error, "our ClusterRole cannot be looked up; trying again");
                self
            }
        }
    }

    /// Whether our ClusterRole owns an object.
    #[must_use]
    pub fn has<K: Resource>(object: &K) -> bool {
        let mut owners = object.meta().owner_references.iter().flatten();
        owners.any(|owner| owner.kind == ClusterRole::kind(&()) && owner.name == object::OPERATOR)
    }
}
