use jiff::Timestamp;

use super::*;
use crate::api::views::{Meta, Subject, Verdict};

#[test]
fn the_sentence_comes_first() {
    let explained = Explanation {
        meta: Meta {
            as_of: Timestamp::UNIX_EPOCH,
            leads: false,
            leader: Some("unikai-0".to_owned()),
            namespaces_left_out: 0,
        },
        subject: Subject {
            kind: "PodGroup".to_owned(),
            namespace: Some("team".to_owned()),
            name: "train".to_owned(),
        },
        verdict: Verdict {
            cause: "queue_limit".to_owned(),
            sentence: "Queue team is at its limit of 2 GPUs".to_owned(),
        },
        evidence: vec!["It is number 1 in the line of queue team".to_owned()],
        commands: vec!["unikai explain queue team".to_owned()],
    };
    let look = Look {
        terminal: false,
        wide: false,
        now: Timestamp::UNIX_EPOCH,
    };
    assert_eq!(
        words(&explained, &look),
        "Queue team is at its limit of 2 GPUs.\n  It is number 1 in the line of queue team.\n\nunikai explain queue team\n\
         This replica does not schedule, unikai-0 does; it has the recent decisions.\n"
    );
}
