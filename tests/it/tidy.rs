//! Rules of this code base that a compiler does not check, as tests. Each message says what to do instead.
//!
//! What is absent: rules of taste. A rule stands here when breaking it has cost a day of work.

mod circles;
mod source;
mod unused;

use std::collections::{BTreeMap, BTreeSet};

use source::{File, rust_files, text_files};

/// Lines that a file may have.
const LINES_MAX: usize = 800;

/// Longer files, with their length when they were added here. They may shrink; none may grow.
const LONG_FILES: &[(&str, usize)] = &[];

/// Components, in `src/components/`: they use the bus and what is shared, never one another.
const COMPONENTS: &[&str] = &[
    "admission",
    "binder",
    "events",
    "grouper",
    "numa_daemon_set",
    "podgroups",
    "queues",
    "scaleup",
    "scheduler",
    "traces",
    "usage",
];

/// What components share.
const SHARED_BY_COMPONENTS: &[&str] = &[
    "accounts",
    "agenda",
    "bus",
    "compact",
    "connection_causes",
    "connection_failures",
    "fair",
    "figures",
    "fractions",
    "gpu_operator",
    "grouping",
    "history",
    "keyed_turns",
    "latency",
    "leadership",
    "owner",
    "panics",
    "patch",
    "pods",
    "heartbeat",
    "quantities",
    "readiness",
    "repeats",
    "retry",
    "runtime_classes",
    "shares",
    "tests",
    "write_slots",
    "views",
    "watches",
    "weight",
];

