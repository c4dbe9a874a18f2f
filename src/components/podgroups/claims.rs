//! The resource claims that pods name, and the devices that these request, by device class. Pure.
//!
//! A claim counts for every pod that names it, as in the scheduler's quotas.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::api::limits;
use crate::api::names::annotation;
use crate::api::quantity::Amount;
use crate::components::bus::Amounts;
use crate::components::quantities::combine;
use crate::components::watches::Key;
use crate::mirror::claims::requests;

/// More devices of a class than one claim can get. Sums of such numbers stay exact.
const DEVICES_MAX: i64 = requests::MOST_GPUS;

/// Which pods name which claims.
#[derive(Debug, Default)]
pub struct Users {
    /// Pods by claim.
    pods: BTreeMap<Key, Used>,
    /// Claims by pod.
    claims: HashMap<Key, Vec<Key>>,
}

/// A claim that pods name.
#[derive(Debug, Default)]
struct Used {
    /// Their names; they are in its namespace.
    pods: BTreeSet<String>,
    /// The devices that it was last counted with.
    devices: Amounts,
}

impl Users {
    /// Records the claims of a pod, and returns them.
    pub fn see(&mut self, pod: &Pod) -> Vec<Key> {
        let key = Key::of(&pod.metadata);
        let named: Vec<Key> = named(pod).iter().map(|claim| in_namespace(&key, claim)).collect();
        if self.claims.get(&key).map_or(&[][..], Vec::as_slice) != named {
            self.forget(pod);
            for claim in &named {
                let used = self.pods.entry(claim.clone()).or_default();
                used.pods.insert(key.name.clone());
            }
            if !named.is_empty() {
                self.claims.insert(key, named.clone());
            }
        }
        named
    }

    /// The pod was deleted.
    pub fn forget(&mut self, pod: &Pod) {
        let key = Key::of(&pod.metadata);
        for claim in self.claims.remove(&key).into_iter().flatten() {
            if let Some(used) = self.pods.get_mut(&claim) {
                used.pods.remove(&key.name);
                if used.pods.is_empty() {
                    self.pods.remove(&claim);
                }
            }
        }
    }

    /// A claim requests these devices now. Returns the pods to recount: none if it did so before, as a user who may change a claim may do so all the
    /// time.
    pub fn changed(&mut self, claim: &Key, devices: &Amounts) -> Vec<Key> {
        match self.pods.get_mut(claim) {
            Some(used) if used.devices != *devices => {
                used.devices.clone_from(devices);
                used.pods.iter().map(|pod| in_namespace(claim, pod)).collect()
            }
            Some(_) | None => Vec::new(),
        }
    }
}

fn in_namespace(of: &Key, name: &str) -> Key {
    Key {
        namespace: of.namespace.clone(),
        name: name.to_owned(),
    }
}

/// The claims that a pod names, including those created from templates, each once.
fn named(pod: &Pod) -> Vec<String> {
    let references = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let made = |reference: &str| {
        let made = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
        let made = made.iter().find(|made| made.name == reference)?;
        made.resource_claim_name.clone()
    };
    let named = references.filter_map(|reference| {
        let own = reference.resource_claim_name.clone();
        own.or_else(|| made(&reference.name))
    });
    let named: BTreeSet<String> = named.take(limits::CLAIMS_PER_POD).collect();
    named.into_iter().collect()
}

/// The devices that a claim requests. A claim for extended resources adds none: they are in the containers' requests.
#[must_use]
pub fn devices(claim: &ResourceClaim) -> Amounts {
    let annotations = claim.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key(annotation::EXTENDED_RESOURCE_CLAIM)) {
        return Amounts::new();
    }
    let mut sum = Amounts::new();
    for (class, count) in requests::devices(claim) {
        let count = Amount::from_units(count.min(DEVICES_MAX));
        combine(&mut sum, &Amounts::one(class, count), Amount::saturating_add);
    }
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::components::quantities::quantities;

    fn pod(name: &str, claims: Value, made: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": name},
            "spec": {"containers": [], "resourceClaims": claims},
            "status": {"resourceClaimStatuses": made},
        }))
        .unwrap()
    }

    fn key(name: &str) -> Key {
        Key {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    fn keys<const N: usize>(names: [&str; N]) -> [Key; N] {
        names.map(key)
    }

    #[test]
    fn pods_are_found_by_the_claims_that_they_name() {
        let mut users = Users::default();
        let own =
            json!([{"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "t"}]);
        assert_eq!(users.see(&pod("p", own.clone(), json!([]))), keys(["shared"]));
        let made = json!([{"name": "b", "resourceClaimName": "p-b-x"}]);
        assert_eq!(
            users.see(&pod("p", own.clone(), made.clone())),
            keys(["p-b-x", "shared"])
        );
        assert_eq!(
            users.see(&pod(
                "q",
                json!([{"name": "a", "resourceClaimName": "shared"}]),
                json!([])
            )),
            keys(["shared"])
        );
        assert!(users.see(&pod("none", json!([]), json!([]))).is_empty());
        let devices = |count| Amounts::one("gpu", Amount::from_units(count));
        assert_eq!(users.changed(&key("shared"), &devices(1)), keys(["p", "q"]));
        assert_eq!(users.changed(&key("p-b-x"), &devices(1)), keys(["p"]));
        assert!(users.changed(&key("shared"), &devices(1)).is_empty(), "it is as it was");
        assert!(users.changed(&key("nobody"), &devices(1)).is_empty());
        users.forget(&pod("p", own, made));
        assert_eq!(users.changed(&key("shared"), &Amounts::new()), keys(["q"]));
        users.forget(&pod("q", json!([]), json!([])));
        assert!(users.pods.is_empty() && users.claims.is_empty());
    }

    #[test]
    fn devices_count_by_class() {
        let claim = |annotations: Value, requests: Value| -> ResourceClaim {
            serde_json::from_value(json!({
                "metadata": {"name": "c", "annotations": annotations}, "spec": {"devices": {"requests": requests}},
            }))
            .unwrap()
        };
        let exactly = |fields: Value| json!({"name": "r", "exactly": fields});
        let requests = json!([
            exactly(json!({"deviceClassName": "gpu.example.com"})),
            exactly(json!({"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2})),
            exactly(json!({"deviceClassName": "nic.example.com", "allocationMode": "All"})),
            exactly(json!({"deviceClassName": "gpu.example.com", "adminAccess": true})),
            exactly(json!({"deviceClassName": "huge.example.com", "count": i64::MAX})),
            {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu.example.com"}]},
        ]);
        let shown: Vec<_> = quantities(&devices(&claim(json!({}), requests.clone())))
            .into_iter()
            .map(|(class, count)| format!("{class}={}", count.0))
            .collect();
        assert_eq!(shown, ["gpu.example.com=4", "huge.example.com=1M", "nic.example.com=1"]);
        let extended = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
        assert!(devices(&claim(extended, requests)).is_empty());
    }
}
