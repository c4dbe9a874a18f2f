use std::sync::Arc;

use super::*;
use crate::engine::input::{GPU, GroupKey, PodRef};
use crate::engine::policy::ActionKind;

fn eviction(why: EvictionCause, by: Option<GroupKey>) -> Eviction {
    Eviction {
        pod: PodRef::new("batch", "p0", "u0"),
        group: GroupKey::new("batch", "pg-night-0b6ff7f2-9d5a-4d55-8d3c-111111111111"),
        action: ActionKind::Reclaim,
        for_group: by,
        why,
        exceeds: Vec::new(),
    }
}

fn side(queue: &str, used: i64, fair: i64, quota: Option<i64>) -> Side {
    Side {
        queue: queue.into(),
        used: [0, 0, used * GPU],
        quota: [None, None, quota.map(|quota| quota * GPU)],
        fair: [0, 0, fair * GPU],
        priority: 0,
    }
}

#[test]
fn the_first_sentence_names_the_preemptor_and_the_reason() {
    let train = || Some(GroupKey::new("team", "train"));
    let here = || Some(GroupKey::new("batch", "train"));
    let sides = Sides {
        theirs: side("greedy", 6, 4, Some(2)),
        ours: side("team", 0, 4, None),
    };
    let lent = Sides {
        theirs: side("greedy", 4, 4, Some(2)),
        ours: side("team", 1, 4, Some(4)),
    };
    let reclaimed = |sides| EvictionCause::Reclaimed(Some(Arc::new(sides)));
    for (why, by, says) in [
        (
            EvictionCause::Preempted,
            here(),
            "Preempted for train, which has a higher priority in the same queue",
        ),
        (
            EvictionCause::Moved,
            train(),
            "Moved to make room for team/train; it starts again elsewhere",
        ),
        (
            reclaimed(sides),
            train(),
            "Reclaimed for team/train: queue greedy held 6 GPUs (fair share 4, quota 2), queue team 0 (fair share 4, quota unlimited)",
        ),
        (
            reclaimed(lent),
            train(),
            "Reclaimed for team/train: queue greedy held 4 GPUs (fair share 4, quota 2), queue team 1 (fair share 4, quota 4)",
        ),
        (
            EvictionCause::Reclaimed(None),
            train(),
            "Reclaimed for team/train, whose queue takes back what it may have",
        ),
        (
            EvictionCause::Broken {
                min: 2,
                sub_group: None,
                lacking: None,
            },
            None,
            "Its gang is broken: night needs 2 pods at once and has had fewer for too long",
        ),
        (
            EvictionCause::Broken {
                min: 1,
                sub_group: Some("workers".into()),
                lacking: Some(("workers".into(), 1)),
            },
            None,
            "Its gang is broken: sub-group workers of night needs 1 pod at once and has had fewer for too long",
        ),
    ] {
        let evicted = eviction(why, by);
        assert_eq!(evicted.sentence(), says);
        assert_eq!(evicted.text(Wording::Plain), says);
        assert_eq!(evicted.text(Wording::Kai), evicted.message());
    }
}

#[test]
fn overruled_budgets_are_named_after_the_first_sentence() {
    let mut evicted = eviction(EvictionCause::Preempted, Some(GroupKey::new("batch", "train")));
    evicted.exceeds = vec!["web".into()];
    let first = "Preempted for train, which has a higher priority in the same queue";
    assert_eq!(
        evicted.sentence(),
        format!("{first}. PodDisruptionBudget web does not allow it and was overruled")
    );
    evicted.exceeds.push("all".into());
    assert_eq!(
        evicted.sentence(),
        format!("{first}. PodDisruptionBudgets web and all do not allow it and were overruled")
    );
}
