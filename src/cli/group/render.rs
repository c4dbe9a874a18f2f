//! Output of pod groups.

use serde_json::{Value, json};

use crate::api::PodGroup;
use crate::api::pod_group::{SubGroup, TopologyConstraint};
use crate::cli::show::add_line;
use crate::workloads::files::Files;

/// One line of JSON.
pub fn json(file: &str, grouped: &anyhow::Result<Files>) -> Value {
    let files = match grouped {
        Ok(files) => files,
        Err(error) => return json!({"file": file, "error": format!("{error:#}")}),
    };
    let pods = files.written.iter().map(|(pod, written)| {
        let written = json!({"annotations": written.annotations, "labels": written.labels});
        (pod.clone(), written)
    });
    let refused = files.refused.iter();
    let refused = refused.map(|(workload, message)| json!({"workload": workload, "message": message}));
    let errors = files.errors.iter();
    let errors = errors.map(|(pod, message)| json!({"pod": pod, "message": message}));
    json!({
        "file": file,
        "podGroups": files.groups.values().map(AsRef::as_ref).collect::<Vec<&PodGroup>>(),
        "pods": pods.collect::<serde_json::Map<_, _>>(),
        "errors": refused.chain(errors).collect::<Vec<_>>(),
    })
}

/// For people.
pub fn table(file: &str, grouped: &anyhow::Result<Files>) -> String {
    let mut out = String::new();
    match grouped {
        Ok(files) => write_files(&mut out, file, files),
        Err(error) => add_line(&mut out, &format!("{file}: {error:#}")),
    }
    out
}

fn write_files(out: &mut String, file: &str, files: &Files) {
    add_line(out, file);
    for (key, group) in &files.groups {
        let rule = files.rules.get(key).map_or("it was there before", String::as_str);
        let spec = &group.spec;
        add_line(out, &format!("  PodGroup {}/{}", key.0, key.1));
        add_line(out, &format!("    rule       {rule}"));
        for owner in group.metadata.owner_references.iter().flatten() {
            add_line(out, &format!("    owner      {} {}", owner.kind, owner.name));
        }
        add_line(out, &format!("    queue      {}", spec.queue.as_deref().unwrap_or("-")));
        let class = spec.priority_class_name.as_deref().unwrap_or("-");
        let preemptibility = spec.preemptibility.as_deref().unwrap_or("by priority");
        add_line(out, &format!("    priority   {class}, preemptible: {preemptibility}"));
        let durations = [
            ("delay", &spec.preemption_delay),
            ("grace", &spec.staleness_grace_period),
        ];
        for (name, duration) in durations {
            if let Some(duration) = duration {
                add_line(out, &format!("    {name:<10} {duration}"));
            }
        }
        if let Some(near) = near(spec.topology_constraint.as_ref()) {
            add_line(out, &format!("    near       {near}"));
        }
        let needs = match (spec.min_sub_group, spec.min_member) {
            (Some(groups), _) => format!("{groups} of the sub-groups below"),
            (None, _) if !spec.sub_groups.is_empty() => "all of the sub-groups below".to_owned(),
            (None, Some(0)) => "nothing: each pod for itself".to_owned(),
            (None, pods) => format!("{} pods together", pods.unwrap_or(1)),
        };
        add_line(out, &format!("    starts     {needs}"));
        write_tree(out, &spec.sub_groups, None, 0);
        for (pod, written) in &files.written {
            let mine = pod.strip_prefix(&key.0).and_then(|rest| rest.strip_prefix('/'));
            let named = written.annotations.values().any(|group| *group == key.1);
            if let Some(pod) = mine.filter(|_| named) {
                let part = written.labels.values().next();
                let part = part.map(|part| format!(" in {part}")).unwrap_or_default();
                add_line(out, &format!("    pod        {pod}{part}"));
            }
        }
    }
    for (workload, message) in &files.refused {
        add_line(out, &format!("  {workload} is not grouped: {message}"));
    }
    for (pod, message) in &files.errors {
        add_line(out, &format!("  pod {pod} is not grouped: {message}"));
    }
}

fn write_tree(out: &mut String, groups: &[SubGroup], parent: Option<&str>, depth: usize) {
    for group in groups.iter().filter(|group| group.parent.as_deref() == parent) {
        let needs = match (group.min_sub_group, group.min_member) {
            (Some(groups), _) => format!("{groups} sub-groups"),
            (None, pods) => format!("{} pods", pods.unwrap_or(0)),
        };
        let near = near(group.topology_constraint.as_ref());
        let near = near.map(|near| format!(", near {near}")).unwrap_or_default();
        let indent = "  ".repeat(depth);
        add_line(out, &format!("               {indent}{}: {needs}{near}", group.name));
        if depth < 8 {
            write_tree(out, groups, Some(&group.name), depth + 1);
        }
    }
}

fn near(constraint: Option<&TopologyConstraint>) -> Option<String> {
    let constraint = constraint?;
    let topology = constraint.topology.as_deref()?;
    let level = |word: &str, level: &Option<String>| level.as_ref().map(|level| format!("{word} {level}"));
    let levels = [
        level("required", &constraint.required_topology_level),
        level("preferred", &constraint.preferred_topology_level),
    ];
    let levels: Vec<String> = levels.into_iter().flatten().collect();
    Some(match levels.is_empty() {
        true => topology.to_owned(),
        false => format!("{topology} ({})", levels.join(", ")),
    })
}
