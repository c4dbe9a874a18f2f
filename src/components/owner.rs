//! What the objects that we make go with: the ClusterRole of the manifests. Whoever takes that away takes us away.

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource, ResourceExt};
use tracing::{info, warn};

use super::Context;
use crate::api::names::object;

/// The owner of an object that is to be made.
pub enum Owner {
    /// The API server has not said yet.
    Unasked,
    /// There is none, and was none: we were installed in another way.
    Absent,
    /// This one.
    Found(OwnerReference),
    /// It was there: nothing is made any more.
    Gone,
}

impl Owner {
    /// Whether objects may be written.
    #[must_use]
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Absent | Self::Found(_))
    }

    /// As objects name it.
    #[must_use]
    pub fn reference(&self) -> Option<&OwnerReference> {
        match self {
            Self::Found(reference) => Some(reference),
            Self::Unasked | Self::Absent | Self::Gone => None,
        }
    }

    /// Asks the API server; `owned` = an object names an owner already, `what` is made.
    pub async fn ask(self, context: &Context, owned: bool, what: &str) -> Self {
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
            // Without the role, nor is there a right to look for it.
            Err(kube::Error::Api(status)) if status.code == 403 => nothing,
            Err(error) => {
                warn!(%error, "our ClusterRole cannot be looked up; trying again");
                self
            }
        }
    }

    /// Whether an object goes with our ClusterRole.
    #[must_use]
    pub fn has<K: Resource>(object: &K) -> bool {
        let mut owners = object.meta().owner_references.iter().flatten();
        owners.any(|owner| owner.kind == ClusterRole::kind(&()) && owner.name == object::OPERATOR)
    }
}
