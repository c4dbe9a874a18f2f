//! Queue trees with figures as given, for the rules that judge them.

use crate::engine::Engine;
use crate::engine::input::{Event, GPU, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;
use crate::engine::policy::Policy;

use super::scenario::queue;

/// Queues as `NAME[<PARENT] QUOTA/FAIR/ALLOCATED[/LIMIT] [words of a queue]`, oldest first; parents before their children. Figures are GPUs, or cpu, memory and
/// GPUs as `1,2,3`, of which a single one stands for GPUs alone.
pub fn holdings(lines: &[&str]) -> (Engine, impl Fn(&str) -> QueueId + use<>) {
    let mut engine = Engine::new(Policy::default());
    for (age, line) in lines.iter().enumerate() {
        let (name, parent) = name_and_parent(line);
        let rest = line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
        let mut input = queue(name, &format!("0 {rest}"), Time(age as i64));
        input.parent = parent.map(Into::into);
        let figures = figures(line);
        let limits = figures.get(3).map_or([-1; 3], |limits| *limits);
        let shares = [&mut input.cpu, &mut input.memory, &mut input.gpu];
        for (resource, share) in shares.into_iter().enumerate() {
            let bound = |amount: i64| (amount >= 0).then_some(amount);
            (share.quota, share.limit) = (bound(figures[0][resource]), bound(limits[resource]));
        }
        engine.apply(Event::Queue(Box::new(input)), Time(0));
    }
    engine.cycle(Time(0));
    let names: Vec<(String, QueueId)> = lines
        .iter()
        .map(|line| name_and_parent(line).0)
        .map(|name| (name.to_owned(), find(&engine.model, name)))
        .collect();
    for (line, (_, id)) in lines.iter().zip(&names) {
        let figures = figures(line);
        let queue = engine.model.queue_mut(*id);
        (queue.fair, queue.allocated) = (figures[1], figures[2]);
    }
    let id = move |name: &str| names.iter().find(|(other, _)| other == name).expect("a queue").1;
    (engine, id)
}

fn name_and_parent(line: &str) -> (&str, Option<&str>) {
    let name = line.split_whitespace().next().expect("a name");
    name.split_once('<')
        .map_or((name, None), |(name, parent)| (name, Some(parent)))
}

fn figures(line: &str) -> Vec<[i64; 3]> {
    let text = line.split_whitespace().nth(1).expect("figures");
    text.split('/').map(amounts).collect()
}

/// `1,2,3`, or `3` for GPUs alone.
pub fn amounts(text: &str) -> [i64; 3] {
    let gpus = |text: &str| {
        let gpus: f64 = text.parse().expect("GPUs");
        if gpus < 0.0 { -1 } else { (gpus * GPU as f64) as i64 }
    };
    let parts: Vec<&str> = text.split(',').collect();
    let whole = |text: &str| text.parse().expect("an amount");
    match *parts {
        [cpu, memory, gpu] => [whole(cpu), whole(memory), gpus(gpu)],
        _ => [0, 0, gpus(text)],
    }
}

fn find(model: &Model, name: &str) -> QueueId {
    let mut queues = model.queues().iter();
    queues.find(|(_, queue)| &*queue.name == name).expect("a queue").0
}
