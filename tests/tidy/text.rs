//! Names, words and sentences, in code and papers.

use super::{File, Finding, Rule, bare, repository, words};

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
            ("tests/tidy/text.rs", "it names what it refuses"),
            ("src/api/endpoint/dialect.rs", "a route segment of the upstream's `github` dialect"),
            ("src/api/endpoint/table_text.rs", "the same route segment, in its test"),
            ("src/api/endpoint/table_tests.rs", "the same route segment"),
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
    const ENTRIES: &str = "ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md Cargo.lock Cargo.toml LICENSE Makefile README.md SECURITY.md SPECIFICATION.md benches build.rs clippy.toml config deny.toml deploy rust-toolchain.toml rustfmt.toml \
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

#[test]
fn lines_fit_into_a_hundred_columns() {
    const COLUMNS: usize = 100;
    let files: Vec<_> = repository().into_iter().filter(File::is_rust).collect();
    let lines: usize = files.iter().map(|file| file.text.lines().count()).sum();
    let is_long = |line: &&str| line.chars().count() > COLUMNS;
    let long: usize = files.iter().map(|file| file.text.lines().filter(is_long).count()).sum();
    assert!(long * 100 <= lines, "{long} of {lines} lines have more than {COLUMNS} columns");
    let is_long_comment = |line: &&str| {
        is_long(line) && line.trim_start().starts_with("//") && !line.contains("//! |")
    };
    for file in files {
        let comment = file.text.lines().find(is_long_comment);
        assert!(comment.is_none(), "{}: a long comment: {comment:?}", file.path);
    }
}

#[test]
fn a_doc_comment_begins_with_its_subject() {
    let (mut comments, mut findings) = (0, Vec::new());
    for file in repository().iter().filter(|file| file.is_rust() && file.path.starts_with("src/")) {
        for (line, comment) in doc_comments(&file.text) {
            comments += 1;
            if begins_with_a_question(&comment) {
                findings.push(format!("{}:{line}: {comment}", file.path));
            }
        }
    }
    let share = format!("{} of {comments} doc comments", findings.len());
    assert!(findings.len() * 100 <= comments, "{share}:\n{}", findings.join("\n"));
}

/// A doc comment that begins with a question word in place of the noun that it is about.
fn begins_with_a_question(comment: &str) -> bool {
    let first = comment.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    ["who", "what", "whose", "whether", "how", "whoever", "whatever"]
        .contains(&first.to_lowercase().as_str())
}

/// The first line of each doc comment, with its number.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let body = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
            .map(|body| body.trim().to_owned())
    };
    let (mut found, mut inside) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        let comment = body(line);
        if let Some(comment) = comment.clone().filter(|_| !inside) {
            found.push((index + 1, comment));
        }
        inside = comment.is_some();
    }
    found
}

#[test]
fn a_question_word_is_found() {
    let text = "//! How it is done.\n\n/// What is left.\n/// Whose it is.\nfn a() {}\n/// However.\nfn b() {}";
    let comments = doc_comments(text);
    assert_eq!(comments.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 6]);
    let questions = comments.iter().filter(|(_, comment)| begins_with_a_question(comment));
    assert_eq!(questions.count(), 2);
}

/// Words of the private language that the standard terms have replaced, in lower case. None is part
/// of a name or stands in a sentence.
const GONE: &str = "asker asleep attended awake books census conclude courier crowd desert deserted \
    doubt doubtful dress fate guest guests happening happenings holdings intake kin landed lesson \
    lessons neighbours occasions outbox passenger pilot proposals seat shelves sought told trouble \
    upkeep verdict whoever wishes";

/// Phrases that are gone, also where a line ends within one.
const GONE_PHRASES: &[&str] = &["as ever", "for want of", "in the place of"];

