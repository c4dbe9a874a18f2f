//! `unikai review`: the webhooks' answers for objects, without a cluster.

mod case;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

use super::progress::ProgressLine;
use super::show::{add_line, escaped};
use crate::components::admission::pods::PodContext;
use crate::components::admission::pods::queue_label::{Source, Workload};
use crate::components::admission::review::{Document, Operation, Verdict};
use crate::components::admission::{hints, pod_groups, pods, queues, topologies};
use case::{Case, Kind};

/// The assumed context of a pod: answers are reproducible, so generated names have no random part, and the objects that the settings name exist.
const CONTEXT: PodContext = PodContext {
    queue: None,
    has_runtime_class: true,
    random: "xxxxxxx",
};

/// Arguments of `unikai review`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Manifests (each object is reviewed as a creation, in a cluster with the other objects of all files; a pod whose queue is
    /// not among them gets a warning), or admission requests as the API server sends them (AdmissionReview)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Admit pods that request a part of a GPU
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    gpu_sharing: bool,

    /// Output format: text, or one line of JSON per request
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text: denials, warnings and changes.
    Text,
    /// One line of JSON per request.
    Json,
}

/// The result of a request.
struct Reviewed {
    verdict: Verdict,
    /// The object after mutation, without empty fields.
    object: Option<Value>,
}

/// Runs the subcommand. The status is 1 if a file could not be read or, for people, if a request is denied.
///
/// # Errors
/// When standard output is gone.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let mut status = ExitCode::SUCCESS;
    let mut questions: Vec<_> = args.files.iter().map(|file| (file, cases(file, &args))).collect();
    case::share(questions.iter_mut().filter_map(|(_, cases)| cases.as_mut().ok()));
    let objects = questions
        .iter()
        .filter_map(|(_, cases)| cases.as_ref().ok())
        .map(Vec::len)
        .sum();
    let (mut progress, mut done) = (ProgressLine::beside_output("objects are reviewed"), 0);
    for (file, cases) in questions {
        let name = file.display().to_string();
        let cases = match cases {
            Ok(cases) => cases,
            Err(error) => {
                status = ExitCode::FAILURE;
                match args.output {
                    Format::Json => writeln!(out, "{}", json!({"file": name, "error": format!("{error:#}")}))?,
                    Format::Text => writeln!(out, "{name}: {}", escaped(&format!("{error:#}")))?,
                }
                continue;
            }
        };
        for case in cases {
            progress.show(done, objects);
            done += 1;
            let reviewed = review(&case);
            match args.output {
                Format::Json => writeln!(out, "{}", line(&name, &case, &reviewed))?,
                Format::Text => {
                    if !reviewed.verdict.is_allowed() {
                        status = ExitCode::FAILURE;
                    }
                    write!(out, "{}", text(&case, &reviewed))?;
                }
            }
        }
        out.flush()?;
    }
    Ok(status)
}

fn cases(file: &Path, args: &Args) -> anyhow::Result<Vec<Case>> {
    let text = std::fs::read_to_string(file).context("it cannot be read")?;
    case::read(&text, args.gpu_sharing)
}

/// Runs the rules in the order of the API server: mutation, then validation of the result.
fn review(case: &Case) -> Reviewed {
    let Case {
        kind,
        request,
        settings,
        existing,
        ..
    } = case;
    let verdict = match kind {
        Kind::Pod => return review_pod(case),
        Kind::Queue => {
            let find = |name: &str| existing.queues.get(name).cloned();
            let hints = case.hints(|| hints::of_queue(request, &find, settings.queue_rules.quotas));
            queues::validate(request, &find, settings.queue_rules).warn(hints)
        }
        Kind::PodGroup => {
            pod_groups::validate(request).warn(case.hints(|| hints::of_pod_group(request, &existing.priority_classes)))
        }
        Kind::Topology => topologies::validate(request),
        Kind::Other => Verdict::allow(),
    };
    Reviewed { verdict, object: None }
}

fn review_pod(case: &Case) -> Reviewed {
    let settings = &case.settings;
    let mut request = case.request.clone();
    if request.operation == Operation::Delete {
        return Reviewed {
            verdict: Verdict::allow(),
            object: None,
        };
    }
    let mut warnings = Vec::new();
    let creation = request.operation == Operation::Create;
    if creation {
        let hints = case.hints(|| hints::of_pod(&request, &case.existing.priority_classes, settings));
        let mutated = pods::mutate(&request, CONTEXT, settings).warn(hints);
        if !mutated.is_allowed() {
            return Reviewed {
                verdict: mutated,
                object: None,
            };
        }
        warnings = mutated.warnings;
        if let Some(patch) = mutated.patch {
            let mut object = request.object.value();
            json_patch::patch(&mut object, &patch).expect("the patch was made from this object");
            request.object = Document::from(&object);
        }
    }
    let judged = pods::validate(&request, workload(case).as_ref(), settings);
    let verdict = Verdict {
        warnings: warnings.into_iter().chain(judged.warnings.clone()).collect(),
        ..judged
    };
    let object = (creation && verdict.is_allowed()).then(|| lean(request.object.value()));
    Reviewed { verdict, object }
}

