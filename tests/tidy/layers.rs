//! Layers of `src/`: dependencies run one way, and each kind of machine access has one home.

use super::{Rule, part, words};

/// What each part of `src/` may use of the others: dependencies run one way. `main`, `lib` and
/// `cli` put the parts together and may use all.
const LAYERS: &[(&str, &[&str])] = &[
    // Only of unit tests.
    ("cases", &[]),
    ("clock", &[]),
    ("random", &[]),
    ("cross_site", &[]),
    ("api", &["clock"]),
    ("decision", &["api", "cases", "clock"]),
    ("config", &["api", "clock", "decision"]),
    ("tokens", &["api", "clock", "config", "decision"]),
    ("telemetry", &["clock"]),
    ("webhooks", &["api", "clock"]),
    ("writes", &["cases", "clock", "state"]),
    ("state", &["clock", "config", "decision"]),
    // Only of tests and fuzzers.
    ("fuzz", &["api", "clock", "config", "decision", "gateway", "random", "webhooks"]),
    ("emulator", &["api", "cases", "clock", "cross_site", "random"]),
    ("simulation", &["api", "clock", "config", "decision", "emulator", "random", "telemetry"]),
    (
        "gateway",
        &[
            "api",
            "clock",
            "config",
            "decision",
            "random",
            "state",
            "telemetry",
            "tokens",
            "webhooks",
            "writes",
        ],
    ),
    (
        "admin",
        &[
            "api",
            "clock",
            "config",
            "cross_site",
            "decision",
            "gateway",
            "state",
            "telemetry",
            "tokens",
            "webhooks",
            "writes",
        ],
    ),
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
            ("src/emulator/a.rs", "use crate::decision::QuotaLedger;"),
            ("src/emulator/a.rs", "use crate::{\n    api,\n    config::Config,\n};"),
            ("src/decision/a.rs", "fn f() { crate::gateway::go() }"),
            ("src/decision/a.rs", "use crate::telemetry::Metrics;"),
            ("src/decision.rs", "use crate::emulator;"),
            ("src/api/a.rs", "use crate::decision::QuotaLedger;"),
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
            ("src/decision/a.rs", "books: parking_lot::Mutex<QuotaLedger>,"),
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
