//! Just enough of Rust's grammar to read the sources: comments and texts told from code, modules and paths.

use std::path::{Path, PathBuf};

/// A source file.
pub struct File {
    /// The path in the repository, e.g. `src/lib.rs`.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// The file with blanks for comments and the contents of texts, line by line.
    code: String,
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder, in the order of their paths.
pub fn rust_files(folder: &str) -> Vec<File> {
    let mut paths = Vec::new();
    collect(&root().join(folder), &mut paths);
    let rust = paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|path| File::read(&path)).collect()
}

/// All texts of the repository that people read, but those of the integration scripts: paths and contents.
pub fn text_files() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches", "docs", "crds", "manifests"] {
        collect(&root().join(folder), &mut paths);
    }
    for entry in std::fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file()
            && path
                .file_name()
                .is_some_and(|name| name != "Cargo.lock" && name != ".git")
        {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .iter()
        .filter_map(|path| Some((name(path), std::fs::read_to_string(path).ok()?)))
        .collect()
}

impl File {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        Self {
            path: name(path),
            code: code_of(&text),
            text,
        }
    }

    /// Whether the file holds tests only.
    pub fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.contains("/tests/")
            || self.code.contains("#![cfg(test)]")
    }

    /// The lines of code, numbered, with blanks for comments and the contents of texts. Tests that stand in the file are left out.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().take(self.lines_before_tests()).enumerate()
    }

    /// The lines, numbered, without those that are comments from their beginning. Tests that stand in the file are left out.
    pub fn text_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().take(self.lines_before_tests()).enumerate();
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn lines_before_tests(&self) -> usize {
        let lines: Vec<&str> = self.code.lines().collect();
        let tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
        lines.windows(2).position(tests).unwrap_or(lines.len())
    }

    /// The lines whose code holds `wanted`, as a word where it begins or ends like one.
    pub fn lines_with(&self, wanted: &str) -> Vec<usize> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (opens, closes) = (wanted.starts_with(is_word), wanted.ends_with(is_word));
        let holds = |line: &str| {
            line.match_indices(wanted).any(|(at, _)| {
                let inside_word =
                    opens && line[..at].ends_with(is_word) || closes && line[at + wanted.len()..].starts_with(is_word);
                !inside_word
            })
        };
        self.code
            .lines()
            .enumerate()
            .filter(|(_, line)| holds(line))
            .map(|(number, _)| number + 1)
            .collect()
    }

    /// The top modules of the crate that the file names, with lines.
    pub fn used_modules(&self) -> Vec<(usize, String)> {
        let mut used = self.names_after("crate::");
        used.extend(self.names_after("unikai::"));
        used
    }

    /// The modules inside `parent`, a top module, that the file names, with lines.
    pub fn used_under(&self, parent: &str) -> Vec<(usize, String)> {
        let mut used = self.names_after(&format!("crate::{parent}::"));
        let depth = self
            .path
            .trim_start_matches(&format!("src/{parent}/"))
            .matches('/')
            .count();
        used.extend(
            self.names_after(&"super::".repeat(depth + 1))
                .into_iter()
                .filter(|(_, name)| name != "super"),
        );
        used
    }

    /// The files that this one declares as modules, in either place where they may be.
    pub fn declared_files(&self) -> Vec<String> {
        let is_root = ["/lib.rs", "/main.rs"].iter().any(|root| self.path.ends_with(root));
        let folder = if is_root {
            self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
        } else {
            self.path.trim_end_matches(".rs")
        };
        let declared = self.code.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "mod")?;
            words.get(at + 1)?.strip_suffix(';').map(str::to_owned)
        });
        declared.map(|name| format!("{folder}/{name}.rs")).collect()
    }

    /// Names of variables and fields that are hash maps or sets by what their declaration says.
    pub fn hashed_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for line in self.code.lines().filter(|line| !line.trim_start().starts_with("use ")) {
            let declared = ["HashMap", "HashSet"]
                .iter()
                .filter_map(|kind| line.find(kind))
                .min()
                .map(|at| &line[..at]);
            let Some(before) = declared.and_then(|before| before.trim_end().strip_suffix([':', '=', '&'])) else {
                continue;
            };
            let name = before
                .trim_end()
                .trim_end_matches(':')
                .rsplit(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next();
            names.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        names
    }

    /// All paths that begin with `crate` or `super`, with lines; of a group in braces one for each branch. Tests that stand in the file are left out.
    pub fn paths(&self) -> Vec<(usize, Vec<String>)> {
        let lines: Vec<&str> = self.code_lines().map(|(_, line)| line).collect();
        let code = lines.join("\n");
        let mut paths = Vec::new();
        for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let line = code[..at].matches('\n').count() + 1;
            let mut found = Vec::new();
            read_paths(&code[at..], &mut Vec::new(), &mut found);
            paths.extend(found.into_iter().map(|path| (line, path)));
        }
        paths
    }

    /// The names that follow a prefix, directly or first in the branches of a group, with lines.
    fn names_after(&self, prefix: &str) -> Vec<(usize, String)> {
        let mut names = Vec::new();
        for (at, _) in self.code.match_indices(prefix) {
            let before = self.code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let line = self.code[..at].matches('\n').count() + 1;
            names.extend(
                branches(&self.code[at + prefix.len()..])
                    .into_iter()
                    .map(|name| (line, name)),
            );
        }
        names
    }
}

