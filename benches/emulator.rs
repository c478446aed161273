//! Requests per second of the emulator's `respond` alone, and the cost of a large world
//! (benches/README.md). No socket, one thread, virtual time.
//!
//! Run it with `cargo bench --bench emulator`; an argument selects the rows whose names contain it.

mod process;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use weir::clock::{Clock, Timestamp};
use weir::emulator::{Conditions, Emulator, Options};

use process::busy;

/// The allocator of `weir`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TOKEN: &str = "Bearer emu_classic_ada_all_scopes";
const BEGINNING: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Virtual time between two requests: about the rate that an account may sustain for hours.
const STEP: Duration = Duration::from_millis(100);
/// CPU time of each row's measurement.
const MEASURED: Duration = Duration::from_secs(1);
/// Turns between two readings of the clock.
const ROUND: usize = 60;
/// Repositories of the small and the large world.
const WORLDS: [u32; 2] = [20, 10_000];
/// Number of issues in turn: with a single one its thousands of comments would dominate.
const ISSUES: u32 = 60;
/// Limits that would end the measurement.
const LIMITS: [&str; 6] =
    ["core", "search", "graphql", "content.minute", "content.hour", "points.rest"];

/// Name, method, path (`{n}` stands for each of the first issues in turn), body, and the expected
/// status.
type Row = (&'static str, &'static str, &'static str, &'static str, u16);

const MIX: [Row; 6] = [
    ("a repository", "GET", "/repos/acme/widgets", "", 200),
    ("a list of 30 issues", "GET", "/repos/acme/widgets/issues", "", 200),
    ("a repository, 304", "GET", "/repos/acme/widgets", "", 304),
    ("nothing, 404", "GET", "/repos/acme/nothing", "", 404),
    (
        "a comment, POST",
        "POST",
        "/repos/acme/widgets/issues/{n}/comments",
        r#"{"body":"said"}"#,
        201,
    ),
    (
        "GraphQL viewer",
        "POST",
        "/graphql",
        r#"{"query":"{ viewer { login } rateLimit { remaining } }"}"#,
        200,
    ),
];

const OTHERS: [Row; 8] = [
    ("a user", "GET", "/users/ada", "", 200),
    ("an organisation", "GET", "/orgs/acme", "", 200),
    ("repositories of a user", "GET", "/users/ada/repos", "", 200),
    ("repositories of an organisation", "GET", "/orgs/acme/repos", "", 200),
    ("my repositories", "GET", "/user/repos", "", 200),
    ("search in one repository", "GET", "/search/issues?q=repo:acme/widgets+is:open", "", 200),
    ("notifications", "GET", "/notifications", "", 200),
    ("the rate limits", "GET", "/rate_limit", "", 200),
];

struct Upstream {
    emulator: Emulator,
    now: Timestamp,
}

impl Upstream {
    fn new(repositories: u32) -> Self {
        let options = Options {
            repositories,
            base_url: "http://upstream.test".to_owned(),
            ..Options::default()
        };
        let mut emulator = Emulator::new(options, BEGINNING);
        let mut conditions = Conditions::default();
        for name in LIMITS {
            assert!(conditions.limit(name, u64::from(u32::MAX)).is_ok(), "{name}");
        }
        emulator.impose(conditions);
        Self { emulator, now: BEGINNING + Duration::from_secs(10) }
    }

    fn respond(&mut self, request: &Request<Bytes>) -> (StatusCode, usize) {
        self.now = self.now + STEP;
        let response = self.emulator.respond(self.now, request, PEER);
        (response.status(), response.body().len())
    }

    fn requests(&mut self, row: Row) -> Vec<Request<Bytes>> {
        let numbers = if row.2.contains("{n}") { 1..=ISSUES } else { 1..=1 };
        numbers
            .map(|number| self.request(row, &row.2.replace("{n}", &number.to_string())))
            .collect()
    }

    /// Builds one request; one for a 304 carries the validator of an earlier answer.
    fn request(&mut self, (name, method, _, body, status): Row, path: &str) -> Request<Bytes> {
        let builder = || {
            Request::builder()
                .method(method)
                .uri(path)
                .header("authorization", TOKEN)
                .header("accept", "application/json")
        };
        let build = |builder: http::request::Builder| match builder
            .body(Bytes::from_static(body.as_bytes()))
        {
            Ok(request) => request,
            Err(error) => panic!("{name}: {error}"),
        };
        if status != 304 {
            return build(builder());
        }
        let first = self.emulator.respond(self.now, &build(builder()), PEER);
        let tag = first.headers().get("etag").cloned();
        build(tag.into_iter().fold(builder(), |builder, tag| builder.header("if-none-match", tag)))
    }

    /// Sends these in turn until the time is over. Returns requests per second, and the bytes of
    /// all bodies together.
    fn measure(&mut self, rows: &[Row], clock: &Clock) -> (f64, usize) {
        let requests: Vec<Vec<Request<Bytes>>> =
            rows.iter().map(|row| self.requests(*row)).collect();
        let mut bytes = 0;
        for (row, request) in
            rows.iter().zip(&requests).filter_map(|(row, turns)| Some((row, turns.first()?)))
        {
            let (status, length) = self.respond(request);
            assert_eq!(status.as_u16(), row.4, "{}", row.0);
            bytes += length;
        }
        let (begun, mut sent) = (busy(clock), 0_u32);
        loop {
            for turn in 0..ROUND {
                for request in requests.iter().filter_map(|turns| turns.get(turn % turns.len())) {
                    std::hint::black_box(self.respond(request));
                    sent += 1;
                }
            }
            let elapsed = busy(clock).saturating_sub(begun);
            if elapsed >= MEASURED {
                return (f64::from(sent) / elapsed.as_secs_f64(), bytes);
            }
        }
    }
}

/// Resident memory of this process in KiB; 0 when unknown.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn main() {
    let wanted =
        std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let clock = Clock::system();
    let mut worlds = Vec::new();
    for repositories in WORLDS {
        let (memory, begun) = (resident_kib(), busy(&clock));
        let upstream = Upstream::new(repositories);
        let (took, took_kib) =
            (busy(&clock).saturating_sub(begun), resident_kib().saturating_sub(memory));
        println!(
            "{repositories:>6} repositories: made in {:>5} ms, {:>6} KiB resident",
            took.as_millis(),
            took_kib
        );
        worlds.push(upstream);
    }
    println!(
        "\n{:<34} {:>8}   requests per second of one core with {} and {} repositories",
        "", "bytes", WORLDS[0], WORLDS[1]
    );
    let alone = MIX.iter().chain(&OTHERS).map(|row| (row.0, std::slice::from_ref(row)));
    let all: Vec<(&str, &[Row])> =
        std::iter::once(("the first six in turn", &MIX[..])).chain(alone).collect();
    for (name, rows) in all.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        let figures: Vec<(f64, usize)> =
            worlds.iter_mut().map(|upstream| upstream.measure(rows, &clock)).collect();
        let rates: Vec<String> = figures.iter().map(|(rate, _)| format!("{rate:>12.0}")).collect();
        println!(
            "{name:<34} {:>8}   {}",
            figures.first().map_or(0, |(_, bytes)| *bytes),
            rates.join(" ")
        );
    }
}
