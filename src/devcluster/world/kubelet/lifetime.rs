//! How long simulated containers run and how they end.
//!
//! Annotations of a pod define it for all its containers:
//!
//! | annotation | meaning |
//! |---|---|
//! | `unikai.dev/run-seconds: "5"` | each container ends after so many seconds (fractions allowed) |
//! | `unikai.dev/exit-code: "1"` | the code it ends with; without `run-seconds` it ends at once |
//! | `unikai.dev/ignore-sigterm: "true"` | the pod dies only when its whole grace period is over |
//!
//! Without annotations, a command of simple steps is understood: `sleep N`, `true`, `false`, and `sh -c` scripts of `sleep`, `exit`,
//! `echo`, `true` and `false`, and the argument `--version`. Any other container runs until it is deleted, or as long as the world's settings say if its pod
//! is meant to end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::devcluster::world::resources::is_sidecar;

/// Seconds that each container of the pod runs.
const RUN_SECONDS: &str = "unikai.dev/run-seconds";
/// Exit code of each container of the pod.
const EXIT_CODE: &str = "unikai.dev/exit-code";
/// `"true"`: SIGTERM does not end the pod.
pub(super) const IGNORE_SIGTERM: &str = "unikai.dev/ignore-sigterm";

/// How one container ends; `after: None` is never by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub after: Option<Duration>,
    pub code: i32,
}

/// What happens to a pod once its containers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It runs until it is deleted.
    RunsOn,
    /// All containers end for good; the last one after this time.
    Ends(Duration),
    /// A container ends after this time and is started again.
    Restarts(Duration),
}

/// The simulated life of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// How long the init containers take together.
    pub init: Duration,
    /// The code of the init container that fails, if one does.
    pub init_failure: Option<i32>,
    /// In the order of `spec.containers`.
    pub containers: Vec<Exit>,
    pub outcome: Outcome,
    /// Whether a failed init container fails the pod.
    pub never_restarts: bool,
    pub ignores_sigterm: bool,
}

impl Lifetime {
    /// The lifetime of `pod`; `default_run` applies to containers of pods that are meant to end and do not define it.
    pub fn of(pod: &Pod, default_run: Option<Duration>) -> Self {
        let annotation = |key: &str| {
            pod.metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(key))
                .map(String::as_str)
        };
        let (init_containers, main, policy) = pod.spec.as_ref().map_or((&[][..], &[][..], None), |spec| {
            (
                spec.init_containers.as_deref().unwrap_or_default(),
                spec.containers.as_slice(),
                spec.restart_policy.as_deref(),
            )
        });
        let policy = policy.unwrap_or("Always");
        let default_run = if policy == "Always" { None } else { default_run };
        let told = told(annotation(RUN_SECONDS), annotation(EXIT_CODE));
        let containers: Vec<Exit> = main
            .iter()
            .map(|container| {
                told.or_else(|| understood(container)).unwrap_or(Exit {
                    after: default_run,
                    code: 0,
                })
            })
            .collect();
        let steps = init_containers.iter().filter(|container| !is_sidecar(container));
        let (init, init_failure) = init_steps(steps.filter_map(understood));
        Self {
            init,
            init_failure,
            outcome: outcome(&containers, policy),
            containers,
            never_restarts: policy == "Never",
            ignores_sigterm: annotation(IGNORE_SIGTERM) == Some("true"),
        }
    }

    /// Whether any container of a pod that ended failed.
    pub fn fails(&self) -> bool {
        self.containers.iter().any(|exit| exit.code != 0)
    }
}

/// The exit of every container by the annotations.
fn told(run_seconds: Option<&str>, exit_code: Option<&str>) -> Option<Exit> {
    let after = run_seconds.and_then(seconds);
    let code = exit_code.and_then(|code| code.parse().ok());
    (after.is_some() || code.is_some()).then(|| Exit {
        after: Some(after.unwrap_or(Duration::ZERO)),
        code: code.unwrap_or(0),
    })
}

/// How long the init steps take, up to the first that fails.
fn init_steps(steps: impl Iterator<Item = Exit>) -> (Duration, Option<i32>) {
    let mut taken = Duration::ZERO;
    for step in steps {
        taken = taken.saturating_add(step.after.unwrap_or(Duration::ZERO));
        if step.code != 0 {
            return (taken, Some(step.code));
        }
    }
    (taken, None)
}

fn outcome(containers: &[Exit], policy: &str) -> Outcome {
    let restarted = |exit: &&Exit| policy == "Always" || (policy == "OnFailure" && exit.code != 0);
    if let Some(first) = containers.iter().filter(restarted).filter_map(|exit| exit.after).min() {
        return Outcome::Restarts(first);
    }
    let ends: Option<Vec<Duration>> = containers.iter().map(|exit| exit.after).collect();
    match ends {
        Some(ends) if policy != "Always" => Outcome::Ends(ends.into_iter().max().unwrap_or(Duration::ZERO)),
        Some(_) | None => Outcome::RunsOn,
    }
}

/// The exit of a container whose command is made of simple steps.
fn understood(container: &Container) -> Option<Exit> {
    let words: Vec<&str> = container
        .command
        .iter()
        .flatten()
        .chain(container.args.iter().flatten())
        .map(String::as_str)
        .collect();
    let (program, rest) = words.split_first()?;
    match (base_name(program), rest) {
        ("sh" | "bash" | "ash", [flags, script, ..]) if flags.starts_with('-') && flags.ends_with('c') => {
            run_script(script)
        }
        ("sh" | "bash" | "ash", _) => None,
        _ => run_steps([words.join(" ")].iter().map(String::as_str)),
    }
}

fn run_script(script: &str) -> Option<Exit> {
    run_steps(
        script
            .split([';', '\n', '&'])
            .map(str::trim)
            .filter(|step| !step.is_empty()),
    )
}

/// Runs the steps one after another; `None` when one is not understood. `&&` is taken for `;`.
fn run_steps<'a>(steps: impl Iterator<Item = &'a str>) -> Option<Exit> {
    let (mut taken, mut code) = (Duration::ZERO, 0);
    for step in steps {
        let words: Vec<&str> = step.split_whitespace().collect();
        match (base_name(words.first()?), &words[1..]) {
            ("sleep", ["infinity" | "inf"]) => return Some(Exit { after: None, code: 0 }),
            ("sleep", [time]) => (taken, code) = (taken.saturating_add(seconds(time)?), 0),
            ("exit", []) => {
                return Some(Exit {
                    after: Some(taken),
                    code,
                });
            }
            ("exit", [status]) => {
                return Some(Exit {
                    after: Some(taken),
                    code: status.parse().ok()?,
                });
            }
            ("true" | "echo" | ":" | "--version", _) => code = 0,
            ("false", _) => code = 1,
            _ => return None,
        }
    }
    Some(Exit {
        after: Some(taken),
        code,
    })
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Seconds, with the suffixes of `sleep`.
fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = match text.as_bytes().last()? {
        b's' => (&text[..text.len() - 1], 1.0),
        b'm' => (&text[..text.len() - 1], 60.0),
        b'h' => (&text[..text.len() - 1], 3600.0),
        b'd' => (&text[..text.len() - 1], 86400.0),
        _ => (text, 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests;
