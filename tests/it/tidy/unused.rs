//! Finds public items without a use. The compiler cannot, as it does not know who uses a library; here all users are in the repository.
//!
//! Only names are compared: an item whose name something else has, too, passes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::assert_none;
use super::source::{File, rust_files};

/// Public items without a use yet. Each is removed from the list with its first use.
const AWAITED: &[(&str, &str)] = &[];

/// Public items for the simulation of the whole world.
const OF_THE_SIMULATION: &[(&str, &str)] = &[
    ("src/operator.rs", "start_in_process"),
    ("src/operator.rs", "webhook_router"),
    ("src/operator.rs", "has_ended"),
];

/// Types of settings, each of whose fields must have a reader outside: file, type, and the file that fills it from flags.
const SETTINGS: &[(&str, &str)] = &[
    ("src/components.rs", "Settings"),
    ("src/components/admission.rs", "Settings"),
    ("src/components/fractions.rs", "Settings"),
    ("src/components/scaleup.rs", "Settings"),
    ("src/engine/policy.rs", "Policy"),
    ("src/mirror/settings.rs", "Settings"),
    ("src/operator/lease.rs", "Params"),
    ("src/operator/settings.rs", "Settings"),
];

/// A public item: the line of its declaration, what it is, and its name.
struct Item<'f> {
    line: usize,
    is_type: bool,
    /// The module in the file around it, if it stands in one.
    module: Option<&'f str>,
    name: &'f str,
}

