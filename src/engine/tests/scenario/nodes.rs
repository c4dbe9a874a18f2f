//! The nodes of scenarios.

use super::NOW;
use crate::engine::input::{Amounts, GPU, Name, NodeFault, NodeInput, Taint, TaintEffect, Time};

/// A node of `GPUs` or `GPUs of MiB`, with plenty of everything else unless `Cn` or `Mn` say how much, and with the labels behind. Before them
/// `cordoned`, `notready`, `unlabelled` (its GPU memory is not known), `taint~KEY`, `pods~N` (slots), `some/resource*N`.
pub fn node(name: &str, text: &str) -> NodeInput {
    let words = text.split_whitespace().filter_map(|word| word.split_once('='));
    let mut labels: Vec<(Name, Name)> = words.map(|(key, value)| (key.into(), value.into())).collect();
    labels.push(("kubernetes.io/hostname".into(), name.into()));
    labels.sort();
    let size: Vec<&str> = text.split_whitespace().take_while(|word| !word.contains('=')).collect();
    let after = |word: &str| size.iter().position(|other| *other == word).map(|at| size[at + 1]);
    let amount = |letter: char| size.iter().find_map(|word| word.strip_prefix(letter)?.parse().ok());
    let memory = after("of").unwrap_or("100");
    let gpus: i64 = size[0].parse().expect("a number of GPUs");
    let profile = |word: &&str| {
        let (profile, count) = word.split_once('*').filter(|_| word.starts_with("mig-"))?;
        Some((
            format!("nvidia.com/{profile}").into(),
            count.parse().expect("instances"),
        ))
    };
    let profiles: Vec<_> = size.iter().filter_map(profile).collect();
    let is = |word: &str| size.contains(&word);
    let named = |prefix: &str| {
        size.iter()
            .filter_map(|word| word.strip_prefix(prefix))
            .map(Name::from)
            .collect::<Vec<_>>()
    };
    let extended = size
        .iter()
        .filter(|word| word.contains('/'))
        .filter_map(|word| word.split_once('*'));
    let extended: Vec<(Name, i64)> = extended
        .map(|(name, count)| (name.into(), count.parse::<i64>().expect("a number") * 1000))
        .collect();
    NodeInput {
        name: name.into(),
        labels,
        taints: named("taint~")
            .into_iter()
            .map(|key| Taint {
                key,
                value: Name::default(),
                effect: TaintEffect::NoSchedule,
            })
            .collect(),
        unschedulable: is("cordoned"),
        faults: if is("notready") {
            vec![NodeFault {
                condition: "Ready=Unknown".into(),
                since: Some(Time(NOW.0 - 60_000)),
            }]
        } else {
            Vec::new()
        },
        allocatable: Amounts {
            cpu: amount('C').unwrap_or(1_000_000),
            memory: amount('M').unwrap_or(1 << 50),
            gpu: gpus * GPU,
            other: profiles.iter().cloned().chain(extended).collect(),
        },
        pods: named("pods~")
            .first()
            .map_or(110, |pods| pods.parse().expect("a number")),
        gpu_memory: (!is("unlabelled")).then(|| memory.parse().expect("MiB")),
        gpu_count: Some(gpus),
        dra_gpus: false,
        gpu_resources: vec!["nvidia.com/gpu".into()],
        mig: !profiles.is_empty(),
        numa: None,
        attach_limits: Vec::new(),
    }
}
