//! The rules of this repository that a compiler does not know, as tests over its text: layering,
//! clocks, sizes, words.
//!
//! Every rule says what to do instead, carries texts that it must refuse (so that it is seen to
//! fail on every run) and lists its exceptions with a reason; an exception that is no longer needed
//! fails too. The rules look at lines and words, not at syntax: what clippy and `cargo deny` can
//! judge better is left to them.

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

/// What each part of `src/` may use of the others: dependencies run one way. `main`, `lib` and
/// `cli` put the parts together and may use all.
const LAYERS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("api", &["clock"]),
    ("decision", &["api", "clock"]),
    ("config", &["api", "decision"]),
    ("tokens", &["api", "clock", "config", "decision"]),
    ("telemetry", &["clock"]),
    ("webhooks", &["api", "clock"]),
    ("writes", &["clock"]),
    ("emulator", &["api", "clock"]),
    ("simulation", &["api", "clock", "config", "decision", "emulator"]),
    (
        "gateway",
        &["api", "clock", "config", "decision", "telemetry", "tokens", "webhooks", "writes"],
    ),
    ("admin", &["api", "clock", "config", "decision", "gateway", "telemetry", "tokens", "writes"]),
];

#[test]
fn dependencies_run_one_way() {
    Rule {
        instead: "pass it in as an argument, or move what both need down (ARCHITECTURE.md); a new part of src/ gets a line in LAYERS",
        finds: |file| {
            let part = part(file);
            if part.is_empty() || ["main", "lib", "cli"].contains(&part) {
                return Vec::new();
            }
            let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == part) else {
                return vec![(1, format!("nothing says what `{part}` may use"))];
            };
            let used = crate_paths(&file.code()).into_iter();
            used.filter(|(_, to)| to != part && !allowed.contains(&to.as_str()))
                .map(|(line, to)| (line, format!("`{part}` uses `{to}`")))
                .collect()
        },
        exceptions: &[],
        refused: &[
            ("src/emulator/a.rs", "use crate::decision::Books;"),
            ("src/emulator/a.rs", "use crate::{\n    api,\n    config::Config,\n};"),
            ("src/decision/a.rs", "fn f() { crate::gateway::go() }"),
            ("src/decision/a.rs", "use crate::telemetry::Metrics;"),
            ("src/decision.rs", "use crate::emulator;"),
            ("src/api/a.rs", "use crate::decision::Books;"),
            ("src/helper/a.rs", "fn f() {}"),
        ],
    }
    .check();
}

#[test]
fn the_decision_core_is_pure() {
    Rule {
        instead: "time and random numbers are arguments, waiting and sharing belong to the gateway",
        finds: |file| {
            const IMPURE: &str = "tokio pingora parking_lot Mutex RwLock Condvar OnceLock LazyLock thread_local Clock Instant SystemTime::now \
                std::fs std::io std::net std::env std::thread rand getrandom async";
            if part(file) == "decision" { words(&file.code(), IMPURE) } else { Vec::new() }
        },
        exceptions: &[],
        refused: &[
            ("src/decision/a.rs", "use std::time::{Duration, Instant};"),
            ("src/decision/a.rs", "let now = SystemTime::now();"),
            ("src/decision/a.rs", "books: parking_lot::Mutex<Books>,"),
            ("src/decision/a.rs", "pub async fn choose() {}"),
        ],
    }
    .check();
}

#[test]
fn only_the_gateway_knows_the_framework() {
    Rule {
        instead: "keep the framework behind src/gateway/: hand over plain types of `http` and `bytes`",
        finds: |file| {
            if !file.is_rust() || part(file) == "gateway" {
                return Vec::new();
            }
            let code = file.code();
            let lines = code.lines().enumerate().filter(|(_, line)| line.contains("pingora"));
            lines.map(|(index, _)| (index + 1, "`pingora`".to_owned())).collect()
        },
        exceptions: &[],
        refused: &[("src/cli/a.rs", "use pingora::apps::HttpServerApp;"), ("tests/a.rs", "pingora_core::init()")],
    }
    .check();
}

