//! Utilisation and fragmentation for the report: the share of free GPUs that an arriving job cannot use.

use std::collections::BTreeMap;

use super::scenario::{Machine, Shape};

/// Shapes that are tried on every node: the most frequent ones.
const SHAPES: usize = 32;

/// Free resources of nodes.
#[derive(Debug)]
pub struct Occupancy {
    nodes: BTreeMap<String, Node>,
    /// Requests of jobs, with their frequency.
    mix: Vec<(Shape, f64)>,
    /// Thousandths of a GPU in the cluster.
    pub gpus: i64,
    /// Those of them that are in use.
    used: i64,
}

#[derive(Debug)]
struct Node {
    cpu: i64,
    memory: i64,
    /// Whole GPUs that are free.
    whole: i64,
    /// Thousandths left of each shared GPU.
    shared: BTreeMap<String, i64>,
    model: Option<String>,
}

impl Node {
    fn free(&self) -> i64 {
        self.whole * 1_000 + self.shared.values().sum::<i64>()
    }

    fn fits(&self, shape: &Shape) -> bool {
        let model = |model: &String| self.model.as_ref() == Some(model);
        self.cpu >= shape.cpu
            && self.memory >= shape.memory
            && (shape.models.is_empty() || shape.models.iter().any(model))
            && (self.whole * 1_000 >= shape.gpu || self.shared.values().any(|left| *left >= shape.gpu))
    }
}

impl Occupancy {
    /// Empty nodes, and the requests of all jobs.
    pub fn new<'s>(machines: &[Machine], shapes: impl Iterator<Item = &'s Shape>) -> Self {
        let nodes = machines.iter().map(|machine| {
            let node = Node {
                cpu: machine.cpu,
                memory: machine.memory,
                whole: machine.gpus,
                shared: BTreeMap::new(),
                model: machine.model.clone(),
            };
            (machine.name.clone(), node)
        });
        let mut counts: BTreeMap<&Shape, usize> = BTreeMap::new();
        for shape in shapes.filter(|shape| shape.gpu > 0) {
            *counts.entry(shape).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(SHAPES);
        let all: usize = counts.iter().map(|(_, count)| count).sum();
        let mix = counts
            .into_iter()
            .map(|(shape, count)| (shape.clone(), count as f64 / all as f64));
        Self {
            nodes: nodes.collect(),
            mix: mix.collect(),
            gpus: machines.iter().map(|machine| machine.gpus * 1_000).sum(),
            used: 0,
        }
    }

    /// Adds (`sign` 1) or removes (-1) a pod.
    pub fn count(&mut self, node: &str, shape: &Shape, groups: &[String], sign: i64) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        node.cpu -= sign * shape.cpu;
        node.memory -= sign * shape.memory;
        self.used += sign * shape.gpu;
        if groups.is_empty() {
            node.whole -= sign * (shape.gpu / 1_000);
            return;
        }
        for group in groups {
            let left = node.shared.entry(group.clone()).or_insert_with(|| {
                node.whole -= 1;
                1_000
            });
            *left -= sign * shape.gpu / groups.len() as i64;
            if *left >= 1_000 {
                node.shared.remove(group);
                node.whole += 1;
            }
        }
    }

    /// The share of the GPUs that is in use.
    pub fn allocated(&self) -> f64 {
        self.used as f64 / self.gpus.max(1) as f64
    }

    /// The share of the free GPUs that are on nodes where a random job of the mix does not fit.
    pub fn fragmentation(&self) -> f64 {
        let free: i64 = self.nodes.values().map(Node::free).sum();
        if free == 0 {
            return 0.0;
        }
        let mut useless = 0.0;
        for node in self.nodes.values() {
            let free = node.free();
            if free > 0 {
                let misfits = self.mix.iter().filter(|(shape, _)| !node.fits(shape));
                useless += free as f64 * misfits.map(|(_, share)| share).sum::<f64>();
            }
        }
        useless / free as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_gpus_on_which_no_job_fits_count_as_fragmented() {
        let machine = |name: &str| Machine {
            name: name.to_owned(),
            cpu: 8_000,
            memory: 1 << 40,
            gpus: 4,
            model: None,
            labels: BTreeMap::new(),
        };
        let asks = |gpu: i64| Shape {
            cpu: 1_000,
            gpu,
            ..Shape::default()
        };
        let (one, four) = (asks(1_000), asks(4_000));
        let mut occupancy = Occupancy::new(&[machine("a"), machine("b")], [&one, &four].into_iter());
        assert_eq!(occupancy.fragmentation(), 0.0);
        // Half of the jobs cannot use three of the seven free GPUs.
        occupancy.count("a", &one, &[], 1);
        assert_eq!(occupancy.fragmentation(), 3.0 / 7.0 / 2.0);
        occupancy.count("b", &asks(500), &["g".to_owned()], 1);
        assert_eq!(occupancy.fragmentation(), 0.5);
        occupancy.count("b", &asks(500), &["g".to_owned()], -1);
        occupancy.count("a", &one, &[], -1);
        assert_eq!(occupancy.fragmentation(), 0.0);
    }
}
