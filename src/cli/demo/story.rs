//! What happened to each pod, for the explanation at the end.

use std::time::Instant;

use kube::ResourceExt;

use super::{Snapshot, is_placed, node, reason};
use crate::cli::output::say;

/// The pods in the order in which they were first seen.
#[derive(Default)]
pub(super) struct Story {
    pods: Vec<Chapter>,
}

struct Chapter {
    pod: String,
    seen: Instant,
    waited_for: Option<String>,
    placed: Option<(Instant, String)>,
}

impl Story {
    /// Takes in what is new.
    pub(super) fn note(&mut self, snapshot: &Snapshot) {
        let now = Instant::now();
        for pod in &snapshot.pods {
            let name = pod.name_any();
            let index = self
                .pods
                .iter()
                .position(|chapter| chapter.pod == name)
                .unwrap_or_else(|| {
                    self.pods.push(Chapter {
                        pod: name,
                        seen: now,
                        waited_for: None,
                        placed: None,
                    });
                    self.pods.len() - 1
                });
            let chapter = &mut self.pods[index];
            if let (true, None, Some(node)) = (is_placed(pod), &chapter.placed, node(pod)) {
                chapter.placed = Some((now, node.to_owned()));
            } else if let (None, Some(reason)) = (&chapter.placed, reason(pod)) {
                chapter.waited_for = Some(reason.to_owned());
            }
        }
    }

    /// Prints it.
    pub(super) fn tell(&self) {
        say!("\nWhat happened:");
        for chapter in &self.pods {
            let Some((placed, node)) = &chapter.placed else {
                continue;
            };
            match &chapter.waited_for {
                None => say!("- {} fitted at once, on {node}.", chapter.pod),
                Some(reason) => {
                    let seconds = placed.duration_since(chapter.seen).as_secs_f64();
                    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
                    say!(
                        "- {} waited {seconds:.1} s, because: {}. Then it got {node}.",
                        chapter.pod,
                        reason.trim_end_matches('.')
                    );
                }
            }
        }
        say!("The two pods of the Job are a gang: they waited together and started together.");
    }
}
