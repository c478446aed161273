//! `freshness = "rfc9111"` under the public suite of HTTP cache tests
//! (<https://github.com/http-tests/cache-tests>), with its own origin server behind the gateway and
//! its own client in front.
//!
//! The suite is no part of this repository: `WEIR_CACHE_TESTS` names its folder, by default
//! `shared/cache-tests` in the folder that holds the repository. Without it the test says so and
//! passes. [`DECISIONS`] has the tests that do not pass, each with its reason; any other failure
//! fails.
//!
//! To see the requests of one test, run `node origin.mjs SUITE` in
//! `target/tmp/clients/http-cache-…`, with a gateway in front of it, and `node run.mjs SUITE
//! http://GATEWAY ORIGIN KEY - NAME`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs, thread};

use serde::Deserialize;

use super::processes::Gateway;
use super::setup::KEY;
use super::{config, install};

/// The tests of each kind that pass in each way, and the number of tests, browsers' own left out.
const PASSED: [(Way, usize, usize); 3] =
    [(Way::Passthrough, 160, 102), (Way::Pool, 160, 102), (Way::PoolAlone, 159, 99)];
const REQUIRED: usize = 160;
const OPTIMAL: usize = 105;

/// The required and optimal tests that do not pass, with the reason.
const DECISIONS: [(&str, Ways, &str); 7] = [
    (
        "method-POST",
        Ways::All,
        "a write invalidates its target, and the first answers after it are asked for again, \
         because replicas lag; a POST is made as one account, and a GET for a whole pool",
    ),
    (
        "conditional-lm-fresh-no-lm",
        Ways::All,
        "RFC 9111 §4.3.2: without Last-Modified the Date counts, and it is later than the \
         client's; a 304 would call an unknown older answer current",
    ),
    (
        "partial-store-partial-complete",
        Ways::All,
        "RFC 9111 §3.4: parts are combined only by a strong validator, which the test's answers \
         lack; the whole is fetched",
    ),
    (
        "other-authorization",
        Ways::PoolAlone,
        "without pass-through a client's Authorization ends at the gateway; all clients of a pool \
         have one view, the pool's token fetches for them, and they share its answers \
         (SPECIFICATION D2)",
    ),
    ("other-authorization-public", Ways::PoolAlone, "as above"),
    ("other-authorization-must-revalidate", Ways::PoolAlone, "as above"),
    ("other-authorization-smaxage", Ways::PoolAlone, "as above"),
];

/// The way of the suite's requests through the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Every request carries an upstream credential of the client's own.
    Passthrough,
    /// Only the tests of `Authorization` carry one.
    Pool,
    /// The same, but pass-through is off.
    PoolAlone,
}

/// The ways in which a test does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    All,
    PoolAlone,
}

impl Ways {
    fn have(self, way: Way) -> bool {
        self == Self::All || way == Way::PoolAlone
    }
}

#[derive(Debug, Deserialize)]
struct TestResult {
    suite: String,
    test: String,
    kind: String,
    result: String,
    why: Option<String>,
}

impl TestResult {
    fn is_passed(&self) -> bool {
        self.result == "pass"
    }
}

/// The suite's origin server.
struct Origin {
    process: Child,
    address: String,
}

