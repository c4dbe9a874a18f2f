//! The documentation: its links lead somewhere, its commands are ones that the binary takes, its examples are accepted by a cluster, its figures are
//! those of the engine, the tests that it names exist, and what is generated is fresh.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize as _;
use serde_json::Value;
use unikai::devcluster::world::NodeSpec;

use crate::operator::lab::Lab;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All pages, by their paths.
fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![root().join("docs")];
    let mut add = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        pages.insert(name, text);
    };
    add(root().join("README.md"));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                add(path);
            }
        }
    }
    pages
}

/// The anchors of a page, as those who show Markdown make them of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let plain = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let anchor = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title.chars().filter(plain).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_existing_pages_and_headings() {
    let pages = pages();
    let (mut broken, mut seen) = (Vec::new(), 0);
    for (page, text) in &pages {
        let folder = Path::new(page).parent().unwrap();
        for (at, _) in text.match_indices("](") {
            let link = text[at + 2..].split(')').next().unwrap();
            if link.starts_with("http") || link.contains(char::is_whitespace) {
                continue;
            }
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                PathBuf::from(page)
            } else {
                folder.join(path)
            };
            let mut plain = PathBuf::new();
            for part in target.components() {
                if part.as_os_str() == ".." {
                    plain.pop();
                } else {
                    plain.push(part);
                }
            }
            let there = root().join(&plain).exists();
            let heading = anchor.is_empty()
                || pages
                    .get(plain.to_str().unwrap())
                    .is_some_and(|text| anchors(text).contains(anchor));
            if !there || !heading {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(seen > 100, "{seen} links");
    assert_eq!(broken, Vec::<String>::new());
}

/// The commands in blocks of code and in the text, without what stands for something else in them.
fn commands(text: &str) -> Vec<Vec<String>> {
    let blocks = text.split("```").skip(1).step_by(2);
    let lines = blocks
        .flat_map(str::lines)
        .chain(text.lines().filter(|line| line.starts_with("    ")));
    let outside = text.split("```").step_by(2);
    let spans = outside.flat_map(|text| text.split('`').skip(1).step_by(2));
    let mut found = Vec::new();
    for line in lines.chain(spans) {
        let line = line.trim();
        let rest = line
            .strip_prefix("cargo run -- ")
            .or_else(|| line.strip_prefix("unikai "));
        let Some(rest) = rest else { continue };
        let end = rest.find([';', '#', '>']).unwrap_or(rest.len());
        let end = rest.find(" | ").unwrap_or(end).min(end);
        let words: Vec<String> = rest[..end].split_whitespace().map(str::to_owned).collect();
        let stands_for = |word: &String| word.contains(['|', '…', '[', '<', '$', '\\']) || word == "...";
        if !words.iter().any(stands_for) && !words.is_empty() {
            found.push(words);
        }
    }
    found
}

#[test]
fn commands_in_the_text_are_accepted_by_the_binary() {
    let mut all: BTreeMap<Vec<String>, String> = BTreeMap::new();
    for (page, text) in pages()
        .into_iter()
        .filter(|(page, _)| page != "docs/reference/flags.md")
    {
        all.extend(commands(&text).into_iter().map(|command| (command, page.clone())));
    }
    assert!(all.len() > 40, "{} commands", all.len());
    let mut refused = Vec::new();
    for (words, page) in all {
        // The arguments before it are read as if it were not there.
        let output = Command::new(env!("CARGO_BIN_EXE_unikai"))
            .args(&words)
            .arg("--help")
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().next().unwrap_or_default();
        // A word in capitals stands for a value.
        let value = why.split('\'').nth(1).filter(|_| why.contains("invalid value"));
        let stands_for = value.is_some_and(|value| value.chars().all(|c| c.is_ascii_uppercase()));
        if !output.status.success() && !stands_for {
            refused.push(format!("{page}: {}: {why}", words.join(" ")));
        }
    }
    assert_eq!(refused, Vec::<String>::new());
}

#[test]
fn flags_in_the_text_are_flags_of_a_command() {
    /// Of helm, kubectl, kube-apiserver, rustc and the simulation.
    const OF_OTHERS: [&str; 7] = [
        "--admission-control-config-file",
        "--cfg",
        "--replicas",
        "--server-side",
        "--set",
        "--story",
        "--take-ownership",
    ];
    let known = std::fs::read_to_string(root().join("docs/reference/flags.md")).unwrap();
    let mut unknown = Vec::new();
    for (page, text) in pages() {
        for span in text
            .split('`')
            .filter(|span| span.starts_with("--") && !span.contains('\n'))
        {
            let end = span.find([' ', '=']).unwrap_or(span.len());
            let flag = &span[..end];
            let there = [" ", "`"].iter().any(|end| known.contains(&format!("`{flag}{end}")));
            if !there && !OF_OTHERS.contains(&flag) && flag.len() > 3 && !flag.ends_with('…') {
                unknown.push(format!("{page}: {span}"));
            }
        }
    }
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn generated_pages_are_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_unikai");
    let written = Command::new(program)
        .args(["docs", "--dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(written.status.success());
    for page in ["configuration.md", "reference/crds.md", "reference/flags.md"] {
        let [held, wanted] = [root().join("docs"), folder.path().to_owned()]
            .map(|folder| std::fs::read_to_string(folder.join(page)).unwrap());
        assert!(held == wanted, "docs/{page} is stale: run `cargo gen-docs`");
    }
}

#[test]
fn the_example_of_fair_shares_is_what_the_engine_computes() {
    let concepts = std::fs::read_to_string(root().join("docs/concepts.md")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_unikai"))
        .current_dir(root())
        .args(["simulate", "shares", "docs/examples/shares.jsonl"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(concepts.contains(&format!("```json\n{said}```")), "{said}");
    let shares: Value = serde_json::from_str(&said).unwrap();
    let asked: Value =
        serde_json::from_str(&std::fs::read_to_string(root().join("docs/examples/shares.jsonl")).unwrap()).unwrap();
    for queue in asked["queues"].as_array().unwrap() {
        let (name, gpu) = (queue["name"].as_str().unwrap(), &queue["gpu"]);
        let fair = shares[name]["gpu"].as_f64().unwrap();
        let row = format!(
            "| {name} | {} | {} | {} | {fair} |",
            gpu["quota"], gpu["weight"], gpu["request"]
        );
        assert!(concepts.contains(&row), "{row}");
    }
}

/// Whether a file has a test, or an entry of a table of tests, of that name.
fn has_test(file: &str, name: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(root().join(file)) else {
        return false;
    };
    if file.ends_with(".yaml") {
        let entries = text.lines().filter_map(|line| line.strip_prefix("- name: "));
        return entries.map(|entry| entry.trim_matches('"')).any(|entry| entry == name);
    }
    let attribute = |line: &str| line.starts_with("#[test") || line.starts_with("#[tokio::test");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_it = |line: &&str| line.contains(&format!("fn {name}("));
    let Some(at) = lines.iter().position(is_it) else {
        return false;
    };
    // Tests of properties are in a block, comments and attributes before the function.
    let before = lines[..at].iter().rev();
    before
        .take_while(|line| !line.is_empty() && **line != "}")
        .any(|line| attribute(line))
}

#[test]
fn incidents_name_existing_tests() {
    let page = std::fs::read_to_string(root().join("docs/incidents.md")).unwrap();
    let (tested, _) = page.split_once("## Incidents that are possible in unikai").unwrap();
    let (mut reports, mut missing) = (BTreeSet::new(), Vec::new());
    for row in tested.lines().filter(|line| line.starts_with("| [")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [report, _, here] = cells[..] else {
            panic!("{row}");
        };
        assert!(reports.insert(report.trim()), "{report} is there twice");
        for scenario in here.split("; ") {
            let named: Vec<&str> = scenario.split('`').collect();
            let [_, file, ": ", name, _] = named[..] else {
                panic!("{scenario}");
            };
            if !has_test(file, name) {
                missing.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(reports.len() >= 40, "{} incidents", reports.len());
    assert_eq!(missing, Vec::<String>::new());
    assert!(!has_test("src/engine/tests/events.rs", "no_such_test"));
    assert!(!has_test("src/engine/tests/events.rs", "small_world"), "no test");
}

/// The objects in the blocks of YAML that a cluster takes: what has an API version and a kind, and is not another tool's.
fn objects(text: &str) -> Vec<Value> {
    let blocks = text
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    let documents = blocks.flat_map(|block| {
        serde_yaml_ng::Deserializer::from_str(block)
            .map(Value::deserialize)
            .collect::<Vec<_>>()
    });
    documents
        .filter_map(Result::ok)
        .filter(|object| {
            object["apiVersion"].is_string() && object["kind"].is_string() && object["metadata"]["name"].is_string()
        })
        .collect()
}

/// Everything at once: an example that another page contradicts fails, too.
#[tokio::test(flavor = "multi_thread")]
async fn examples_are_accepted_by_a_cluster_with_the_operator() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    operator.leads().await;
    lab.create(serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}))
        .await
        .unwrap();
    let mut examples = 0;
    for (page, text) in pages() {
        for object in objects(&text) {
            examples += 1;
            let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
            match lab.create(object).await {
                // The operator makes the default shard.
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{page}: {kind} {name}: {error}"),
            }
        }
    }
    assert!(examples >= 6, "{examples} examples");
    let mut first: Value = serde_yaml_ng::from_str(include_str!("../../docs/examples/first-job.yaml")).unwrap();
    first["metadata"]["namespace"] = "team".into();
    lab.create(first).await.unwrap();
    lab.running(2).await;
    operator.assert_no_errors();
}
