//! Exact amounts by resource name, and how a status writes them.

use crate::api::QuantityMap;
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

/// The amounts as a status writes them.
#[must_use]
pub fn quantities(amounts: &Amounts) -> QuantityMap {
    let format = |name: &str| {
        if name == resource::MEMORY {
            Format::BinarySi
        } else {
            Format::DecimalSi
        }
    };
    amounts
        .iter()
        .map(|(name, amount)| (name.clone(), amount.to_quantity(format(name))))
        .collect()
}

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
