//! The first steps of a new user: a cluster, a Job that waits, the reason, and the remedy. Every command is one that the README has or that
//! a command before it printed.

use std::process::Command;

use super::dev::Dev;
use crate::polling::eventually;

/// The block of commands of the README that has this one in it.
fn block_with(command: &str) -> Vec<String> {
    let readme = include_str!("../../../README.md");
    let mut blocks = readme.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.lines().any(|line| line == command));
    let block = block.unwrap_or_else(|| panic!("the README has no {command}"));
    block
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// What a command prints, typed in the folder of the repository, with that kubeconfig. `cargo run --` and `unikai` are this build.
fn typed(command: &str, kubeconfig: &str) -> String {
    let unikai = env!("CARGO_BIN_EXE_unikai");
    let own = ["cargo run -- ", "unikai "].into_iter();
    let own = own.filter_map(|program| command.strip_prefix(program)).next();
    let line = own.map_or_else(|| command.to_owned(), |arguments| format!("{unikai} {arguments}"));
    let output = Command::new("sh")
        .args(["-c", &line])
        .env("KUBECONFIG", kubeconfig)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("a shell");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let text = text.concat();
    assert!(output.status.success(), "{line}: {text}");
    text
}

/// A command that some output has, in a line of its own or at the end of one.
fn printed(output: &str, command: &str) -> Option<String> {
    let mut lines = output.lines().filter_map(|line| Some(&line[line.find(command)?..]));
    lines.next().map(|line| line.trim_end().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_steps_need_only_commands_that_are_printed() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        eprintln!("kubectl is not installed: skipped");
        return;
    }
    assert!(include_str!("../../../README.md").contains("`cargo run -- dev` runs such a cluster until it is stopped"));
    let mut dev = Dev::start(&[]);
    let told = dev.read_until("Ctrl-C");
    let kubeconfig = printed(&told, "export KUBECONFIG=").expect("the path");
    let kubeconfig = kubeconfig.trim_start_matches("export KUBECONFIG=");
    let nodes = printed(&told, "kubectl get nodes").expect("a first command");
    assert!(typed(&nodes, kubeconfig).contains("gpu-node-1"));

    let steps = block_with("kubectl apply -f docs/examples/waits.yaml");
    let (submit, look) = (&steps[0], &steps[1]);
    assert_eq!(steps.len(), 2);
    typed(submit, kubeconfig);
    let why = eventually("it is said how to ask why", async || {
        let jobs = typed(look, kubeconfig);
        let waits = jobs.contains("too-much") && jobs.contains("Queue small is at its limit");
        waits
            .then(|| printed(&jobs, "unikai explain podgroup "))
            .flatten()
            .ok_or(jobs)
    })
    .await;
    let said = typed(&why, kubeconfig);
    let first = said.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("Queue small is at its limit of 1 CPU (0 used, asks 2)"),
        "{said}"
    );
    let fix = printed(&said, "kubectl patch queue small ").unwrap_or_else(|| panic!("no remedy: {said}"));
    assert!(
        fix.ends_with(r#"'{"spec":{"resources":{"cpu":{"limit":2000}}}}'"#),
        "{fix}"
    );
    typed(&fix, kubeconfig);
    eventually("it runs", async || {
        let jobs = typed(look, kubeconfig);
        let mut lines = jobs.lines().filter(|line| line.contains("too-much"));
        let runs = lines.any(|line| line.contains("Running"));
        runs.then_some(()).ok_or(jobs)
    })
    .await;
    let said = typed(&why, kubeconfig);
    assert!(said.contains(" has a node."), "{said}");
}
