//! Exact amounts by resource name, and their form in statuses.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::api::QuantityMap;
use crate::api::limits;
use crate::api::names::resource;
use crate::api::quantity::{Amount, Format};

/// Exact amounts by resource name, in order of the names. Each pod and pod group has several, and most are equal, so clones share the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(Option<Arc<Vec<(SmolStr, Amount)>>>);

impl Amounts {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// One amount.
    #[must_use]
    pub fn one(name: impl Into<SmolStr>, amount: Amount) -> Self {
        Self::of_sorted(vec![(name.into(), amount)])
    }

    fn of_sorted(all: Vec<(SmolStr, Amount)>) -> Self {
        Self((!all.is_empty()).then(|| Arc::new(all)))
    }

    fn all(&self) -> &[(SmolStr, Amount)] {
        self.0.as_ref().map(|all| &***all).unwrap_or_default()
    }

    fn at(&self, name: &str) -> Result<usize, usize> {
        self.all().binary_search_by(|(known, _)| known.as_str().cmp(name))
    }

    /// The amount of a resource.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Amount> {
        let at = self.at(name).ok()?;
        self.all().get(at).map(|(_, amount)| *amount)
    }

    /// All amounts, in order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Amount)> {
        self.all().iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<N: Into<SmolStr>> FromIterator<(N, Amount)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (N, Amount)>>(amounts: I) -> Self {
        let mut all: Vec<_> = amounts
            .into_iter()
            .map(|(name, amount)| (name.into(), amount))
            .collect();
        all.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        all.dedup_by(|(next, _), (first, _)| next == first);
        Self::of_sorted(all)
    }
}

/// Adds or subtracts entry by entry; entries that become 0 are removed. A sum from which amounts are subtracted again needs [`Amount::wide_add`] and
/// [`Amount::wide_sub`].
pub fn combine(sum: &mut Amounts, amounts: &Amounts, operation: fn(Amount, Amount) -> Amount) {
    let stays = |amount: Amount| !amount.is_zero() && operation(Amount::default(), amount) == amount;
    if sum.is_empty() && amounts.iter().all(|(_, amount)| stays(amount)) {
        sum.clone_from(amounts);
        return;
    }
    let mut all = sum.0.take().unwrap_or_default();
    let entries = Arc::make_mut(&mut all);
    for (name, amount) in amounts.iter() {
        match entries.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(at) => {
                if let Some((_, known)) = entries.get_mut(at) {
                    *known = operation(*known, amount);
                }
            }
            Err(at) => entries.insert(at, (SmolStr::new(name), operation(Amount::default(), amount))),
        }
    }
    entries.retain(|(_, amount)| !amount.is_zero());
    sum.0 = (!all.is_empty()).then_some(all);
}

/// The amounts as quantities for a status, with a limited number of names.
#[must_use]
pub fn quantities(amounts: &Amounts) -> QuantityMap {
    let format = |name: &str| {
        if name == resource::MEMORY {
            Format::BinarySi
        } else {
            Format::DecimalSi
        }
    };
    let always = |name: &str| ALWAYS_SHOWN.contains(&name);
    let first = amounts.iter().filter(|(name, _)| always(name));
    let others = amounts.iter().filter(|(name, _)| !always(name));
    first
        .chain(others)
        .take(limits::RESOURCE_NAMES_PER_STATUS)
        .map(|(name, amount)| (name.to_owned(), amount.to_quantity(format(name))))
        .collect()
}

/// These names are in a status in any case, however many other names the pods have.
const ALWAYS_SHOWN: [&str; 5] = [
    resource::CPU,
    resource::MEMORY,
    resource::NVIDIA_GPU,
    resource::AMD_GPU,
    resource::GPU_MEMORY,
];

/// Whether the values are equal, in any spelling; 0 equals an absent one.
#[must_use]
pub fn same_amounts(a: &QuantityMap, b: &QuantityMap) -> bool {
    let amounts = |map: &QuantityMap| -> Option<Amounts> {
        let parsed = map
            .iter()
            .map(|(name, quantity)| Some((name.clone(), Amount::of(quantity).ok()?)));
        parsed
            .filter(|entry| entry.as_ref().is_none_or(|(_, amount)| !amount.is_zero()))
            .collect()
    };
    let (a, b) = (amounts(a), amounts(b));
    a.is_some() && a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences() {
        let amounts = |all: &[(&str, i64)]| -> Amounts {
            all.iter()
                .map(|(name, units)| (*name, Amount::from_units(*units)))
                .collect()
        };
        let pod = amounts(&[("cpu", 2), ("gpu", 1)]);
        let mut sum = Amounts::new();
        combine(&mut sum, &pod, Amount::saturating_add);
        assert_eq!(sum, pod);
        combine(&mut sum, &amounts(&[("a", 7), ("gpu", 1)]), Amount::saturating_add);
        assert_eq!(sum, amounts(&[("a", 7), ("cpu", 2), ("gpu", 2)]));
        assert_eq!(
            pod,
            amounts(&[("cpu", 2), ("gpu", 1)]),
            "copies are not changed with it"
        );
        combine(&mut sum, &pod, Amount::saturating_sub);
        assert_eq!(sum, amounts(&[("a", 7), ("gpu", 1)]));
        combine(&mut sum, &amounts(&[("a", 7), ("gpu", 1)]), Amount::saturating_sub);
        assert!(sum.is_empty());
        assert_eq!(sum, Amounts::new());
        combine(&mut sum, &amounts(&[("gpu", 1)]), Amount::saturating_sub);
        assert_eq!(sum, amounts(&[("gpu", -1)]));
    }

    #[test]
    fn resource_names_of_pods_cannot_prevent_the_write_of_a_status() {
        let one = |name: String| (name, Amount::from_units(1));
        let many = (0..1_000).map(|number| one(format!("a.example/{number}")));
        let amounts: Amounts = many.chain(ALWAYS_SHOWN.map(|name| one(name.to_owned()))).collect();
        let shown = quantities(&amounts);
        assert_eq!(shown.len(), limits::RESOURCE_NAMES_PER_STATUS);
        assert!(ALWAYS_SHOWN.iter().all(|name| shown.contains_key(*name)));
        assert_eq!(shown, quantities(&amounts), "the same ones every time");
    }
}
