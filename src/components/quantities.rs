//! Exact amounts by resource name, and their form in statuses.

use std::collections::BTreeMap;
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
/// [`Amount::wide_sub`]. Costs the number of names of both: sums over pods are a [`Sum`].
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

/// A sum from which amounts are subtracted again. Tenants invent names of resources: a change costs what changes, however many names the sum has, and
/// what it shows is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// All amounts, of at most [`limits::RESOURCE_NAMES_PER_STATUS`] names.
    few: Amounts,
    /// All amounts, if they are of more names; then `few` is empty.
    many: Option<Arc<BTreeMap<SmolStr, Amount>>>,
}

impl Sum {
    /// Adds or subtracts entry by entry, like [`combine`].
    pub fn combine(&mut self, other: &Self, operation: fn(Amount, Amount) -> Amount) {
        if self.many.is_none() && other.many.is_none() {
            combine(&mut self.few, &other.few, operation);
        } else {
            let few = std::mem::take(&mut self.few);
            let many = Arc::make_mut(self.many.get_or_insert_with(|| Arc::new(by_name(&few))));
            for (name, amount) in other.iter() {
                let sum = operation(many.get(name).copied().unwrap_or_default(), amount);
                if sum.is_zero() {
                    many.remove(name);
                } else {
                    many.insert(SmolStr::new(name), sum);
                }
            }
        }
        self.settle();
    }

    /// The amounts of at most [`limits::RESOURCE_NAMES_PER_STATUS`] names. Beyond them, those that every cluster has and the first of the others in
    /// order of the names are kept, so it does not matter in which order the amounts were added. The rest is left out, and is shown once there are
    /// fewer.
    #[must_use]
    pub fn amounts(&self) -> Amounts {
        let Some(many) = &self.many else {
            return self.few.clone();
        };
        shown(|name| many.get(name).copied(), self.iter()).collect()
    }

    /// Whether it is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    fn iter(&self) -> impl Iterator<Item = (&str, Amount)> {
        let many = self.many.as_deref().into_iter().flatten();
        self.few
            .iter()
            .chain(many.map(|(name, amount)| (name.as_str(), *amount)))
    }

    /// Moves the amounts to where so many of them are kept.
    fn settle(&mut self) {
        match &self.many {
            None if self.few.len() > limits::RESOURCE_NAMES_PER_STATUS => {
                self.many = Some(Arc::new(by_name(&self.few)));
                self.few = Amounts::new();
            }
            Some(many) if many.len() <= limits::RESOURCE_NAMES_PER_STATUS => {
                self.few = many.iter().map(|(name, amount)| (name.clone(), *amount)).collect();
                self.many = None;
            }
            None | Some(_) => {}
        }
    }
}

impl From<Amounts> for Sum {
    fn from(few: Amounts) -> Self {
        let mut sum = Self { few, many: None };
        sum.settle();
        sum
    }
}

fn by_name(amounts: &Amounts) -> BTreeMap<SmolStr, Amount> {
    amounts
        .iter()
        .map(|(name, amount)| (SmolStr::new(name), amount))
        .collect()
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
    shown(|name| amounts.get(name), amounts.iter())
        .map(|(name, amount)| (name.to_owned(), amount.to_quantity(format(name))))
        .collect()
}

/// The amounts that a status has of all: those of [`ALWAYS_SHOWN`], then the first of the others in order of the names.
fn shown<'a>(
    get: impl Fn(&str) -> Option<Amount>,
    all: impl Iterator<Item = (&'a str, Amount)>,
) -> impl Iterator<Item = (&'a str, Amount)> {
    let first = ALWAYS_SHOWN
        .into_iter()
        .filter_map(move |name: &'static str| -> Option<(&'a str, Amount)> { Some((name, get(name)?)) });
    let others = all.filter(|(name, _)| !ALWAYS_SHOWN.contains(name));
    first.chain(others).take(limits::RESOURCE_NAMES_PER_STATUS)
}

/// These names are in a status in any case, however many other names the pods have.
const ALWAYS_SHOWN: [&str; 7] = [
    resource::CPU,
    resource::MEMORY,
    resource::PODS,
    resource::EPHEMERAL_STORAGE,
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

    #[test]
    fn a_sum_over_more_names_than_are_shown_is_exact_and_shows_the_same_ones_in_any_order() {
        let of_pod = |number: usize| {
            let one = |name: String| (name, Amount::from_units(1));
            let own = one(format!("a.example/{number:03}"));
            Sum::from(
                [own]
                    .into_iter()
                    .chain(ALWAYS_SHOWN.map(|name| one(name.to_owned())))
                    .collect::<Amounts>(),
            )
        };
        let pods = 3 * limits::RESOURCE_NAMES_PER_STATUS;
        let sum_of = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut sum = Sum::default();
            numbers.for_each(|number| sum.combine(&of_pod(number), Amount::wide_add));
            sum
        };
        let mut sum = sum_of(&mut (0..pods));
        assert_eq!(sum, sum_of(&mut (0..pods).rev()));
        let shown = sum.amounts();
        assert_eq!(shown.len(), limits::RESOURCE_NAMES_PER_STATUS);
        let all = Some(Amount::from_units(i64::try_from(pods).unwrap()));
        assert!(ALWAYS_SHOWN.iter().all(|name| shown.get(name) == all));
        assert!(shown.get("a.example/000").is_some() && shown.get("a.example/700").is_none());

        let some = 3;
        (0..pods - some).for_each(|number| sum.combine(&of_pod(number), Amount::wide_sub));
        assert_eq!(sum, sum_of(&mut (pods - some..pods)));
        assert_eq!(
            sum.amounts().len(),
            some + ALWAYS_SHOWN.len(),
            "those that were left out before"
        );
        (pods - some..pods).for_each(|number| sum.combine(&of_pod(number), Amount::wide_sub));
        assert!(sum.is_empty() && sum == Sum::default());
    }

    #[test]
    fn sums_are_added_to_sums_however_many_names_they_have() {
        let sum = |numbers: std::ops::Range<usize>| {
            let one = |number| (format!("a.example/{number}"), Amount::from_units(1));
            Sum::from(numbers.map(one).collect::<Amounts>())
        };
        for (left, right) in [(10, 20), (10, 2_000), (1_000, 1_010), (1_000, 2_000)] {
            let mut both = sum(0..left);
            both.combine(&sum(left..right), Amount::wide_add);
            assert_eq!(both, sum(0..right));
            both.combine(&sum(0..left), Amount::wide_sub);
            assert_eq!(both, sum(left..right));
        }
    }
}
