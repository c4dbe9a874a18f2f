//! What history promises, over random writes: it leads from any kept state to the newest one, and back.

use proptest::prelude::*;

use super::*;

/// One write: which of a few objects, and whether to remove it.
type Step = (u8, bool);

type State = BTreeMap<ObjectKey, u64>;

fn key(name: u8) -> ObjectKey {
    (format!("ns-{}", name % 2), format!("o-{name}"))
}

fn apply(table: &Table, (name, remove): Step) {
    let key = key(name);
    let value = json!({"metadata": {"namespace": key.0, "name": key.1}});
    match table.get(&key) {
        None => drop(table.create(value).unwrap()),
        Some(old) if remove => drop(table.remove(&key, old.revision, value).unwrap()),
        Some(old) => drop(table.replace(&key, old.revision, value).unwrap()),
    }
}

fn state(objects: &[Arc<Object>]) -> State {
    objects.iter().map(|object| (object.key(), object.revision)).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((0_u8..6, any::<bool>()), 0..60)
}

proptest! {
    #[test]
    fn history_is_read_forward_and_back(steps in steps(), capacity in 1_usize..80) {
        let store = Store::new(capacity);
        let table = store.of("", "things");
        let other = store.of("", "others");
        let mut past = vec![(store.revision(), State::new())];
        for (index, step) in steps.into_iter().enumerate() {
            apply(&table, step);
            if index % 3 == 0 {
                apply(&other, step);
            }
            let snapshot = table.list("");
            prop_assert_eq!(snapshot.revision, store.revision());
            past.push((snapshot.revision, state(&snapshot.objects)));
        }
        let newest = state(&table.list("").objects);
        for (revision, then) in past {
            let kept = revision >= table.compacted();
            prop_assert_eq!(table.list_at("", revision, None).map(|objects| state(&objects)), kept.then_some(then.clone()));
            for (after, namespace) in (0..6).map(key).flat_map(|after| [(after.clone(), ""), (after, "ns-0")]) {
                let page = table.list_at(namespace, revision, Some(&after)).unwrap_or_default();
                let listed: Vec<ObjectKey> = page.iter().map(|object| object.key()).collect();
                let within = |key: &&ObjectKey| namespace.is_empty() || key.0 == namespace;
                let expected = then.keys().filter(|key| **key > after).filter(within);
                let expected: Vec<ObjectKey> = expected.filter(|_| kept).cloned().collect();
                prop_assert_eq!(listed, expected);
            }
            let Since::Events { events, .. } = table.since(revision) else {
                prop_assert!(!kept);
                continue;
            };
            let mut reached = then;
            let mut last = revision;
            for event in events {
                prop_assert!(event.object.revision > last, "revisions grow");
                last = event.object.revision;
                match event.change {
                    Change::Deleted => drop(reached.remove(&event.object.key())),
                    Change::Added | Change::Modified => drop(reached.insert(event.object.key(), event.object.revision)),
                }
            }
            prop_assert_eq!(&reached, &newest);
        }
    }

    #[test]
    fn lists_of_a_namespace_have_only_its_objects(steps in steps()) {
        let store = Store::new(10);
        let table = store.of("", "things");
        steps.into_iter().for_each(|step| apply(&table, step));
        let all = table.list("").objects;
        for namespace in ["ns-0", "ns-1"] {
            let own: Vec<_> = all.iter().filter(|object| object.key().0 == namespace).cloned().collect();
            prop_assert_eq!(state(&table.list(namespace).objects), state(&own));
        }
    }
}

#[test]
fn writes_meet_the_expected_revision_or_nothing() {
    let store = Store::new(10);
    let table = store.of("", "things");
    let key = (String::new(), "a".to_owned());
    let value = json!({"metadata": {"name": "a"}});
    let created = table.create(value.clone()).unwrap();
    assert_eq!(table.create(value.clone()).unwrap_err(), WriteError::Exists);
    let replaced = table.replace(&key, created.revision, value.clone()).unwrap();
    assert_eq!(
        table.replace(&key, created.revision, value.clone()).unwrap_err(),
        WriteError::Modified
    );
    assert_eq!(
        table.remove(&key, created.revision, value.clone()).unwrap_err(),
        WriteError::Modified
    );
    let removed = table.remove(&key, replaced.revision, value.clone()).unwrap();
    assert!(
        removed.revision > replaced.revision,
        "a deletion has a revision of its own"
    );
    assert_eq!(
        table.replace(&key, replaced.revision, value).unwrap_err(),
        WriteError::Missing
    );
}

#[test]
fn compaction_does_not_end_watches_that_are_up_to_date() {
    let store = Store::new(10);
    let table = store.of("", "things");
    let seen = table.create(json!({"metadata": {"name": "a"}})).unwrap().revision;
    store
        .of("", "others")
        .create(json!({"metadata": {"name": "b"}}))
        .unwrap();
    store.compact();
    assert!(matches!(table.since(seen), Since::Events { events, .. } if events.is_empty()));
    assert!(matches!(table.since(seen - 1), Since::Compacted(_)));
    assert_eq!(table.compacted(), store.revision());
}
