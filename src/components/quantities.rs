//! Exact amounts by resource name, and how a status writes them.

use smol_str::SmolStr;

use crate::api::QuantityMap;
use crate::api::limits;
use crate::api::names::resource;
use crate::api::quantity::{Amount, Format};

/// Exact amounts by resource name, in order of the names. There are several for each pod and pod group, so they are dense.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(Vec<(SmolStr, Amount)>);

impl Amounts {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// One amount.
    #[must_use]
    pub fn one(name: impl Into<SmolStr>, amount: Amount) -> Self {
        Self(vec![(name.into(), amount)])
    }

    fn at(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }

    /// The amount of a resource.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Amount> {
        let at = self.at(name).ok()?;
        self.0.get(at).map(|(_, amount)| *amount)
    }

    /// All amounts, in order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Amount)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        Self(all)
    }
}

/// Adds or subtracts entry by entry; what becomes nothing is left out.
pub fn combine(sum: &mut Amounts, amounts: &Amounts, operation: fn(Amount, Amount) -> Amount) {
    for (name, amount) in amounts.iter() {
        let at = sum.at(name);
        let known = at.ok().and_then(|at| sum.0.get_mut(at));
        match (known, at) {
            (Some((_, known)), Ok(at)) => {
                *known = operation(*known, amount);
                if known.is_zero() {
                    sum.0.remove(at);
                }
            }
            (_, Ok(at) | Err(at)) => {
                let amount = operation(Amount::default(), amount);
                if !amount.is_zero() {
                    sum.0.insert(at, (SmolStr::new(name), amount));
                }
            }
        }
    }
}

/// The amounts as a status writes them, of so many names at most.
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

/// What queues are divided by is shown however many other names pods have brought.
const ALWAYS_SHOWN: [&str; 5] = [
    resource::CPU,
    resource::MEMORY,
    resource::NVIDIA_GPU,
    resource::AMD_GPU,
    resource::GPU_MEMORY,
];

/// Equal in value, however they are written; nothing is the same as absent.
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
    fn names_that_pods_bring_do_not_keep_a_status_from_being_written() {
        let one = |name: String| (name, Amount::from_units(1));
        let many = (0..1_000).map(|number| one(format!("a.example/{number}")));
        let amounts: Amounts = many.chain(ALWAYS_SHOWN.map(|name| one(name.to_owned()))).collect();
        let shown = quantities(&amounts);
        assert_eq!(shown.len(), limits::RESOURCE_NAMES_PER_STATUS);
        assert!(ALWAYS_SHOWN.iter().all(|name| shown.contains_key(*name)));
        assert_eq!(shown, quantities(&amounts), "the same ones every time");
    }
}