#[test]
fn clocks_are_read_in_one_place() {
    Rule {
        instead: "take a `Timestamp`, or own a `clock::Clock`",
        finds: |file| {
            let reads = "Instant::now SystemTime::now Utc::now Local::now now_utc";
            if part(file).is_empty() { Vec::new() } else { words(&file.code(), reads) }
        },
        exceptions: &[("src/clock.rs", "it is that place")],
        refused: &[
            ("src/gateway/a.rs", "let begun = tokio::time::Instant::now();"),
            ("src/cli/a.rs", "chrono::Utc::now()"),
        ],
    }
    .check();
}

#[test]
fn tests_do_not_sleep() {
    Rule {
        instead: "wait for the event itself: a gate of the emulator, a channel, a manual clock, a poll with a deadline",
        finds: |file| {
            let tests = if file.path.starts_with("tests/") || file.test_only { file.code() } else { file.unit_tests() };
            if file.is_code() { words(&tests, "sleep sleep_until sleep_ms timers/promises setTimeout(resolve") } else { Vec::new() }
        },
        exceptions: &[],
        refused: &[
            ("tests/a.rs", "std::thread::sleep(PAUSE);"),
            ("tests/clients/a.py", "    time.sleep(1)"),
            ("src/gateway/a.rs", "#[cfg(test)]\nmod tests {\n    async fn f() { tokio::time::sleep(D).await }\n}"),
        ],
    }
    .check();
}

#[test]
fn a_file_is_one_idea_and_says_which() {
    const LINES_MAX: usize = 600;
    let rule = Rule {
        instead: "split a long file; open every file with `//!`: what it is for and what it leaves out",
        finds: |file| {
            let mut findings = Vec::new();
            if file.is_rust() {
                let lines = file.text.lines().count();
                findings.extend(
                    (lines > LINES_MAX)
                        .then(|| (LINES_MAX + 1, format!("{lines} lines, more than {LINES_MAX}"))),
                );
                findings.extend(
                    (!file.text.starts_with("//! "))
                        .then(|| (1, "does not open with `//!`".to_owned())),
                );
            }
            findings
        },
        exceptions: &[],
        refused: &[("src/a.rs", "use std::fs;\n//! Too late."), ("benches/a.rs", "")],
    };
    assert!(rule.refuses("src/a.rs", &"//! Long.\n".repeat(LINES_MAX + 1)));
    rule.check();
}

#[test]
fn modules_are_named_after_the_domain() {
    Rule {
        instead: "name it after what it knows or does",
        finds: |file| {
            let vague = ["util", "utils", "common", "helper", "helpers", "misc", "shared", "stuff"];
            let names = file.path.split('/').map(|name| name.split('.').next().unwrap_or(name));
            let hits = names
                .filter(|name| vague.contains(name))
                .map(|name| (1, format!("a place called `{name}`")));
            if file.is_code() { hits.collect() } else { Vec::new() }
        },
        exceptions: &[],
        refused: &[
            ("src/gateway/util.rs", ""),
            ("tests/common/mod.rs", ""),
            ("tests/clients/helpers.py", ""),
        ],
    }
    .check();
}

#[test]
fn nothing_is_left_for_later() {
    Rule {
        instead: "do it, or write an issue; a test that cannot pass yet is not committed",
        finds: |file| {
            let mut findings = words(&file.text, "TODO FIXME XXX HACK");
            if file.is_rust() {
                findings.extend(words(&file.code(), "todo! unimplemented! dbg! #[ignore"));
            }
            findings
        },
        exceptions: &[("tests/tidy.rs", "it names what it refuses")],
        refused: &[
            ("src/a.rs", "// TODO: later"),
            ("README.md", "FIXME"),
            ("src/a.rs", "    todo!()"),
            ("tests/a.rs", "#[ignore = \"slow\"]"),
        ],
    }
    .check();
}

#[test]
fn a_lint_is_expected_with_a_reason_not_allowed() {
    Rule {
        instead: "`#[expect(lint, reason = \"…\")]`: it complains when it is no longer needed",
        finds: |file| {
            if file.is_rust() { words(&file.code(), "#[allow #![allow") } else { Vec::new() }
        },
        exceptions: &[],
        refused: &[("src/a.rs", "#[allow(dead_code)]"), ("tests/a.rs", "#![allow(unused)]")],
    }
    .check();
}

