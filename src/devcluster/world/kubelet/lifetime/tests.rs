use serde_json::{Value, json};

use super::*;

fn command(words: &[&str]) -> Option<(Option<u64>, i32)> {
    let container = Container {
        command: Some(words.iter().map(ToString::to_string).collect()),
        ..Container::default()
    };
    understood(&container).map(|exit| (exit.after.map(|after| after.as_secs()), exit.code))
}

#[test]
fn simple_commands_are_understood_and_others_are_not() {
    assert_eq!(command(&["sleep", "5"]), Some((Some(5), 0)));
    assert_eq!(command(&["/bin/sleep", "2m"]), Some((Some(120), 0)));
    assert_eq!(command(&["sleep", "infinity"]), Some((None, 0)));
    assert_eq!(command(&["true"]), Some((Some(0), 0)));
    assert_eq!(command(&["/bin/false"]), Some((Some(0), 1)));
    assert_eq!(
        command(&["sh", "-c", "echo hello; sleep 3 && exit 4"]),
        Some((Some(3), 4))
    );
    assert_eq!(command(&["bash", "-ec", "sleep 1\nfalse"]), Some((Some(1), 1)));
    assert_eq!(command(&["sh", "-c", "python train.py"]), None);
    assert_eq!(command(&["sh"]), None);
    assert_eq!(command(&["nginx", "-g", "daemon off;"]), None);
    assert_eq!(command(&["sleep", "soon"]), None);
    assert_eq!(command(&[]), None);
}

fn lifetime(pod: Value) -> Lifetime {
    Lifetime::of(
        &serde_json::from_value(pod).expect("a pod"),
        Some(Duration::from_secs(30)),
    )
}

fn pod(policy: &str, commands: &[&str]) -> Value {
    let containers: Vec<Value> = commands
        .iter()
        .map(|c| json!({"name": "c", "command": ["sh", "-c", c]}))
        .collect();
    json!({"spec": {"restartPolicy": policy, "containers": containers}})
}

#[test]
fn the_restart_policy_decides_between_restart_and_end() {
    let secs = Duration::from_secs;
    let cases = [
        (pod("Never", &["sleep 5", "sleep 2; exit 1"]), Outcome::Ends(secs(5))),
        (pod("Never", &["sleep infinity", "false"]), Outcome::RunsOn),
        (pod("Never", &["serve"]), Outcome::Ends(secs(30))),
        (
            pod("OnFailure", &["sleep 5", "sleep 2; exit 1"]),
            Outcome::Restarts(secs(2)),
        ),
        (pod("OnFailure", &["sleep 5", "sleep 2"]), Outcome::Ends(secs(5))),
        (pod("Always", &["sleep 5", "serve"]), Outcome::Restarts(secs(5))),
        (pod("Always", &["serve"]), Outcome::RunsOn),
    ];
    for (pod, expected) in cases {
        assert_eq!(lifetime(pod.clone()).outcome, expected, "{pod}");
    }
}

#[test]
fn annotations_apply_to_all_containers() {
    let mut told = pod("Never", &["sleep infinity", "serve"]);
    told["metadata"] = json!({"annotations": {(RUN_SECONDS): "1.5", (EXIT_CODE): "3", (IGNORE_SIGTERM): "true"}});
    let life = lifetime(told);
    assert_eq!(life.outcome, Outcome::Ends(Duration::from_millis(1500)));
    assert!(life.fails() && life.ignores_sigterm);
    let mut told = pod("Never", &["serve"]);
    told["metadata"] = json!({"annotations": {(EXIT_CODE): "3"}});
    assert_eq!(lifetime(told).outcome, Outcome::Ends(Duration::ZERO));
}

#[test]
fn init_steps_take_their_time_and_sidecars_none() {
    let mut pod = pod("Never", &["serve"]);
    pod["spec"]["initContainers"] = json!([
        {"name": "side", "restartPolicy": "Always", "command": ["sleep", "100"]},
        {"name": "one", "command": ["sleep", "2"]},
        {"name": "two", "command": ["sh", "-c", "sleep 1; exit 9"]},
        {"name": "three", "command": ["sleep", "50"]},
    ]);
    let life = lifetime(pod);
    assert_eq!((life.init, life.init_failure), (Duration::from_secs(3), Some(9)));
}
