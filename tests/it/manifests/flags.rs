//! What the flags of `unikai manifests` change.

use std::process::Command;

#[test]
fn names_of_objects_and_labels_follow_the_flags() {
    let names = [
        ("--scheduler-name", "'kai-scheduler'", "another-scheduler"),
        ("--queue-label-key", "kai.scheduler/queue", "example.com/queue-of"),
        (
            "--node-pool-label-key",
            "kai.scheduler/node-pool",
            "example.com/pool-of",
        ),
        ("--reservation-namespace", "kai-resource-reservation", "held"),
        (
            "--reservation-service-account",
            "kai-resource-reservation",
            "held-account",
        ),
        ("--scale-adjust-namespace", "kai-scale-adjust", "scaled"),
        ("--scale-adjust-service-account", "kai-scale-adjust", "scaled-account"),
    ];
    let printed = Command::new(env!("CARGO_BIN_EXE_unikai"))
        .arg("manifests")
        .args(names.iter().flat_map(|(flag, _, name)| [flag, name]))
        .output()
        .unwrap();
    assert!(printed.status.success());
    let printed = String::from_utf8(printed.stdout).unwrap();
    let policies: Vec<&str> = printed
        .split("\n---\n")
        .filter(|object| object.contains("kind: ValidatingAdmissionPolicy\n"))
        .collect();
    assert_eq!(policies.len(), 3);
    for (flag, usual, name) in names {
        assert!(policies.iter().any(|policy| policy.contains(name)), "{flag}");
        assert!(!policies.iter().any(|policy| policy.contains(usual)), "{flag}: {usual}");
    }
}