#[test]
fn only_commands_write_to_the_terminal() {
    Rule {
        instead: "log it (`tracing`), or return it to src/cli/",
        finds: |file| {
            let writes = "println! print! eprintln! eprint! stdout() stderr()";
            if ["", "cli", "main"].contains(&part(file)) || file.test_only {
                Vec::new()
            } else {
                words(&file.shipped_code(), writes)
            }
        },
        exceptions: &[],
        refused: &[
            ("src/gateway/a.rs", "    println!(\"{key}\");"),
            ("src/emulator/a.rs", "eprintln!()"),
        ],
    }
    .check();
}

#[test]
fn the_gateway_does_not_panic_on_input() {
    Rule {
        instead: "answer with a refusal (gateway/refuse.rs); one bad request must not end a connection that others use",
        finds: |file| {
            let panics = "unwrap() panic! unreachable!";
            if part(file) == "gateway" && !file.test_only { words(&file.shipped_code(), panics) } else { Vec::new() }
        },
        exceptions: &[],
        refused: &[("src/gateway/a.rs", "let host = headers.get(HOST).unwrap();\n#[cfg(test)]\nmod tests {\n}")],
    }
    .check();
}

#[test]
fn the_text_is_about_weir_alone() {
    Rule {
        instead: "write for the next engineer: no makers' brands, no paths of one machine, no package hosts (their clients know them)",
        finds: |file| {
            const BRANDS: &str = "claude anthropic openai chatgpt copilot llm";
            // A path stands alone: `/repos/acme/work/` is a route.
            const PLACES: &str = "/work/ /root/ /home/ ../shared registry.npmjs.org pypi.org crates.io/api";
            words(&file.text.to_lowercase(), &format!("{BRANDS} {PLACES}"))
        },
        exceptions: &[
            ("tests/tidy.rs", "it names what it refuses"),
            ("src/api/dialect.rs", "a route segment of the upstream's `github` dialect"),
            ("src/api/lines.rs", "the same route segment, in its test"),
            ("src/api/table_tests.rs", "the same route segment"),
        ],
        refused: &[
            ("README.md", "as Claude said"),
            ("src/cli/a.rs", "const BIN: &str = \"/work/main/target\";"),
            ("deploy/a.sh", "curl https://pypi.org/simple/"),
            ("src/gateway/a.rs", "// see ../shared/DESIGN.md"),
        ],
    }
    .check();
}

#[test]
fn the_top_level_stays_small() {
    const ENTRIES: &str = "ARCHITECTURE.md Cargo.lock Cargo.toml LICENSE Makefile README.md benches clippy.toml config deny.toml deploy rustfmt.toml \
        src tests";
    Rule {
        instead: "put it into one of the folders, or leave it out of the repository",
        finds: |file| {
            let entry = file.path.split('/').next().unwrap_or_default();
            let known =
                entry.starts_with('.') || ENTRIES.split_whitespace().any(|known| known == entry);
            if known { Vec::new() } else { vec![(1, format!("a new top-level entry `{entry}`"))] }
        },
        exceptions: &[],
        refused: &[("notes.md", ""), ("scripts/a.sh", "")],
    }
    .check();
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

    /// The code before the unit tests.
    fn shipped_code(&self) -> String {
        let mut code = self.code();
        code.truncate(code.find(UNIT_TESTS).unwrap_or(code.len()));
        code
    }

    /// The unit tests alone, on the lines where they stand in the file.
    fn unit_tests(&self) -> String {
        let code = self.code();
        code.find(UNIT_TESTS)
            .map(|at| "\n".repeat(code[..at].matches('\n').count()) + &code[at..])
            .unwrap_or_default()
    }
}

/// Where a file's unit tests begin; they are its end.
const UNIT_TESTS: &str = "#[cfg(test)]\nmod tests {";

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

/// Each `crate::x` of the code, and each `x` of a `crate::{x, …}`, with its line.
fn crate_paths(code: &str) -> Vec<(usize, String)> {
    let name = |text: &str| {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push((line, name(rest)));
            continue;
        };
        found.push((line, name(group)));
        let mut depth = 1;
        for (index, c) in group.char_indices().take_while(|(_, c)| *c != ';') {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 1 && c == ',' {
                found.push((line, name(&group[index + 1..])));
            }
        }
    }
    found.retain(|(_, name)| !name.is_empty());
    found
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
