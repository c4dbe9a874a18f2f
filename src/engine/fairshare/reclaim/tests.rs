use super::{Claim, Holdings, Loss, legitimate, may_donate, may_reclaim};
use crate::engine::tests::holdings::{amounts, holdings};

#[test]
fn queues_that_may_reclaim() {
    /// (fair share, allocated, pod group, preemptible, quota, held by non-preemptible work, verdict)
    type Row = (
        &'static str,
        &'static str,
        &'static str,
        bool,
        &'static str,
        &'static str,
        bool,
    );
    let rows: &[Row] = &[
        ("2000,2000,2", "0,0,0", "1000,1000,1", true, "0,0,0", "0,0,0", true),
        (
            "2000,2000,2",
            "1000,1000,1",
            "1000,1000,1",
            true,
            "0,0,0",
            "0,0,0",
            true,
        ),
        ("2000,2000,2", "1000,1000,1", "500,1000,0", true, "0,0,0", "0,0,0", true),
        (
            "1500,3000,1",
            "1000,1000,1",
            "1,1000,1000",
            true,
            "0,0,0",
            "0,0,0",
            false,
        ),
        ("3000,3000,0", "2000,1000,1", "1,1,0", true, "0,0,0", "0,0,0", false),
        (
            "2000,2000,2",
            "0,0,0",
            "1000,1000,1",
            false,
            "1000,1000,1",
            "0,0,0",
            true,
        ),
        (
            "2000,2000,2",
            "0,0,0",
            "1,1000,1000",
            false,
            "1000,500,0",
            "0,0,0",
            false,
        ),
        (
            "3000,3000,3",
            "1000,1000,1",
            "1000,1000,1",
            false,
            "3000,3000,3",
            "1000,1000,1",
            true,
        ),
        ("3000,3000,3", "1000,1000,1", "1,1,1", false, "0,0,0", "0,0,0", false),
        ("0,0,0.5", "0,0,0", "0,0,0.4", true, "0,0,0", "0,0,0", true),
        ("0,0,0.5", "0,0,0", "0,0,0.525", true, "0,0,0", "0,0,0", false),
    ];
    for (fair, held, entry, preemptible, quota, non_preemptible, verdict) in rows {
        let (mut engine, id) = holdings(&[&format!("q {quota}/{fair}/{held}")]);
        engine.model.queue_mut(id("q")).non_preemptible = amounts(non_preemptible);
        let may = may_reclaim(&engine.model, id("q"), &amounts(entry), *preemptible);
        assert_eq!(may, *verdict, "{fair} fair, {held} held, {entry} asked");
    }
}

#[test]
fn queues_that_may_be_reclaimed_from() {
    let rows = [
        ("4/4/0", "4/4/2", "2", false),
        ("4/4/0", "0/4/4", "2", true),
        ("4/4/0", "2/4/2", "2", true),
        ("1/4/0", "2/4/3", "2", false),
        ("1/4/0", "2/4/5", "2", true),
        ("4/4/0", "9,9,2/9,9,4/1,1,2", "2", true),
        ("4/4/0", "9,9,2/9,9,4/1,1,1", "2", false),
        ("4/4/0", "9,9,2/9,9,4/1,1,3", "2", true),
        ("4/4/0", "9,9,-1/9,9,4/1,1,3", "2", true),
    ];
    for (ours, theirs, entry, verdict) in rows {
        let (engine, id) = holdings(&[&format!("r {ours}"), &format!("v {theirs}")]);
        let may = may_donate(&engine.model, id("r"), id("v"), &amounts(entry));
        assert_eq!(may, verdict, "{ours} from {theirs}");
    }
}

