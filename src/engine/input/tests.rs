use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn packed_pairs_are_read_as_written(pairs in prop::collection::vec(("\\PC{0,20}", any::<String>()), 0..6)) {
        let packed: Pairs = pairs.iter().map(|(key, value)| (key, value)).collect();
        let expected: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
        prop_assert_eq!(packed.iter().collect::<Vec<_>>(), expected);
        for (key, _) in &pairs {
            let first = pairs.iter().find(|(other, _)| other == key).map(|(_, value)| &**value);
            prop_assert_eq!(packed.get(key), first);
        }
    }
}

#[test]
fn long_texts_are_cut_to_the_maximum_length() {
    for length in [
        0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0x4_0000, 0x10_F7FF,
    ] {
        let text = "x".repeat(length);
        let pairs = Pairs::from_iter([("a", &*text), ("b", "y")]);
        assert_eq!(pairs.get("a").map(str::len), Some(length), "{length:#x}");
        assert_eq!(pairs.get("b"), Some("y"), "{length:#x}");
    }
    let text = "x".repeat(0x10_F800);
    let pairs = Pairs::from_iter([("a", &*text), ("b", "y")]);
    assert_eq!(pairs.iter().collect::<Vec<_>>(), [("b", "y")]);
}
