//! Habits of the code that clippy cannot see.

use super::{Rule, part, words};

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
        exceptions: &[("tests/tidy/code.rs", "it names what it refuses")],
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
fn comments_begin_with_slashes() {
    Rule {
        instead: "`//`, `///` or `//!` on each line: the rules about sentences read no others",
        finds: |file| {
            let code = if file.is_rust() { file.code() } else { String::new() };
            let lines = code.lines().enumerate().filter(|(_, line)| line.contains("/*"));
            lines.map(|(index, _)| (index + 1, "`/*`".to_owned())).collect()
        },
        exceptions: &[],
        refused: &[
            ("src/a.rs", "/** What is left. */\nfn a() {}"),
            ("src/a.rs", "/*! Told. */"),
            ("tests/a.rs", "fn a() { /* later */ }"),
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
        instead: "answer with a `GatewayError` (gateway/error.rs); one bad request must not end a connection that others use",
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
fn one_function_renders_the_answers_of_clients() {
    Rule {
        instead: "hand the answer to `Responder::render` (gateway/response/render.rs) as a `Content`",
        finds: |file| {
            let parts = "add_gateway_headers( MapHead:: OnWire( .begin_stored(";
            let elsewhere = !file.path.ends_with("gateway/response/render.rs");
            if part(file) == "gateway" && elsewhere { words(&file.shipped_code(), parts) } else { Vec::new() }
        },
        exceptions: &[
            ("src/gateway/response/gateway_headers.rs", "defines what `render` adds"),
            ("src/gateway/response/write.rs", "ends a rendered head with its date and connection"),
        ],
        refused: &[("src/gateway/server/a.rs", "let mut head = MapHead::default();")],
    }
    .check();
}

#[test]
fn every_test_and_bench_has_a_path() {
    Rule {
        instead: "name the `path`: `deploy/Dockerfile` builds without these folders, and Cargo looks for what has none",
        finds: |file| {
            let manifest = if file.path == "Cargo.toml" { &*file.text } else { "" };
            let targets = manifest.split("\n[[").filter(|section| {
                section.starts_with("test]]") || section.starts_with("bench]]")
            });
            let names = targets.filter(|section| !section.contains("\npath = "));
            names.map(|section| (1, section.lines().nth(1).unwrap_or_default().to_owned())).collect()
        },
        exceptions: &[],
        refused: &[("Cargo.toml", "[package]\n\n[[bench]]\nname = \"writes\"\nharness = false\n")],
    }
    .check();
}