/// Whether a preemptible pod group may take bundles, `QUEUE BUNDLE…`, from others.
fn judged(tree: &[&str], claim: (&str, &str, bool), losses: &[&str]) -> bool {
    let (mut engine, id) = holdings(tree);
    let (leaf, entry, preemptible) = claim;
    for queue in tree.iter().filter(|line| line.contains(" held")) {
        let held = queue.rsplit('=').next().expect("held=GPUs");
        let name = queue.split(['<', ' ']).next().expect("a name");
        engine.model.queue_mut(id(name)).non_preemptible = amounts(held);
    }
    let losses: Vec<Loss> = losses
        .iter()
        .map(|loss| {
            let mut words = loss.split_whitespace();
            let leaf = id(words.next().expect("a queue"));
            let bundles = words.map(amounts).collect();
            Loss { leaf, bundles }
        })
        .collect();
    let claim = Claim {
        leaf: id(leaf),
        entry: amounts(entry),
        preemptible,
        multiplier: 1_000_000,
    };
    legitimate(&engine.model, &Holdings::now(&engine.model), &claim, &losses)
}

#[test]
fn reclaim_between_two_queues_of_a_department() {
    let rows: &[(&str, &str, &str, bool, bool)] = &[
        ("5/5/5", "3/3/2", "2/2/3", true, true),
        ("5/5/4", "3/3/2", "2/2/2", true, false),
        ("5/5/3", "3/3/2", "2/2/1", true, false),
        ("5/5/5", "3/3/2", "2/3/3", true, true),
        ("7/10/6", "3/3/3", "2/2/3", true, false),
        ("5/5/6", "3/3/3", "2/2/3", true, false),
        ("5/5/5", "2/3/2", "2/2/3", false, true),
        ("3/5/5", "2/3/2", "2/2/3", false, true),
        ("3/5/5 held=3", "2/3/2", "2/2/3", false, false),
        ("1/1/3", "2/3/2", "2/2/3", true, true),
    ];
    for (top, ours, theirs, preemptible, verdict) in rows {
        let tree = [format!("d {top}"), format!("p1<d {ours}"), format!("p2<d {theirs}")];
        let tree: Vec<&str> = tree.iter().map(String::as_str).collect();
        assert_eq!(
            judged(&tree, ("p1", "1", *preemptible), &["p2 1"]),
            *verdict,
            "{tree:?}"
        );
    }
}

#[test]
fn reclaim_between_departments() {
    let rows: &[(&str, &str, bool)] = &[
        ("3/3/2", "2/2/3", true),
        ("3/3/2", "2/2/2", false),
        ("3/3/1", "2/4/3", true),
    ];
    for (ours, theirs, verdict) in rows {
        let tree = [
            format!("d1 {ours}"),
            format!("p1<d1 {ours}"),
            format!("d2 {theirs}"),
            format!("p2<d2 {theirs}"),
        ];
        let tree: Vec<&str> = tree.iter().map(String::as_str).collect();
        assert_eq!(judged(&tree, ("p1", "1", true), &["p2 1"]), *verdict, "{tree:?}");
    }
}

#[test]
fn reclaim_in_deeper_trees() {
    let right = ["rt 1/1/2", "rm<rt 1/1/2", "rl<rm 1/1/2"];
    let left = ["lt 1/1/0", "lm<lt 1/1/0", "ll<lm 1/1/0"];
    let tree = [&left[..], &right].concat();
    assert!(judged(&tree, ("ll", "1", true), &["rl 2"]));

    let left = ["lt 1/1/1", "lm<lt 1/1/0", "ll<lm 1/1/0", "over<lt 0/0/1"];
    let tree = [&left[..], &right].concat();
    assert!(
        !judged(&tree, ("ll", "1", true), &["rl 2"]),
        "its top would hold 2 of 1"
    );

    let tree = [
        "top 2/2/2",
        "m1<top 1/1/0.5",
        "l1<m1 1/1/0",
        "l2<m1 0/0/0.5",
        "m2<top 1/1/1.5",
        "r<m2 1/1/1.5",
    ];
    assert!(
        !judged(&tree, ("l1", "1", true), &["r 1.5"]),
        "its department would hold 1.5 of 1"
    );
    assert!(judged(&tree, ("l1", "1", true), &["r 1.5", "l2 0.5"]));

    let tree = ["d1 4/4/4", "p1<d1 3/1/0", "p2<d1 1/3/4", "d2 3/3/7", "p3<d2 3/3/7"];
    assert!(
        judged(&tree, ("p1", "1", true), &["p3 1"]),
        "5 of 4 is less than 6 of 3"
    );

    let tree = [
        "d1 3000,0,4/1000,0,4/3000,0,4",
        "p1<d1 3000,0,3/1000,0,1/0,0,0",
        "p2<d1 0,0,1/0,0,3/3000,0,4",
        "d2 1000,0,3/1000,0,3/1000,0,7",
        "p3<d2 1000,0,3/1000,0,3/1000,0,7",
    ];
    assert!(judged(&tree, ("p1", "1", true), &["p3 1"]), "nobody asks for cpu");
}

