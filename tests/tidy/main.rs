//! The rules of this repository that a compiler does not know, as tests over its text: layering,
//! clocks, sizes, words.
//!
//! Every rule says what to do instead, carries texts that it must refuse (so that it is seen to
//! fail on every run) and lists its exceptions with a reason; an exception that is no longer needed
//! fails too. The rules look at lines and words, not at syntax: what clippy and `cargo deny` can
//! judge better is left to them.

mod code;
mod layers;
mod metrics;
mod papers;
mod rooms;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A text file of the repository.
struct File {
    /// From the repository's root, with `/`.
    path: String,
    text: String,
    /// Compiled only for tests: declared behind `#[cfg(test)]`.
    test_only: bool,
}

/// A line (from 1) and what is wrong with it.
type Finding = (usize, String);

struct Rule {
    instead: &'static str,
    finds: fn(&File) -> Vec<Finding>,
    /// Path and reason.
    exceptions: &'static [(&'static str, &'static str)],
    /// Path and text, each refused by the rule.
    refused: &'static [(&'static str, &'static str)],
}

impl Rule {
    fn refuses(&self, path: &str, text: &str) -> bool {
        !(self.finds)(&File { path: path.to_owned(), text: text.to_owned(), test_only: false })
            .is_empty()
    }

    fn check(&self) {
        for (path, text) in self.refused {
            assert!(self.refuses(path, text), "the rule no longer refuses this in {path}: {text}");
        }
        let mut problems = Vec::new();
        let mut needed = BTreeSet::new();
        for file in repository() {
            let findings = (self.finds)(&file);
            if let Some((path, _)) = self.exceptions.iter().find(|(path, _)| *path == file.path) {
                needed.extend((!findings.is_empty()).then_some(*path));
                continue;
            }
            problems.extend(
                findings.into_iter().map(|(line, what)| format!("{}:{line}: {what}", file.path)),
            );
        }
        let stale = self.exceptions.iter().filter(|(path, _)| !needed.contains(path));
        problems.extend(
            stale.map(|(path, reason)| {
                format!("{path}: the exception is no longer needed: {reason}")
            }),
        );
        assert!(problems.is_empty(), "\n{}\ninstead: {}\n", problems.join("\n"), self.instead);
    }
}

impl File {
    fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    fn is_code(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| {
            ["rs", "py", "mjs", "cjs", "js", "lua", "sh"].iter().any(|known| extension == *known)
        })
    }

    /// Rust without its comments and what is inside its strings, other languages as they are; the
    /// lines keep their numbers.
    fn code(&self) -> String {
        if self.is_rust() {
            self.text.lines().map(bare).collect::<Vec<_>>().join("\n")
        } else {
            self.text.clone()
        }
    }

    /// The sentences of each line: comments, and Markdown outside code. Other lines are empty.
    fn prose(&self) -> Vec<String> {
        let extension = Path::new(&self.path).extension().and_then(|extension| extension.to_str());
        let mark = match extension {
            Some("md") => return prose_of_markdown(&self.text),
            Some("rs" | "js" | "mjs" | "cjs") => "//",
            Some("lua") => "--",
            _ => "#",
        };
        let comment = |line: &str| line.find(mark).map_or("", |at| &line[at..]).to_owned();
        self.text.lines().map(comment).collect()
    }

    /// The code before the unit tests.
    fn shipped_code(&self) -> String {
        let mut code = self.code();
        code.truncate(unit_tests_at(&code).unwrap_or(code.len()));
        code
    }

    /// The unit tests alone, on the lines where they stand in the file.
    fn unit_tests(&self) -> String {
        let code = self.code();
        unit_tests_at(&code)
            .map(|at| "\n".repeat(code[..at].matches('\n').count()) + &code[at..])
            .unwrap_or_default()
    }
}

fn prose_of_markdown(text: &str) -> Vec<String> {
    let mut is_code = false;
    let prose = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let outside: Vec<_> = line.split('`').step_by(2).collect();
        if is_code || is_fence { String::new() } else { outside.join(" ") }
    };
    text.lines().map(prose).collect()
}

/// The place where a file's unit tests begin; they are its end.
fn unit_tests_at(code: &str) -> Option<usize> {
    ["", "pub "]
        .iter()
        .filter_map(|public| {
            code.find(&format!(
                "#[cfg(test)]
{public}mod tests {{"
            ))
        })
        .min()
}

/// A line without its comment and the contents of its strings. Strings of several lines are not
/// understood; their lines count as code.
fn bare(line: &str) -> String {
    let mut code = String::new();
    let mut in_string = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => drop(chars.next()),
            // The character '"' opens no string.
            '"' if !code.ends_with('\'') => {
                in_string = !in_string;
                code.push(c);
            }
            _ if in_string => {}
            '/' if chars.peek() == Some(&'/') => break,
            _ => code.push(c),
        }
    }
    code
}

/// The part of `src/` a file belongs to: `gateway` for `src/gateway/store.rs`; empty for what is
/// not Rust in `src/`.
fn part(file: &File) -> &str {
    let inside = file.path.strip_prefix("src/").filter(|_| file.is_rust());
    inside.map_or("", |path| path.split(['/', '.']).next().unwrap_or_default())
}

/// Where any of `banned`, divided by spaces, stands as a word of its own: `rand` is not in
/// `operand`.
fn words(text: &str, banned: &str) -> Vec<Finding> {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let stands_alone = |line: &str, at: usize, word: &str| {
        let joined_before = line[..at].chars().next_back().is_some_and(|c| joins(c) || c == '}');
        let joined_after = word.ends_with(joins) && line[at + word.len()..].starts_with(joins);
        !joined_before && !joined_after
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let hits = banned
            .split_whitespace()
            .filter(|word| line.match_indices(word).any(|(at, _)| stands_alone(line, at, word)));
        findings.extend(hits.map(|word| (index + 1, format!("`{word}`"))));
    }
    findings
}

/// Every text file of the repository, but for what is built, fetched or generated.
fn repository() -> Vec<File> {
    let mut files = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut files);
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "the repository was not found");
    let test_only: BTreeSet<String> = files.iter().flat_map(test_modules).collect();
    for file in &mut files {
        let stem = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
        file.test_only = test_only.iter().any(|module| {
            stem == module
                || stem.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with('/'))
        });
    }
    files
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    const LEFT_OUT: &[&str] = &[".git", "target", "node_modules", "__pycache__", "Cargo.lock"];
    for entry in fs::read_dir(folder).expect("the repository can be read") {
        let entry = entry.expect("the repository can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(File { path, text, test_only: false });
        }
    }
}

/// The modules that a file declares behind `#[cfg(test)]`, as paths without `.rs`.
fn test_modules(file: &File) -> Vec<String> {
    let owner = file.path.trim_end_matches(".rs");
    let folder =
        ["/mod", "/lib", "/main"].iter().find_map(|name| owner.strip_suffix(name)).unwrap_or(owner);
    let declared = |after: &str| {
        let line = after.trim_start().lines().next()?.trim_end().strip_suffix(';')?;
        let (visibility, name) = line.split_once("mod ")?;
        (visibility.is_empty() || visibility.starts_with("pub")).then(|| format!("{folder}/{name}"))
    };
    file.text.split("#[cfg(test)]").skip(1).filter_map(declared).collect()
}
