//! Sets of nodes by their positions.

/// A set of nodes, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    /// Whether it holds the node at a position.
    #[must_use]
    pub fn has(&self, position: usize) -> bool {
        self.0
            .get(position / 64)
            .is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// Adds the node at a position; false if it was there.
    pub fn add(&mut self, position: usize) -> bool {
        if self.0.len() <= position / 64 {
            self.0.resize(position / 64 + 1, 0);
        }
        let bit = 1 << (position % 64);
        let fresh = self.0[position / 64] & bit == 0;
        self.0[position / 64] |= bit;
        fresh
    }

    /// Positions in it, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|rest| *rest != 0)
                .map(move |rest| at * 64 + rest.trailing_zeros() as usize)
        })
    }

    /// Number of nodes in it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Removes the node at a position.
    pub fn take(&mut self, position: usize) {
        if let Some(word) = self.0.get_mut(position / 64) {
            *word &= !(1 << (position % 64));
        }
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<T: IntoIterator<Item = usize>>(positions: T) -> Self {
        let mut set = Self::default();
        for position in positions {
            set.add(position);
        }
        set
    }
}
