//! Vectors of resource amounts: one position per resource name, the four that every cluster has first.

use smallvec::SmallVec;

use crate::engine::input::{Name, Table};

/// Position of cpu, in milli-cores.
pub const CPU: usize = 0;
/// Position of memory, in bytes.
pub const MEMORY: usize = 1;
/// Position of GPUs, in millionths.
pub const GPUS: usize = 2;
/// Position of pod slots.
pub const PODS: usize = 3;

/// Amounts by position; what lies beyond the end is 0.
#[derive(Clone, Debug, Default, Eq)]
pub struct Resources(SmallVec<[i64; 4]>);

impl Resources {
    /// The amount at a position.
    #[must_use]
    pub fn get(&self, position: usize) -> i64 {
        self.0.get(position).copied().unwrap_or(0)
    }

    /// Sets one amount.
    pub fn set(&mut self, position: usize, amount: i64) {
        if self.0.len() <= position {
            self.0.resize(position + 1, 0);
        }
        self.0[position] = amount;
    }

    /// Adds to one amount.
    pub fn bump(&mut self, position: usize, amount: i64) {
        self.set(position, self.get(position) + amount);
    }

    /// Adds `sign` times another vector.
    pub fn add(&mut self, other: &Self, sign: i64) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += sign * theirs;
        }
    }

    /// Largest of both at each position.
    pub fn raise(&mut self, other: &Self) {
        for position in 0..other.0.len() {
            if other.get(position) > self.get(position) {
                self.set(position, other.get(position));
            }
        }
    }

    /// Whether everything that this vector asks for (and only that) is there; `skip_gpus` leaves GPUs out.
    #[must_use]
    pub fn fits(&self, available: &Self, skip_gpus: bool) -> bool {
        self.0
            .iter()
            .enumerate()
            .all(|(position, &asked)| asked <= 0 || (skip_gpus && position == GPUS) || asked <= available.get(position))
    }

    /// Positions and amounts.
    pub fn iter(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.0.iter().copied().enumerate()
    }
}

impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        (0..self.0.len().max(other.0.len())).all(|position| self.get(position) == other.get(position))
    }
}

/// Names of resources and their positions.
#[derive(Debug)]
pub struct ResourceNames {
    names: Vec<Name>,
    positions: Table<Name, usize>,
}

impl Default for ResourceNames {
    fn default() -> Self {
        let mut names = Self {
            names: Vec::new(),
            positions: Table::default(),
        };
        for name in ["cpu", "memory", "nvidia.com/gpu", "pods"] {
            names.position(&Name::from(name));
        }
        names
    }
}

impl ResourceNames {
    /// The position of a name, new if it was never seen.
    pub fn position(&mut self, name: &Name) -> usize {
        if let Some(&position) = self.positions.get(name) {
            return position;
        }
        self.names.push(name.clone());
        self.positions.insert(name.clone(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// The position of a name that was seen before.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// The name at a position.
    #[must_use]
    pub fn name(&self, position: usize) -> &Name {
        &self.names[position]
    }
}

/// GPU slices that a MIG resource name stands for: `nvidia.com/mig-3g.20gb` is 3. 0 for any other form.
#[must_use]
pub fn mig_slices(name: &str) -> i64 {
    let parse = || {
        let (slices, memory) = name.strip_prefix("nvidia.com/mig-")?.split_once("g.")?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(slices) && digits(memory.strip_suffix("gb")?))
            .then(|| slices.parse().ok())
            .flatten()
    };
    parse().unwrap_or(0)
}

/// Cpu, memory and GPUs: what queues share.
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