impl Origin {
    fn start(directory: &Path, suite: &Path) -> Self {
        let mut node = Command::new("node");
        let mut process = node
            .arg("origin.mjs")
            .arg(suite)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut address = String::new();
        output.read_line(&mut address).expect("it says where it listens");
        Self { process, address: address.trim().to_owned() }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The suite's folder, if it is there.
fn suite_folder() -> Result<PathBuf, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let by_default = || repository.with_file_name("shared").join("cache-tests");
    let folder = env::var_os("WEIR_CACHE_TESTS").map_or_else(by_default, PathBuf::from);
    let is_there = folder.join("tests/index.mjs").is_file();
    if is_there { Ok(folder) } else { Err(folder.display().to_string()) }
}

/// Copies the suite to where Node finds its packages.
fn copied_suite(from: &Path, directory: &Path) -> PathBuf {
    let suite = directory.join("suite");
    for part in ["tests", "test-engine"] {
        copy_folder(&from.join(part), &suite.join(part));
    }
    suite
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn config_of(origin: &str, way: Way) -> String {
    // The suite is faster than the documented limits of one account.
    const HIGH_LIMITS: &str = "concurrency = 1000\nrest_points_per_minute = 1000000\n\
        cpu_seconds_per_minute = 1000000\ncontent_per_minute = 1000000\n\
        content_per_hour = 1000000";
    let passthrough = if way == Way::PoolAlone { "enabled = false" } else { "enabled = true" };
    config::listen("127.0.0.1:0", "")
        + &config::upstream(origin, "")
        + &config::user("suite", "origin-token")
        + &config::pool("suite", &["suite"])
        + &config::client("suite", KEY, "reads = \"suite\"\nwrites = \"suite\"")
        + &config::section("cache", config::RFC9111)
        + &config::section("passthrough", passthrough)
        + &config::section("writes", config::UNSPACED)
        + &config::section("limits", HIGH_LIMITS)
}

fn run(directory: &Path, suite: &Path, way: Way) -> Vec<TestResult> {
    let origin = Origin::start(directory, suite);
    let gateway = Gateway::serve(&config_of(&origin.address, way));
    let credential = if way == Way::Passthrough { "Bearer own-credential" } else { "-" };
    let output = Command::new("node")
        .args(["--no-warnings", "run.mjs"])
        .arg(suite)
        .args([&gateway.base_url, &origin.address, KEY, credential])
        .current_dir(directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|fault| {
        panic!("{fault}: {text}{}", String::from_utf8_lossy(&output.stderr))
    })
}

/// Writes to the terminal, also from a test that passes.
fn tell(line: &str) {
    writeln!(io::stderr(), "{line}").expect("the test's own output");
}

/// The faults of one way: unexpected failures, unexpected passes, and too few passes.
fn faults(way: Way, results: &[TestResult]) -> Vec<String> {
    let counted = |kind: &str| results.iter().filter(|test| test.kind == kind).count();
    let passed =
        |kind: &str| results.iter().filter(|test| test.kind == kind && test.is_passed()).count();
    let [required, optimal] =
        ["required", "optimal"].map(|kind| format!("{} of {} {kind}", passed(kind), counted(kind)));
    tell(&format!("{way:?}: {required} and {optimal} tests pass"));
    let decided = |test: &TestResult| {
        DECISIONS.iter().any(|(name, ways, _)| *name == test.test && ways.have(way))
    };
    let mut faults = Vec::new();
    for test in results.iter().filter(|test| test.kind != "check") {
        let TestResult { suite, test: name, result, why, .. } = test;
        match (test.is_passed(), decided(test)) {
            (false, false) => faults.push(format!("{way:?}: {suite} {name}: {result} {why:?}")),
            (true, true) => faults.push(format!("{way:?}: {name} passes by now")),
            _ => {}
        }
    }
    let (_, required, optimal) = PASSED.into_iter().find(|(of, ..)| *of == way).expect("a row");
    for (kind, least, total) in [("required", required, REQUIRED), ("optimal", optimal, OPTIMAL)] {
        if passed(kind) < least || counted(kind) < total {
            faults.push(format!("{way:?}: {} {kind} tests pass, not {least}", passed(kind)));
        }
    }
    faults
}

#[test]
fn the_public_cache_suite_passes_with_the_listed_exceptions() {
    let folder = match suite_folder() {
        Ok(folder) => folder,
        Err(missing) => {
            tell(&format!("not run: the public suite of HTTP cache tests is not in {missing}"));
            return;
        }
    };
    let directory = install::installed_for_node("http-cache", &["origin.mjs", "run.mjs"]);
    let suite = copied_suite(&folder, &directory);
    let results: Vec<_> = thread::scope(|scope| {
        let runs = PASSED.map(|(way, ..)| {
            let (directory, suite) = (&directory, &suite);
            (way, scope.spawn(move || run(directory, suite, way)))
        });
        runs.into_iter().map(|(way, run)| (way, run.join().expect("a run"))).collect()
    });
    let faults: Vec<_> = results.iter().flat_map(|(way, results)| faults(*way, results)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_decision_about_the_cache_suite_has_a_reason() {
    let reasons: BTreeMap<_, _> =
        DECISIONS.into_iter().map(|(test, ways, reason)| (test, (ways, reason))).collect();
    assert_eq!(reasons.len(), DECISIONS.len(), "a test is listed twice");
    assert!(reasons.values().all(|(_, reason)| !reason.is_empty()));
    for (way, required, optimal) in PASSED {
        let decided = reasons.values().filter(|(ways, _)| ways.have(way)).count();
        assert_eq!(REQUIRED + OPTIMAL - required - optimal, decided, "{way:?}");
    }
}
