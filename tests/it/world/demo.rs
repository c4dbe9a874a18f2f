//! `unikai demo` as a person runs it.

use std::process::Command;

/// A text with single spaces.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_demo_prints_figures_of_one_moment() {
    let output = Command::new(env!("CARGO_BIN_EXE_unikai"))
        .arg("demo")
        .output()
        .expect("it runs");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        !text.contains('\x1b'),
        "no signs for terminals where there is none: {text}"
    );

    let expected = [
        "1. Two teams share 16 GPUs: the queues red and blue have a quota of 8 each, and each may use GPUs that the other does not need.",
        "teams 0 0 - - 0 0 0",
        "gpu-node-1 Ready 8 8 ········",
        "2. Shared GPU: blue starts two notebooks that need half a GPU each, and both get the same one.",
        "blue 1 1 8 - 1 0 2",
        "notebook-1 blue Running 1/1 0.5",
        "notebook-2 blue Running 1/1 0.5",
        "3. Fair share: red starts a Job of four workers with 4 GPUs each, and since blue does not need the rest, three run, with 4 GPUs over red's quota.",
        "teams 13 16 - - 17 1 3",
        "blue 1 1 8 - 1 0 2",
        "red 12 15 8 - 16 1 1",
        "workers red PartlyRunning 3/4 16 Waits for 4 GPUs: queue red holds 12 of its fair share of 15 GPUs",
        "4. Reclaim: blue starts a gang of two pods with 3 GPUs each, and since its quota covers both, one of red's workers is evicted for it.",
        "teams 15 16 - - 23 1 4",
        "blue 7 7 8 - 7 0 3",
        "red 8 9 8 - 16 1 1",
        "gang blue Running 2/2 6",
        "workers red PartlyRunning 2/4 16 Waits for 4 GPUs: queue red holds 8 of its fair share of 9 GPUs",
        "Now try it yourself: `unikai dev`",
    ];
    let mut lines = text.lines().map(words);
    for wanted in expected {
        assert!(
            lines.any(|line| line.starts_with(wanted)),
            "{wanted:?} is not in its place in:\n{text}"
        );
    }
    // In the last picture 15 of the 16 GPUs are in use.
    let last = text.rsplit("\n4. ").next().unwrap_or_default();
    let nodes = last.lines().map(words).filter(|line| line.starts_with("gpu-node-"));
    let free: f64 = nodes
        .map(|line| {
            line.split(' ')
                .nth(3)
                .and_then(|free| free.parse::<f64>().ok())
                .expect("a figure")
        })
        .sum();
    assert_eq!(free, 1.0, "{last}");
}