#[test]
fn a_module_uses_only_the_layers_below() {
    let layers = layers();
    let mut broken = Vec::new();
    for file in rust_files("src").iter().filter(|file| file.path != "src/lib.rs") {
        let name = top_module(&file.path);
        let standing = layers.get(&*name).unwrap_or_else(|| {
            panic!(
                "{}: the table in docs/ARCHITECTURE.md has no module `{name}`; add it, or move the file",
                file.path
            )
        });
        for (line, used) in file.used_modules() {
            let Some(below) = layers.get(&*used) else { continue };
            if below.row != standing.row && below.layer >= standing.layer {
                broken.push(format!(
                    "{}:{line}: `{name}` (layer {}) uses `{used}` (layer {}); move what both need to a layer below, or pass it in",
                    file.path, standing.layer, below.layer
                ));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn components_do_not_use_one_another() {
    let mut broken = Vec::new();
    for file in rust_files("src/components") {
        let name = file
            .path
            .trim_start_matches("src/components/")
            .split(['/', '.'])
            .next()
            .unwrap_or_default();
        if !COMPONENTS.contains(&name) && !SHARED_BY_COMPONENTS.contains(&name) {
            broken.push(format!(
                "{}: say in tests/it/tidy.rs whether `{name}` is a component or shared by them",
                file.path
            ));
        }
        // Scenarios with several components.
        if name == "tests" {
            continue;
        }
        for (line, used) in file.used_under("components") {
            if COMPONENTS.contains(&&*used) && used != name {
                broken.push(format!(
                    "{}:{line}: uses the component `{used}`; send it a message over components/bus.rs",
                    file.path
                ));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_two_halves_of_the_embedded_cluster_do_not_use_one_another() {
    let mut broken = Vec::new();
    for (half, other) in [("world", "apiserver"), ("apiserver", "world")] {
        for file in rust_files(&format!("src/devcluster/{half}")) {
            for (line, used) in file.used_under("devcluster") {
                if used == other {
                    broken.push(format!(
                        "{}:{line}: uses devcluster::{other}; talk to it over HTTP",
                        file.path
                    ));
                }
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_engine_is_pure() {
    const BANNED: &[(&str, &str)] = &[
        ("Instant", "take `now` as an argument"),
        ("SystemTime", "take `now` as an argument"),
        ("Timestamp::now", "take `now` as an argument"),
        ("Zoned::now", "take `now` as an argument"),
        ("tokio", "the engine is synchronous; the component that owns it waits"),
        ("async", "the engine is synchronous; the component that owns it waits"),
        ("kube", "the mirror turns Kubernetes objects into events"),
        ("k8s_openapi", "the mirror turns Kubernetes objects into events"),
        ("rand", "break ties by id"),
        ("std::fs", "the engine does no I/O"),
        ("std::net", "the engine does no I/O"),
        ("std::env", "settings come in as policy"),
        ("std::thread", "the component that owns the engine has the thread"),
        (
            "Mutex",
            "one thread owns the engine, so that nothing in it can deadlock",
        ),
        (
            "RwLock",
            "one thread owns the engine, so that nothing in it can deadlock",
        ),
    ];
    let mut broken = Vec::new();
    for file in engine() {
        for (banned, instead) in BANNED {
            for line in file.lines_with(banned) {
                broken.push(format!("{}:{line}: `{banned}` in the engine; {instead}", file.path));
            }
        }
    }
    assert_none(&broken);
}

/// The simulation of the whole world has a time of its own, and random numbers that can be repeated.
#[test]
fn time_and_random_numbers_come_from_one_module() {
    const BANNED: &[(&str, &str)] = &[
        ("Timestamp::now", "use crate::clock::now"),
        ("SystemTime::now", "use crate::clock::system_time"),
        ("Zoned::now", "use crate::clock::now"),
        ("std::time::Instant", "use tokio::time::Instant"),
        ("Uuid::new_v4", "use crate::random::uuid"),
    ];
    let imports_instant = |line: &str| line.contains("use std::time::") && line.contains("Instant");
    let mut broken = Vec::new();
    for file in rust_files("src") {
        let concerned = ["components", "operator", "devcluster"].contains(&&*top_module(&file.path));
        if !concerned || file.is_test() {
            continue;
        }
        for (banned, instead) in BANNED {
            for line in file.lines_with(banned) {
                broken.push(format!("{}:{line}: `{banned}`; {instead}", file.path));
            }
        }
        for (line, _) in file.text.lines().enumerate().filter(|(_, line)| imports_instant(line)) {
            broken.push(format!("{}:{}: use tokio::time::Instant", file.path, line + 1));
        }
    }
    assert_none(&broken);
}

#[test]
fn the_engine_does_not_iterate_over_unordered_maps() {
    const WALKS: &[&str] = &[
        "iter",
        "iter_mut",
        "keys",
        "values",
        "values_mut",
        "into_iter",
        "into_keys",
        "into_values",
        "drain",
        "retain",
    ];
    let files = engine();
    let hashed: BTreeSet<String> = files.iter().flat_map(File::hashed_names).collect();
    let mut broken = Vec::new();
    for file in &files {
        for name in &hashed {
            let walks = WALKS.iter().map(|walk| format!("{name}.{walk}(")).chain([
                format!("in {name} {{"),
                format!("in &{name} {{"),
                format!("in &mut {name} {{"),
                format!("in self.{name} {{"),
                format!("in &self.{name} {{"),
                format!("in &mut self.{name} {{"),
            ]);
            for walk in walks {
                for line in file.lines_with(&walk) {
                    broken.push(format!(
                        "{}:{line}: `{walk}` walks a hash map, whose order differs from run to run; use a BTreeMap, or a Vec by id, \
                         and the hash map only to look up",
                        file.path
                    ));
                }
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn every_file_is_part_of_the_crate() {
    let mut broken = Vec::new();
    for (folder, roots) in [
        ("src", &["src/lib.rs", "src/main.rs"][..]),
        ("tests", &["tests/it/main.rs", "tests/simulation/main.rs"]),
    ] {
        let files: BTreeMap<String, File> = rust_files(folder)
            .into_iter()
            .map(|file| (file.path.clone(), file))
            .collect();
        let mut reached = BTreeSet::new();
        let mut open: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
        while let Some(path) = open.pop() {
            let Some(file) = files.get(&path) else { continue };
            if reached.insert(path) {
                open.extend(file.declared_files());
            }
        }
        broken.extend(
            files
                .keys()
                .filter(|path| !reached.contains(*path))
                .map(|path| format!("{path}: no `mod` declares it, so it is never compiled; declare or delete it")),
        );
        broken.extend(
            files
                .keys()
                .filter(|path| path.ends_with("/mod.rs"))
                .map(|path| format!("{path}: write foo.rs beside foo/ instead of foo/mod.rs")),
        );
    }
    assert_none(&broken);
}

#[test]
fn files_are_short() {
    let long: BTreeMap<_, _> = LONG_FILES.iter().copied().collect();
    let mut broken = Vec::new();
    for file in rust_files("src")
        .into_iter()
        .chain(rust_files("tests"))
        .chain(rust_files("benches"))
    {
        let lines = file.text.lines().count();
        match long.get(&*file.path) {
            Some(allowed) if lines > *allowed => {
                broken.push(format!(
                    "{}: {lines} lines, and may only shrink from {allowed}; give a part a file of its own",
                    file.path
                ));
            }
            Some(_) if lines <= LINES_MAX => {
                broken.push(format!(
                    "{}: {lines} lines, no longer long; strike it from LONG_FILES",
                    file.path
                ));
            }
            None if lines > LINES_MAX => {
                broken.push(format!(
                    "{}: {lines} lines, more than {LINES_MAX}; give a part a file of its own",
                    file.path
                ));
            }
            Some(_) | None => {}
        }
    }
    let paths: BTreeSet<_> = rust_files("src")
        .into_iter()
        .chain(rust_files("tests"))
        .map(|file| file.path)
        .collect();
    broken.extend(
        long.keys()
            .filter(|path| !paths.contains(**path))
            .map(|path| format!("{path}: gone; strike it from LONG_FILES")),
    );
    assert_none(&broken);
}

#[test]
fn every_module_has_a_description() {
    let broken: Vec<_> = rust_files("src")
        .into_iter()
        .filter(|file| !file.is_test() && !file.text.starts_with("//!"))
        .map(|file| {
            format!(
                "{}: begin with a `//!` paragraph: what the module does, and what it leaves to others",
                file.path
            )
        })
        .collect();
    assert_none(&broken);
}

#[test]
fn no_unfinished_and_no_unsafe_code() {
    let mut broken = Vec::new();
    for file in rust_files("src")
        .into_iter()
        .chain(rust_files("tests"))
        .chain(rust_files("benches"))
    {
        for (left, instead) in [
            ("todo!(", "build it, or leave it out"),
            ("unimplemented!(", "build it, or leave it out"),
            ("dbg!(", "delete it"),
            ("unsafe", "it is not allowed"),
        ] {
            for line in file.lines_with(left) {
                broken.push(format!("{}:{line}: `{left}`; {instead}", file.path));
            }
        }
        // The one print outside the command line: what is wrong with telemetry cannot be told by it.
        let may_print = file.is_test()
            || ["src/cli", "benches/", "src/operator/telemetry.rs"]
                .iter()
                .any(|path| file.path.starts_with(path));
        for print in ["println!(", "eprintln!(", "print!(", "eprint!("] {
            for line in file.lines_with(print).into_iter().filter(|_| !may_print) {
                broken.push(format!(
                    "{}:{line}: `{print}` outside src/cli/; log with tracing, or return what is to be printed",
                    file.path
                ));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn texts_have_no_local_paths_and_no_open_tasks() {
    // Written in halves, since this file is read too.
    let banned = [
        (
            concat!("../", "shared"),
            "the product needs nothing beside its repository; say it here",
        ),
        (concat!("/work", "/"), "a path of one machine; make it relative"),
        (concat!("TO", "DO"), "do it, or open an issue"),
        (concat!("FIX", "ME"), "fix it, or open an issue"),
        (concat!("XX", "X"), "say what is meant, or delete it"),
    ];
    let mut broken = Vec::new();
    for (path, text) in text_files() {
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in &banned {
                if line.contains(word) {
                    broken.push(format!("{path}:{}: `{word}`; {instead}", number + 1));
                }
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn documents_name_existing_files() {
    let mut broken = Vec::new();
    let documents = text_files().into_iter().filter(|(path, _)| path.ends_with(".md"));
    let mut seen = 0;
    for (path, text) in documents {
        for (number, line) in text.lines().enumerate() {
            for named in line.split('`').skip(1).step_by(2) {
                let is_path = [
                    "src/",
                    "tests/",
                    "benches/",
                    "docs/",
                    "crds/",
                    "manifests/",
                    ".ci/",
                    ".cargo/",
                ]
                .iter()
                .any(|folder| named.starts_with(folder));
                // `<family>` stands for any name, and commands have blanks.
                if !is_path || named.contains(['<', '*', ' ']) {
                    continue;
                }
                seen += 1;
                if !source::root().join(named).exists() {
                    broken.push(format!("{path}:{}: there is no `{named}`", number + 1));
                }
            }
        }
    }
    assert!(seen > 50, "{seen} paths in the documents");
    assert_none(&broken);
}

/// Where a top module stands in the table of `docs/ARCHITECTURE.md`. Modules of one row belong together.
struct Standing {
    layer: u32,
    row: usize,
}

/// The top modules by name, from the rows `| layer | modules | what they do |`.
fn layers() -> BTreeMap<String, Standing> {
    let map = std::fs::read_to_string(source::root().join("docs/ARCHITECTURE.md")).unwrap();
    let mut layers = BTreeMap::new();
    for (row, line) in map.lines().enumerate() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(layer), Some(names)) = (cells.next().and_then(|cell| cell.parse().ok()), cells.next()) else {
            continue;
        };
        for name in names.split('`').skip(1).step_by(2) {
            let name = name.trim_end_matches('/').trim_end_matches(".rs").to_owned();
            layers.insert(name, Standing { layer, row });
        }
    }
    assert!(
        layers.len() >= 7,
        "the table of layers in docs/ARCHITECTURE.md cannot be read: {:?}",
        layers.keys()
    );
    layers
}

/// The top module of a file: `engine` for `src/engine.rs` and all below `src/engine/`.
fn top_module(path: &str) -> String {
    path.trim_start_matches("src/")
        .split('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".rs")
        .to_owned()
}

fn engine() -> Vec<File> {
    let mut files = rust_files("src/engine");
    files.extend(
        rust_files("src")
            .into_iter()
            .filter(|file| file.path == "src/engine.rs"),
    );
    files.retain(|file| !file.is_test());
    assert!(!files.is_empty());
    files
}

fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}