#[test]
fn a_donor_is_over_its_share_or_over_its_quota_below_that_of_the_reclaimer() {
    // The reclaimer is far below its fair share, and above its quota.
    let over_share = |donor: &str| judged(&["r 0/100/0", &format!("v {donor}")], ("r", "1", true), &["v 1"]);
    for (donor, verdict) in [
        ("3/4/1", false),
        ("3/4/3", false),
        ("1/3/3", false),
        ("3/3/3", false),
        ("2/3/4", true),
        ("100,100,100/200,200,200/80,220,220", true),
        ("100,100,100/200,200,200/220,80,80", true),
        ("200,200,200/200,200,200/120,120,120", false),
        ("200,200,200/200,200,200/50,120,30/100,100,100", true),
    ] {
        assert_eq!(over_share(donor), verdict, "{donor}");
    }
    // The pod group asks for 2, the fair shares are large, so the quotas decide.
    let over_quota = |ours: &str, donor: &str| {
        let tree = [&*format!("r {ours}"), &*format!("v {donor}")];
        judged(&tree, ("r", "2", true), &["v 1"])
    };
    for (ours, donor, verdict) in [
        ("1/100/3", "1/100/3", false),
        ("5/100/3", "1/100/4", true),
        ("5/100/3", "1/100/3", true),
        ("4/100/2", "3/100/4", true),
        ("5/100/2", "9,0,1/9,0,100/1,0,3", true),
        ("5/100/2", "3/100/3", false),
        ("5/100/2", "3/100/2", false),
        ("4/100/2", "0/100/2", true),
    ] {
        assert_eq!(over_quota(ours, donor), verdict, "{ours} from {donor}");
    }
}

#[test]
fn the_last_bundle_may_go_below_and_no_bundle_after_it() {
    let tree = ["r 2/2/0", "v 2/2/3"];
    assert!(judged(&tree, ("r", "2", true), &["v 2"]));
    assert!(!judged(&tree, ("r", "2", true), &["v 1 1"]));
}

#[test]
fn a_donor_that_falls_below_its_quota_finds_the_difference_elsewhere() {
    // The reclaimer is above its quota afterwards; the donor, above its share by half a GPU, can only give two GPUs at once.
    let of_tree = |tree: &[&str]| judged(tree, ("r", "1", true), &["v 2"]);
    let beside = |others: &[&str]| of_tree(&[&["r 0/1/0", "v 3/3/3.5"], others].concat());
    assert!(!beside(&[]), "the donor is short of 1.5 GPUs, and nothing is left");
    assert!(!beside(&["s 0/1/2"]), "another queue can give back 1 GPU");
    assert!(beside(&["s 0/1/2.5"]));
    let within_quota = ["r 1/1/0", "v 3/3/3.5"];
    assert!(of_tree(&within_quota), "the donor cannot reclaim it");
    let with_little_demand = ["r 0/1/0", "v 3/1.5/3.5"];
    assert!(of_tree(&with_little_demand), "the donor needs no more");
    let below_another = ["top 9/9/3.5", "v<top 3/3/3.5", "r<top 0/1/0", "side 0/1/2.5"];
    assert!(of_tree(&below_another), "a queue above gets it");
}
