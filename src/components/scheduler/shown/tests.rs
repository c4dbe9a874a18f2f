use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::components::bus::Object;
use crate::components::scheduler::intake::tests::{Cluster, NOW, pod};
use crate::components::tests::idle_context;
use crate::components::watches::Key;
use crate::engine::input::Event;

/// A scheduler that has placed a pod in the queue `q`.
struct Placed {
    cluster: Cluster,
    context: Context,
    shown: Shown,
}

impl Placed {
    fn new() -> Self {
        let mut cluster = Cluster::new(1);
        let Object::Pod(mut created) = pod("p", 1, &json!({}), None) else {
            unreachable!()
        };
        let at = serde_json::from_value(json!("1970-01-01T00:00:10Z")).unwrap();
        Arc::make_mut(&mut created).metadata.creation_timestamp = at;
        cluster.tell(Object::Pod(created));
        let decisions = cluster.intake.core.engine.cycle(NOW);
        let (context, mut shown) = (idle_context(), Shown::new("default"));
        let model = cluster.intake.core.engine.model();
        shown.show_decisions(&context, &decisions, model, &cluster.stores);
        Self {
            cluster,
            context,
            shown,
        }
    }

    /// Exports the shares; returns whether the queue's fair share changed.
    fn show_shares(&mut self) -> bool {
        let engine = &self.cluster.intake.core.engine;
        let changed = self.shown.show_shares(&self.context, engine, &self.cluster.stores);
        changed.iter().any(|share| share.queue == "q")
    }

    fn delete_queue(&mut self) {
        let (namespace, name) = (String::new(), "q".to_owned());
        self.cluster.stores.queues.remove(&Key { namespace, name });
        let engine = &mut self.cluster.intake.core.engine;
        engine.apply(Event::QueueGone("q".into()), NOW);
        engine.cycle(NOW);
    }

    /// The number of the queue's series.
    fn series(&self) -> usize {
        let page = self.context.figures.render();
        page.matches("queue_metadata_name=\"q\"").count()
    }
}

#[tokio::test]
async fn a_queue_that_is_deleted_before_its_shares_are_exported_leaves_no_series() {
    let mut placed = Placed::new();
    assert_eq!(
        placed.series(),
        2,
        "how many pods were placed, and how long they waited"
    );
    placed.delete_queue();
    assert!(!placed.show_shares(), "it was never told");
    assert_eq!(placed.series(), 0);
}

#[tokio::test]
async fn a_queue_has_its_series_until_it_is_deleted() {
    let mut placed = Placed::new();
    assert!(placed.show_shares());
    assert_eq!(placed.series(), families::OF_THE_SCHEDULER.len());
    placed.delete_queue();
    assert!(placed.show_shares());
    assert_eq!(placed.series(), 0);
}

#[tokio::test]
async fn a_process_that_no_longer_leads_has_no_series_of_queues() {
    let mut placed = Placed::new();
    placed.shown.clear(&placed.context);
    assert_eq!(placed.series(), 0);
}