/// The queue of a pod of a manifest, if the manifests contain queues. A pod without a queue runs in the default queue, which every cluster has.
fn workload(case: &Case) -> Option<Workload> {
    let existing = &case.existing;
    if !case.is_manifest || existing.queues.is_empty() {
        return None;
    }
    let label = format!("/metadata/labels/{}", case.settings.queue_label_key.replace('/', "~1"));
    let object = case.request.object.value();
    let own = object.pointer(&label).and_then(Value::as_str);
    let of_namespace = existing.namespace_queues.get(&case.request.namespace);
    let (queue, source) = match (own.filter(|queue| !queue.is_empty()), of_namespace) {
        (Some(own), _) => (own.to_owned(), Source::Pod),
        (None, Some(queue)) => (queue.clone(), Source::PodContext),
        (None, None) => return None,
    };
    let tree = existing.queues.values().map(|queue| &**queue).collect();
    Some(Workload { queue, source, tree })
}

/// Removes nulls and empty maps, lists and strings, which mean the same as absent fields.
fn lean(value: Value) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, lean(value)));
            Value::Object(fields.filter(|(_, value)| !empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(lean).collect()),
        other => other,
    }
}

/// Why no webhook reviews an object of a manifest; `None`: one does.
fn unreviewed(case: &Case) -> Option<String> {
    let object = case.is_manifest.then(|| case.request.object.value())?;
    let scheduler = &case.settings.scheduler_name;
    match case.kind {
        Kind::Other
            if object.pointer("/spec/template/spec").is_some() || WORKLOADS.contains(&object["kind"].as_str()?) =>
        {
            Some("no webhook reviews it; its pods are reviewed when they are created".to_owned())
        }
        Kind::Other => Some("no webhook reviews it".to_owned()),
        Kind::Pod if object["spec"]["schedulerName"] != scheduler.as_str() => {
            Some(format!("its schedulerName is not {scheduler}"))
        }
        Kind::Pod | Kind::Queue | Kind::PodGroup | Kind::Topology => None,
    }
}

/// Kinds that create pods.
const WORKLOADS: [&str; 6] = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"];

fn line(file: &str, case: &Case, reviewed: &Reviewed) -> Value {
    if case.kind == Kind::Other {
        let object = case.request.object.value();
        return json!({"file": file, "kind": object["kind"], "name": case.request.name, "reviewed": false});
    }
    let Reviewed { verdict, object } = reviewed;
    let (code, message) = match &verdict.denial {
        Some(denial) => (denial.code, denial.message.as_str()),
        None => (200, ""),
    };
    let mut line = json!({
        "file": file,
        "allowed": verdict.is_allowed(),
        "code": code,
        "message": message,
        "warnings": verdict.warnings,
    });
    if let Some(object) = object {
        line["object"] = object.clone();
    }
    line
}

fn text(case: &Case, reviewed: &Reviewed) -> String {
    let Reviewed { verdict, object } = reviewed;
    let mut text = String::new();
    let (kind, name) = (case.kind.name(), &case.request.name);
    if let Some(why) = unreviewed(case) {
        let object = case.request.object.value();
        let kind = object["kind"].as_str().unwrap_or_default();
        add_line(&mut text, &format!("{kind} {name}: not reviewed: {why}"));
        return text;
    }
    match &verdict.denial {
        Some(denial) => {
            let mut message = denial.message.lines();
            let first = message.next().unwrap_or_default();
            add_line(&mut text, &format!("{kind} {name}: denied: {first}"));
            for more in message {
                add_line(&mut text, &format!("    {more}"));
            }
        }
        None => add_line(&mut text, &format!("{kind} {name}: allowed")),
    }
    for warning in &verdict.warnings {
        add_line(&mut text, &format!("  warning: {warning}"));
    }
    if let Some(after) = object {
        let changes = json_patch::diff(&lean(case.request.object.value()), after);
        for change in &changes.0 {
            add_line(&mut text, &format!("  {change}"));
        }
    }
    text
}

#[cfg(test)]
mod tests;