/// Reads one path, or all of a group in braces, each behind what stands `before` it. The text behind them.
fn read_paths<'t>(text: &'t str, before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    let mut rest = text.trim_start();
    let depth = before.len();
    if let Some(group) = rest.strip_prefix('{') {
        rest = group.trim_start();
        while !rest.is_empty() && !rest.starts_with('}') {
            let behind = read_paths(rest, before, found).trim_start();
            // What a branch is renamed to.
            let end = behind.find([',', '}']).unwrap_or(behind.len());
            rest = behind[end..].trim_start_matches(',').trim_start();
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    let length = rest
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    let (name, behind) = rest.split_at(length);
    if name != "self" {
        before.push(name.to_owned());
    }
    let behind = match behind.strip_prefix("::") {
        Some(more) if more.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '{') => {
            read_paths(more, before, found)
        }
        _ => {
            found.push(before.clone());
            behind
        }
    };
    before.truncate(depth);
    behind
}

/// The first names of what follows `crate::`: one, or those of a group in braces.
fn branches(rest: &str) -> Vec<String> {
    let first = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![first(rest)];
    };
    let (mut depth, mut start, mut names) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(first(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The text with blanks for comments and for what stands in quotes.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => find(&chars, at, "\n").unwrap_or(chars.len()),
            '/' if chars.get(at + 1) == Some(&'*') => find(&chars, at + 2, "*/").map_or(chars.len(), |end| end + 2),
            '"' => end_of_text(&chars, at),
            'r' if starts_raw_text(&chars, at) => {
                let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
                let close = format!("\"{}", "#".repeat(hashes));
                find(&chars, at + hashes + 2, &close).map_or(chars.len(), |end| end + close.len())
            }
            '\'' if chars.get(at + 1) == Some(&'\\') => find(&chars, at + 3, "'").map_or(chars.len(), |end| end + 1),
            '\'' if chars.get(at + 2) == Some(&'\'') => at + 3,
            _ => {
                code.push(chars[at]);
                at += 1;
                continue;
            }
        };
        code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

fn starts_raw_text(chars: &[char], at: usize) -> bool {
    let inside_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b';
    !inside_word && chars[at + 1..].iter().find(|c| **c != '#') == Some(&'"')
}

fn end_of_text(chars: &[char], open: usize) -> usize {
    let mut at = open + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn find(chars: &[char], from: usize, wanted: &str) -> Option<usize> {
    let wanted: Vec<char> = wanted.chars().collect();
    (from..=chars.len().checked_sub(wanted.len())?).find(|at| chars[*at..*at + wanted.len()] == wanted[..])
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, paths);
        } else {
            paths.push(path);
        }
    }
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

#[test]
fn comments_and_texts_are_no_code() {
    let code = code_of("a; // b\n\"c\\\"d\" /* e\nf */ 'g' '\\'' r#\"h\"i\"# b\"j\" &'k l");
    assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a;", "b", "&'k", "l"]);
    assert_eq!(code.lines().count(), 3);
}

#[test]
fn the_names_in_groups_are_found() {
    assert_eq!(branches("api::names;"), ["api"]);
    assert_eq!(
        branches("{api::{self, names}, engine as e, mirror::{a, b::{c, d}}}; x, y"),
        ["api", "engine", "mirror"]
    );
    assert_eq!(branches("{\n    api,\n    engine,\n};"), ["api", "engine"]);
}

#[test]
fn paths_are_read_whole() {
    let mut found = Vec::new();
    let rest = read_paths("crate::a::{self, b::C as D, e::{F, g}}; x", &mut Vec::new(), &mut found);
    let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!(
        found,
        ["crate::a", "crate::a::b::C", "crate::a::e::F", "crate::a::e::g"]
    );
    assert_eq!(rest, "; x");
}

#[test]
fn hashed_names_come_from_declarations() {
    let text =
        "use std::collections::HashMap;\n a: HashMap<K, V>,\n let mut b = HashSet::new();\n fn f(c: &HashMap<K, V>)";
    let file = File {
        path: "x.rs".to_owned(),
        code: code_of(text),
        text: text.to_owned(),
    };
    assert_eq!(file.hashed_names(), ["a", "b", "c"]);
}
