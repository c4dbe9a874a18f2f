//! What the operator logs as ERROR is a broken rule. Its whole log goes into the file of the story, if there is one.

use std::fmt::Write as _;

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use crate::story::Story;

/// What is logged of a reservation pod that somebody deletes.
const ROBBED: &str = "shared GPU has lost its reservation pod";

/// Listens on this thread until the guard is dropped. `robbed`: somebody deletes reservation pods.
pub fn listen(story: &Story, robbed: bool) -> DefaultGuard {
    let layer = Errors {
        story: story.clone(),
        robbed,
    };
    let level = if story.is_kept() { Level::DEBUG } else { Level::ERROR };
    tracing::subscriber::set_default(
        Registry::default().with(layer.with_filter(tracing_subscriber::filter::LevelFilter::from_level(level))),
    )
}

struct Errors {
    story: Story,
    robbed: bool,
}

impl<S: Subscriber> Layer<S> for Errors {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("unikai") {
            return;
        }
        let level = *event.metadata().level();
        let mut text = Text::default();
        event.record(&mut text);
        self.story
            .log(&format!("{level} {} {}", event.metadata().target(), text.0));
        if level == Level::ERROR && !(self.robbed && text.0.contains(ROBBED)) {
            self.story.violation("E-1", format!("ERROR: {}", text.0));
        }
    }
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