#[test]
fn words_that_are_gone_stay_gone() {
    Rule {
        instead: "use the standard term: usage, counts, invalidated, dynamic account, observation, leader, follower, request directives, pagination, quota ledger, webhook sender, delivery queue, reported",
        finds: gone_words,
        exceptions: &[("tests/tidy/text.rs", "it names what it refuses")],
        refused: &[
            ("src/gateway/a.rs", "fn f(wishes: &Wishes) {}"),
            ("src/gateway/a.rs", "// The pilot fetches."),
            ("src/tokens/a.rs", "pub fn is_awake(&self) -> bool {"),
            ("tests/contract/a.rs", "fn a_client_is_told_to_wait() {}"),
            ("src/gateway/a.rs", "// The seat of a follower."),
            ("src/gateway/a.rs", "fn dress(landed: Landed) {}"),
            ("src/gateway/a.rs", "/// Validated as ever."),
            ("src/gateway/a.rs", "/// Sent for\n/// want of a better one."),
            ("deploy/a.sh", "# Whoever starts it."),
            ("src/api/a.table", "# The intake of a request."),
            ("README.md", "A stale answer in the place of an error."),
            ("README.md", "No trouble at all."),
        ],
    }
    .check();
}

#[test]
fn words_in_strings_are_free() {
    for (path, text) in [
        ("src/a.rs", r#"let path = "/_emulator/books";"#),
        ("src/a.rs", "let (bookshop, untold) = (1, 2); // Here as everywhere."),
        ("README.md", "`GET /books` lists them:\n```sh\ncurl $API/_emulator/books\n```"),
    ] {
        let file = File { path: path.to_owned(), text: text.to_owned(), test_only: false };
        assert_eq!(gone_words(&file), []);
    }
}

fn gone_words(file: &File) -> Vec<Finding> {
    let prose = file.prose();
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let names = if file.is_rust() { bare(line) } else { String::new() };
        let here = parts_of_words(&format!("{names} {}", prose[index]));
        let words =
            GONE.split_whitespace().filter(|gone| here.split(' ').any(|part| part == *gone));
        let next = prose.get(index + 1).map_or("", String::as_str);
        let on = parts_of_words(&format!("{names} {} {next}", prose[index]));
        let phrases = GONE_PHRASES.iter().filter(|gone| on.contains(&format!(" {gone} ")));
        findings.extend(words.chain(phrases.copied()).map(|gone| (index + 1, format!("`{gone}`"))));
    }
    findings
}

/// The parts of names and words, in lower case: ` sent while told ` of `SentWhile_told`.
fn parts_of_words(text: &str) -> String {
    let mut parts = String::from(" ");
    let mut was_lower = false;
    for c in text.chars().chain([' ']) {
        let begins = !c.is_ascii_alphabetic() || (c.is_ascii_uppercase() && was_lower);
        if begins && !parts.ends_with(' ') {
            parts.push(' ');
        }
        parts.extend(c.is_ascii_alphabetic().then(|| c.to_ascii_lowercase()));
        was_lower = c.is_ascii_lowercase();
    }
    parts
}

#[test]
fn a_test_is_named_by_a_short_sentence() {
    const CHARACTERS: usize = 60;
    Rule {
        instead: "a short sentence in standard terms whose subject is a noun and comes first",
        finds: |file| {
            let names = if file.is_rust() { test_names(&file.text) } else { Vec::new() };
            let hits = names.into_iter().filter(|(_, name)| {
                name.len() > CHARACTERS || begins_with_a_question(&name.replace('_', " "))
            });
            hits.map(|(line, name)| (line, format!("a test called `{name}`"))).collect()
        },
        exceptions: &[],
        refused: &[
            ("src/a.rs", "#[test]\nfn what_is_not_stored_is_fetched() {}"),
            (
                "tests/contract/a.rs",
                "#[tokio::test]\nasync fn a_client_that_waits_for_more_than_a_minute_is_answered_with_a_503() {}",
            ),
        ],
    }
    .check();
}

/// The name of each test, with its line.
fn test_names(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
        if let Some((name, _)) = function.filter(|_| is_test).and_then(|name| name.split_once('('))
        {
            found.push((index + 1, name));
            is_test = false;
        }
    }
    found
}
