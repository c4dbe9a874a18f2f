//! Amounts of resources as whole thousandths, and what a pod asks for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::quantity::Amount;

/// Thousandths of each named resource. Negative amounts do not occur.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    /// Reads quantities; one that is malformed counts as nothing, as the API server lets none through.
    pub fn from_quantities<'a>(quantities: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> Self {
        let read =
            |(name, quantity): (&String, &Quantity)| (name.clone(), Amount::of(quantity).map_or(0, Amount::milli));
        Self(quantities.into_iter().map(read).collect())
    }

    /// What a running pod holds: its containers and sidecars together or the largest init step, or what the pod as a whole requests; and one of `pods`.
    pub fn of_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let mut held = Self::default();
        for container in &spec.containers {
            held.add(&Self::of_container(container));
        }
        held.cover_init_steps(spec);
        let whole = spec
            .resources
            .iter()
            .flat_map(|resources| resources.requests.iter().flatten());
        let whole = whole.filter(|(name, _)| is_of_whole_pods(name));
        held.0.extend(Self::from_quantities(whole).0);
        held.add(&Self::from_quantities(spec.overhead.iter().flatten()));
        held.0.insert("pods".to_owned(), 1000);
        held
    }

    fn of_container(container: &Container) -> Self {
        let Some(resources) = &container.resources else {
            return Self::default();
        };
        // A limit without a request is the request, as the API server defaults it.
        let mut asked = Self::from_quantities(resources.limits.iter().flatten());
        asked
            .0
            .extend(Self::from_quantities(resources.requests.iter().flatten()).0);
        asked
    }

    /// Init containers run one by one beside the sidecars started before them; sidecars stay.
    fn cover_init_steps(&mut self, spec: &PodSpec) {
        let (mut sidecars, mut peak) = (Self::default(), Self::default());
        for container in spec.init_containers.iter().flatten() {
            let asked = Self::of_container(container);
            if is_sidecar(container) {
                sidecars.add(&asked);
                peak.raise_to(&sidecars);
            } else {
                let mut step = sidecars.clone();
                step.add(&asked);
                peak.raise_to(&step);
            }
        }
        self.add(&sidecars);
        self.raise_to(&peak);
    }

    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let own = self.0.entry(name.to_owned()).or_default();
            *own = own.saturating_add(amount);
        }
    }

    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if let Some(own) = self.0.get_mut(name) {
                *own = own.saturating_sub(amount).max(0);
            }
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let own = self.0.entry(name.to_owned()).or_default();
            *own = (*own).max(amount);
        }
    }
}

/// What a pod can request as a whole, instead of by its containers.
fn is_of_whole_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// An init container that keeps running beside the others.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

#[cfg(test)]
mod tests;
