//! Vectors of resource amounts: the four common resources, and those of the others that are not 0. Every resource has a position.

use crate::api::limits;
use crate::api::names::resource;
use crate::engine::input::{Name, Table};

/// Position of cpu, in milli-cores.
pub const CPU: usize = 0;
/// Position of memory, in bytes.
pub const MEMORY: usize = 1;
/// Position of GPUs, in millionths.
pub const GPUS: usize = 2;
/// Position of pod slots.
pub const PODS: usize = 3;

/// Number of common positions.
const COMMON: usize = 4;

/// Amounts by position; absent ones are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    common: [i64; COMMON],
    /// Further positions in order, without zeros, so that a vector is as long as it needs, not as many names as there are.
    others: Vec<(u32, i64)>,
}

impl Resources {
    /// The amount at a position.
    #[must_use]
    pub fn get(&self, position: usize) -> i64 {
        match self.common.get(position) {
            Some(amount) => *amount,
            None => self.find(position).map_or(0, |at| self.others[at].1),
        }
    }

    fn find(&self, position: usize) -> Result<usize, usize> {
        self.others.binary_search_by(|(at, _)| (*at as usize).cmp(&position))
    }

    /// Sets one amount.
    pub fn set(&mut self, position: usize, amount: i64) {
        if let Some(common) = self.common.get_mut(position) {
            *common = amount;
            return;
        }
        match self.find(position) {
            Ok(at) if amount == 0 => drop(self.others.remove(at)),
            Ok(at) => self.others[at].1 = amount,
            Err(_) if amount == 0 => {}
            Err(at) => self.others.insert(at, (position as u32, amount)),
        }
    }

    /// Adds to one amount.
    pub fn bump(&mut self, position: usize, amount: i64) {
        if let Some(common) = self.common.get_mut(position) {
            *common += amount;
        } else {
            self.set(position, self.get(position) + amount);
        }
    }

    /// Adds `sign` times another vector.
    pub fn add(&mut self, other: &Self, sign: i64) {
        for (mine, theirs) in self.common.iter_mut().zip(&other.common) {
            *mine += sign * theirs;
        }
        for &(position, amount) in &other.others {
            self.bump(position as usize, sign * amount);
        }
    }

    /// Sets each position to the larger of both.
    pub fn raise(&mut self, other: &Self) {
        for (position, amount) in other.iter() {
            if amount > self.get(position) {
                self.set(position, amount);
            }
        }
    }

    /// Whether `available` covers every position that this vector requests; `skip_gpus` ignores GPUs.
    #[must_use]
    pub fn fits(&self, available: &Self, skip_gpus: bool) -> bool {
        let common = self.common.iter().zip(&available.common).enumerate();
        common
            .into_iter()
            .all(|(position, (asked, there))| *asked <= 0 || (skip_gpus && position == GPUS) || asked <= there)
            && self
                .others
                .iter()
                .all(|&(position, asked)| asked <= 0 || asked <= available.get(position as usize))
    }

    /// Positions and amounts, in order: the common ones, and others that are not 0.
    pub fn iter(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        let others = self
            .others
            .iter()
            .map(|&(position, amount)| (position as usize, amount));
        self.common.iter().copied().enumerate().chain(others)
    }
}

/// Names of resources and their positions. Names that no vector uses are removed in time, and their positions reused.
#[derive(Debug)]
pub struct ResourceNames {
    names: Vec<Option<Name>>,
    positions: Table<Name, usize>,
    free: Vec<usize>,
}

impl Default for ResourceNames {
    fn default() -> Self {
        let mut names = Self {
            names: Vec::new(),
            positions: Table::default(),
            free: Vec::new(),
        };
        for name in [resource::CPU, resource::MEMORY, resource::NVIDIA_GPU, resource::PODS] {
            names.position(&Name::from(name));
        }
        names
    }
}

impl ResourceNames {
    /// The position of a name; assigns one to a new name.
    pub fn position(&mut self, name: &Name) -> usize {
        if let Some(&position) = self.positions.get(name) {
            return position;
        }
        let position = self.free.pop().unwrap_or(self.names.len());
        if position == self.names.len() {
            self.names.push(None);
        }
        self.names[position] = Some(name.clone());
        self.positions.insert(name.clone(), position);
        position
    }

    /// The position of a known name.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// The name at a position of some vector.
    #[must_use]
    pub fn name(&self, position: usize) -> &Name {
        self.names[position].as_ref().expect("a position in use has a name")
    }

    /// Names by position; positions that are not in use have none.
    #[must_use]
    pub fn by_position(&self) -> &[Option<Name>] {
        &self.names
    }

    /// Number of known names.
    #[cfg(test)]
    #[must_use]
    pub fn known(&self) -> usize {
        self.positions.len()
    }

    /// Removes names that none of these vectors uses, except the common ones.
    pub fn forget_unused<'v>(&mut self, vectors: impl Iterator<Item = &'v Resources>) {
        let mut used = vec![false; self.names.len()];
        for (position, _) in vectors.flat_map(|vector| &vector.others) {
            used[*position as usize] = true;
        }
        for (position, name) in self.names.iter_mut().enumerate().skip(COMMON) {
            if let Some(name) = name.take_if(|_| !used[position]) {
                self.positions.remove(&name);
                self.free.push(position);
            }
        }
        self.positions.shrink_to_fit();
    }
}

/// GPU slices of a MIG resource name: `nvidia.com/mig-3g.20gb` has 3. 0 for any other form, and for more slices than any device
/// has ([`limits::MIG_SLICES`]).
#[must_use]
pub fn mig_slices(name: &str) -> i64 {
    let parse = || {
        let (slices, memory) = name.strip_prefix(resource::NVIDIA_MIG_PREFIX)?.split_once("g.")?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(slices) && digits(memory.strip_suffix("gb")?))
            .then(|| slices.parse().ok())
            .flatten()
            .filter(|slices| *slices <= limits::MIG_SLICES as i64)
    };
    parse().unwrap_or(0)
}

/// Cpu, memory and GPUs: the resources of queues.
pub type Shared = [i64; 3];

/// Adds `sign` times `other`.
pub fn add(to: &mut Shared, other: &Shared, sign: i64) {
    for (mine, theirs) in to.iter_mut().zip(other) {
        *mine += sign * theirs;
    }
}

/// The sum.
#[must_use]
pub fn plus(left: &Shared, right: &Shared) -> Shared {
    let mut sum = *left;
    add(&mut sum, right, 1);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_beyond_any_device_count_as_none() {
        assert_eq!(mig_slices("nvidia.com/mig-7g.80gb"), 7);
        assert_eq!(mig_slices("nvidia.com/mig-9999999999999g.5gb"), 0);
        assert_eq!(mig_slices("nvidia.com/mig-9223372036854775808g.5gb"), 0);
    }
}
