//! Volumes and claims with a VolumeAttributesClass.

use super::{Case, check};

#[test]
fn a_volume_is_for_claims_of_its_attributes_class_only() {
    const CASES: &[Case] = &[
        (
            "of the same class",
            &["v 10 attributes=gold"],
            &[],
            "c wait attributes=gold",
            "....",
        ),
        (
            "of another class",
            &["v 10 attributes=tin"],
            &[],
            "c wait attributes=gold",
            "VVVV",
        ),
        ("the claim has none", &["v 10 attributes=tin"], &[], "c wait", "VVVV"),
        ("the volume has none", &["v 10"], &[], "c wait attributes=gold", "VVVV"),
        (
            "the larger of two volumes",
            &["v 10", "w 20 attributes=gold on zone=b"],
            &[],
            "c wait attributes=gold",
            "VV.V",
        ),
        (
            "meant for the claim, and of another class",
            &["v 10 for c"],
            &[],
            "c wait attributes=gold",
            "VVVV",
        ),
        (
            "of another class, but others can be made",
            &["v 10"],
            &[],
            "c wait made attributes=gold",
            "....",
        ),
    ];
    check(CASES, false);
}
