//! Figures over time, as means over equal steps. There are at most [`MOST`] steps: when there would be more, each two are merged.

use crate::engine::input::Millis;

const MOST: usize = 2_048;

/// Figures over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Length of a step.
    pub step: Millis,
    width: usize,
    /// For each step and figure, the integral over the step in milliseconds.
    sums: Vec<Vec<f64>>,
    end: Millis,
}

impl Timeline {
    /// `width`: the number of figures; `step`: the initial length of a step.
    pub fn new(width: usize, step: Millis) -> Self {
        Self {
            step: step.max(1),
            width,
            sums: Vec::new(),
            end: 0,
        }
    }

    /// Records the figures since the last call.
    pub fn until(&mut self, now: Millis, figures: &[f64]) {
        while now > self.step.saturating_mul(MOST as Millis) {
            self.coarsen();
        }
        while self.end < now {
            let number = (self.end / self.step) as usize;
            let until = ((number as Millis + 1) * self.step).min(now);
            let span = (until - self.end) as f64;
            self.sums.resize(self.sums.len().max(number + 1), vec![0.0; self.width]);
            for (sum, figure) in self.sums[number].iter_mut().zip(figures) {
                *sum += figure * span;
            }
            self.end = until;
        }
    }

    fn coarsen(&mut self) {
        let halves = self.sums.chunks(2);
        let add = |pair: &[Vec<f64>]| {
            (0..self.width)
                .map(|at| pair.iter().map(|half| half[at]).sum())
                .collect()
        };
        self.sums = halves.map(add).collect();
        self.step *= 2;
    }

    /// The means of a figure, step by step.
    pub fn means(&self, figure: usize) -> Vec<f64> {
        let spans = (0..self.sums.len()).map(|number| self.step.min(self.end - number as Millis * self.step));
        let each = self.sums.iter().zip(spans);
        each.map(|(sums, span)| sums[figure] / span.max(1) as f64).collect()
    }

    /// The mean of a figure over the whole time.
    pub fn mean(&self, figure: usize) -> f64 {
        let sum: f64 = self.sums.iter().map(|sums| sums[figure]).sum();
        sum / self.end.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_stay_right_when_steps_become_longer() {
        let mut line = Timeline::new(1, 10);
        line.until(5, &[4.0]);
        line.until(15, &[8.0]);
        assert_eq!(line.means(0), [6.0, 8.0]);
        line.until(10 * MOST as Millis * 3, &[2.0]);
        assert_eq!((line.step, line.means(0).len()), (40, MOST * 3 / 4));
        let whole = (4.0 * 5.0 + 8.0 * 10.0 + 2.0 * (30.0 * MOST as f64 - 15.0)) / (30.0 * MOST as f64);
        assert!((line.mean(0) - whole).abs() < 1e-12 && line.means(0)[1] == 2.0);
    }
}
