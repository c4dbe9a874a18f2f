//! Modules import one another in one direction: only a module and its own parts may import each other.
//!
//! Two modules side by side in a folder are compared with all modules below them, so that a cycle through their parts is found, too.

use std::collections::{BTreeMap, BTreeSet};

use super::assert_none;
use super::source::{File, rust_files};

/// The top modules in which this holds.
const HELD: &[&str] = &[
    "api",
    "cli",
    "components",
    "config",
    "devcluster",
    "engine",
    "mirror",
    "operator",
    "simulate",
    "usage",
];

/// A module's path, without `crate`.
type Module = Vec<String>;

/// For one folder: which module side by side in it imports which, each with an example.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn modules_import_one_another_in_one_direction() {
    let mut broken = Vec::new();
    for top in HELD {
        let mut files = rust_files(&format!("src/{top}"));
        files.extend(
            rust_files("src")
                .into_iter()
                .filter(|file| file.path == format!("src/{top}.rs")),
        );
        files.retain(|file| !file.is_test());
        assert!(files.len() > 1, "src/{top} holds modules");
        let folders = imports_by_folder(&files);
        assert!(!folders.is_empty(), "the modules of src/{top} import one another");
        for (folder, imports) in folders {
            broken.extend(circle(&imports).map(|circle| {
                let steps = circle.windows(2).map(|pair| imports[&pair[0]][&pair[1]].clone());
                format!(
                    "{folder}: {} import one another; move what both need below them, or one of them into the other:\n    {}",
                    circle[1..].join(", "),
                    steps.collect::<Vec<_>>().join("\n    ")
                )
            }));
        }
    }
    assert_none(&broken);
}

/// The imports of modules side by side, by the folder that they are in.
fn imports_by_folder(files: &[File]) -> BTreeMap<String, Imports> {
    let modules: BTreeSet<Module> = files.iter().map(module_of).collect();
    let mut folders: BTreeMap<String, Imports> = BTreeMap::new();
    for file in files {
        let own = module_of(file);
        for (line, path) in file.paths() {
            let Some(used) = resolve(&modules, &own, &path) else {
                continue;
            };
            let common = own.iter().zip(&used).take_while(|(left, right)| left == right).count();
            // A module and its own part.
            if common == own.len() || common == used.len() {
                continue;
            }
            let example = format!("{}:{line}: {}", file.path, path.join("::"));
            let imports = folders.entry(own[..common].join("::")).or_default();
            let from = imports.entry(own[common].clone()).or_default();
            from.entry(used[common].clone()).or_insert(example);
        }
    }
    folders
}

fn module_of(file: &File) -> Module {
    let path = file.path.trim_start_matches("src/").trim_end_matches(".rs");
    path.split('/').map(str::to_owned).collect()
}

/// The module that a path in another module leads to, or leads into.
fn resolve(modules: &BTreeSet<Module>, own: &Module, path: &[String]) -> Option<Module> {
    let mut at: Module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => own.clone(),
        _ => return None,
    };
    for part in path {
        match part.as_str() {
            "crate" => {}
            "super" => {
                at.pop();
            }
            part => at.push(part.to_owned()),
        }
    }
    while !at.is_empty() && !modules.contains(&at) {
        at.pop();
    }
    (!at.is_empty()).then_some(at)
}

/// A shortest circle, if there is one: the modules on it, the first once more at the end.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let circles = imports.keys().filter_map(|start| {
        let mut before: BTreeMap<&String, &String> = BTreeMap::new();
        let mut open: Vec<&String> = vec![start];
        while !open.is_empty() {
            let mut next = Vec::new();
            for from in open {
                for to in imports.get(from).into_iter().flat_map(BTreeMap::keys) {
                    if !before.contains_key(to) {
                        before.insert(to, from);
                        next.push(to);
                    }
                }
            }
            if before.contains_key(start) {
                let way = std::iter::successors(Some(start), |at| before.get(at).copied());
                let mut circle: Vec<String> = vec![start.clone()];
                circle.extend(way.skip(1).take_while(|at| *at != start).cloned());
                circle.push(start.clone());
                circle.reverse();
                return Some(circle);
            }
            open = next;
        }
        None
    });
    circles.min_by_key(Vec::len)
}

#[test]
fn a_circle_is_reported_with_its_modules() {
    let imports = |edges: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in edges {
            let from = imports.entry((*from).to_owned()).or_default();
            from.insert((*to).to_owned(), String::new());
        }
        imports
    };
    assert_eq!(circle(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let round = imports(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")]);
    assert_eq!(
        circle(&round).map(|circle| circle.join(" ")),
        Some("b c d b".to_owned())
    );
}

#[test]
fn paths_lead_to_modules() {
    let modules: BTreeSet<Module> = ["engine", "engine::model", "engine::model::pod", "engine::model::node"]
        .iter()
        .map(|path| path.split("::").map(str::to_owned).collect())
        .collect();
    let own: Module = vec!["engine".to_owned(), "model".to_owned(), "pod".to_owned()];
    let leads = |path: &str| {
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        resolve(&modules, &own, &path).map(|module| module.join("::"))
    };
    assert_eq!(leads("super::node::Node").as_deref(), Some("engine::model::node"));
    assert_eq!(leads("crate::engine::model::Model").as_deref(), Some("engine::model"));
    assert_eq!(leads("crate::api::names"), None);
    assert_eq!(leads("smallvec::SmallVec"), None);
}