#[test]
fn every_public_item_is_used() {
    let (sources, tests) = (sources(), rust_files("tests"));
    let files: Vec<Reader> = sources.iter().map(Reader::of).collect();
    let tests: Vec<Reader> = tests.iter().map(Reader::of).collect();
    let mut broken = Vec::new();
    for file in sources.iter().filter(|file| file.path.starts_with("src/")) {
        // The embedded cluster is there for the tests.
        let for_tests = file.path.starts_with("src/devcluster/");
        for item in items(file) {
            let for_tests = for_tests || OF_THE_SIMULATION.contains(&(&*file.path, item.name));
            let users = files.iter().chain(tests.iter().filter(|_| for_tests));
            let others: Vec<&Reader> = users.filter(|other| other.file.path != file.path).collect();
            let awaited = AWAITED.contains(&(&*file.path, item.name));
            let used = others.iter().any(|other| other.uses(&item)) || item.is_type && is_in_a_signature(file, &item);
            if used == awaited {
                let what = if awaited {
                    "is used; strike it from AWAITED"
                } else {
                    "is public, and nothing but its own file and tests uses it; make it private, or delete it"
                };
                broken.push(format!("{}:{}: `{}` {what}", file.path, item.line + 1, item.name));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn every_setting_has_a_reader() {
    let files = sources();
    let mut broken = Vec::new();
    for (path, name) in SETTINGS {
        let file = files.iter().find(|file| file.path == *path);
        let file = file.unwrap_or_else(|| panic!("{path}: gone; strike it from SETTINGS"));
        let fields = fields(file, name);
        assert!(!fields.is_empty(), "{path}: no fields of `{name}` found");
        for field in fields {
            // Where settings are made of flags, they are only passed on.
            let readers = files
                .iter()
                .filter(|file| !file.path.starts_with("src/operator/settings"));
            let read = format!(".{field}");
            if !readers.flat_map(File::code_lines).any(|(_, line)| holds(line, &read)) {
                broken.push(format!(
                    "{path}: nothing reads `{name}::{field}`; have it do something, or delete it"
                ));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn well_known_names_are_written_once() {
    let files = sources();
    let names = files.iter().find(|file| file.path == "src/api/names.rs").unwrap();
    let mut known = BTreeMap::new();
    for (_, line) in names.text_lines() {
        let Some((declared, value)) = line
            .trim()
            .strip_prefix("pub const ")
            .and_then(|line| line.split_once(": &str = \""))
        else {
            continue;
        };
        let value = value.trim_end_matches("\";");
        // What is no word that anybody could mean.
        if value.contains(['/', '.']) {
            known.insert(value, declared);
        }
    }
    assert!(known.len() > 80, "the constants cannot be read: {}", known.len());
    let mut broken = Vec::new();
    // The embedded cluster stands for Kubernetes, and attributes of types take no constants.
    let readers = files
        .iter()
        .filter(|file| file.path.starts_with("src/") && file.path != names.path);
    for file in readers.filter(|file| !file.path.starts_with("src/devcluster/")) {
        for (number, line) in file
            .text_lines()
            .filter(|(_, line)| !line.trim_start().starts_with("group = "))
        {
            let quoted = line.split('"').skip(1).step_by(2).filter(|_| !line.contains("#["));
            broken.extend(quoted.filter_map(|text| known.get(text)).map(|name| {
                format!(
                    "{}:{}: retypes `{name}`; use the constant of src/api/names.rs",
                    file.path,
                    number + 1
                )
            }));
        }
    }
    assert_none(&broken);
}

/// What is compiled, but tests.
fn sources() -> Vec<File> {
    let files = rust_files("src").into_iter().chain(rust_files("benches"));
    files.filter(|file| !file.is_test()).collect()
}

fn items(file: &File) -> Vec<Item<'_>> {
    let mut module = None;
    let mut for_tests = false;
    let mut items = Vec::new();
    for (line, text) in file.code_lines() {
        if let Some(name) = text.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(" {")) {
            module = Some(name);
        } else if text == "}" {
            module = None;
        }
        let trimmed = text.trim();
        if trimmed == "#[cfg(test)]" {
            for_tests = true;
        } else if !trimmed.is_empty() && !trimmed.starts_with("#[") {
            let declared = trimmed
                .strip_prefix("pub ")
                .filter(|_| !for_tests)
                .and_then(declaration);
            items.extend(declared.map(|(is_type, name)| Item {
                line,
                is_type,
                module,
                name,
            }));
            for_tests = false;
        }
    }
    items
}

/// What follows `pub` in a declaration: whether it declares a type, and its name.
fn declaration(rest: &str) -> Option<(bool, &str)> {
    let words: Vec<&str> = rest
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .collect();
    let at = words.iter().position(|word| !matches!(*word, "async" | "unsafe"))?;
    match words[at..] {
        ["const", "fn", name, ..] | ["fn" | "const" | "static", name, ..] => Some((false, name)),
        ["struct" | "enum" | "trait" | "type", name, ..] => Some((true, name)),
        _ => None,
    }
}

/// A file, and the words in it. Passing on a name is no use of it.
struct Reader<'f> {
    file: &'f File,
    words: HashSet<&'f str>,
}

impl<'f> Reader<'f> {
    fn of(file: &'f File) -> Self {
        let lines = file.text_lines().map(|(_, line)| line);
        let lines = lines.filter(|line| !line.starts_with("pub use "));
        let words = lines
            .flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')))
            .collect();
        Self { file, words }
    }

    fn uses(&self, item: &Item) -> bool {
        self.words.contains(item.name) && item.module.is_none_or(|module| names_in(self.file, module, item.name))
    }
}

/// Whether the file names something of a module by the module.
fn names_in(file: &File, module: &str, name: &str) -> bool {
    // `use … module as alias;`
    let called = format!("{module} as ");
    let alias = file
        .text_lines()
        .find_map(|(_, line)| Some(line.split_once(&called)?.1.trim_end_matches([';', ',', '}'])));
    let module = alias.unwrap_or(module);
    let (path, group) = (format!("{module}::{name}"), format!("{module}::{{"));
    file.text_lines().any(|(_, line)| {
        let in_group = line.split_once(&group).and_then(|(_, rest)| rest.split_once('}'));
        holds(line, &path) || in_group.is_some_and(|(names, _)| holds(names, name))
    })
}

/// Whether something public of the same file names the type: who gets it need not name it.
fn is_in_a_signature(file: &File, item: &Item) -> bool {
    let mut open = false;
    file.code_lines().any(|(number, line)| {
        let trimmed = line.trim();
        let begins = (trimmed.starts_with("pub ") || trimmed.starts_with("pub(")) && number != item.line
            || trimmed.starts_with("type ");
        let within = open || begins;
        let ends = trimmed.ends_with(['{', '}', ';']) || begins && trimmed.ends_with(',') && !trimmed.contains(" fn ");
        open = within && !ends;
        within && holds(line, item.name)
    })
}

/// The public fields of a struct.
fn fields<'f>(file: &'f File, name: &str) -> BTreeSet<&'f str> {
    let opens = format!("pub struct {name} {{");
    let inside = file
        .code_lines()
        .map(|(_, line)| line)
        .skip_while(|line| *line != opens);
    inside
        .take_while(|line| *line != "}")
        .filter_map(|line| {
            line.trim()
                .strip_prefix("pub ")?
                .split_once(": ")
                .map(|(field, _)| field)
        })
        .collect()
}

/// Whether a line holds a word or path, and not as a part of a longer one.
fn holds(line: &str, wanted: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(wanted).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + wanted.len()..]);
        !(wanted.starts_with(is_word) && before.ends_with(is_word) || after.starts_with(is_word))
    })
}

#[test]
fn declarations_are_read() {
    assert_eq!(declaration("const fn a() {"), Some((false, "a")));
    assert_eq!(declaration("async fn b<T>(t: T) {"), Some((false, "b")));
    assert_eq!(declaration("const C: &str ="), Some((false, "C")));
    assert_eq!(declaration("struct D<T> {"), Some((true, "D")));
    assert_eq!(declaration("type E = F;"), Some((true, "E")));
    assert_eq!(declaration("mod g;"), None);
    assert_eq!(declaration("use h::fn_i;"), None);
    assert!(holds("a.b(c)", ".b") && !holds("a.bc", ".b") && holds("x::Y,", "x::Y") && !holds("xx::Y", "x::Y"));
}
