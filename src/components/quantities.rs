//! Exact amounts by resource name, and how a status writes them.

use crate::api::QuantityMap;
use crate::api::limits;
use crate::api::names::resource;
use crate::api::quantity::{Amount, Format};

use super::bus::Amounts;

/// Adds or subtracts entry by entry; what becomes nothing is left out.
pub fn combine(sum: &mut Amounts, amounts: &Amounts, operation: fn(Amount, Amount) -> Amount) {
    for (name, amount) in amounts {
        let entry = sum.entry(name.clone()).or_default();
        *entry = operation(*entry, *amount);
        if entry.is_zero() {
            sum.remove(name);
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
        .map(|(name, amount)| (name.clone(), amount.to_quantity(format(name))))
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
