//! The plain driver: mutates seeds, a few cases in each run of the tests and for `FUZZ_SECONDS`
//! where that is set. It has no coverage; `tests/fuzz/` has.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use super::TARGETS;
use crate::clock::Clock;
use crate::random::Rng;

/// Cases of a target in a usual run of the tests: a second or two for all of them.
const CASES: u64 = 100;
/// Longest mutated input.
const BYTES_MAX: usize = 16 * 1024;
/// Most mutations of one seed.
const MUTATIONS_MAX: u64 = 6;

/// Parts with a meaning somewhere.
const TOKENS: &[&str] = &[
    "\r\n",
    "\n",
    "\r\n\r\n",
    "\0",
    "\t",
    " ",
    "\"",
    "\\",
    "\\\"",
    "\\u0022",
    ",",
    ";",
    ":",
    "=",
    "*",
    "%2e",
    "%2F",
    "%",
    "..",
    "//",
    "/api/v3",
    "/graphql",
    "http://",
    "https://a/",
    "https://api.example.com/",
    "https://uploads.example.com",
    "https://h/api/v3/",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: b\r\n",
    "HTTP/1.1",
    "0\r\n\r\n",
    "ffffffffffffffff",
    "4294967296",
    "18446744073709551615",
    "-1",
    "0",
    "1e9",
    "no-store",
    "no-cache",
    "private",
    "max-age=60",
    "s-maxage=30",
    "max-stale",
    "min-fresh=10",
    "only-if-cached",
    "stale-if-error=60",
    "cache-control: ",
    "vary: ",
    "age: ",
    "etag: \"a\"\n",
    "retry-after: ",
    "x-ratelimit-remaining: 0\r\n",
    "link: <",
    ">; rel=\"next\"",
    "connection: ",
    "\"url\":",
    "\"html_url\":",
    "\"_links\":{",
    "\"href\":",
    "\"temp_clone_token\":\"",
    "null",
    "[",
    "]",
    "{",
    "}",
    "query",
    "mutation",
    "subscription",
    "fragment",
    " on ",
    "...",
    "\"\"\"",
    "#",
    "rateLimit{cost}",
    "createIssue",
    "\"query\":\"",
    "\"operationName\":\"",
    "[[accounts]]",
    "[listen]",
    " = ",
    "{ value = \"",
    "{ env = \"",
    "\u{feff}",
    "\u{e9}",
    "\u{7f}",
    "\"repository\":{",
    "\"full_name\":\"",
    "\"login\":\"",
    "\"id\":7",
    "\"number\":5",
    "payload=",
];

/// A target with its seeds.
struct Run {
    name: &'static str,
    target: fn(&[u8]),
    seeds: Vec<Vec<u8>>,
}

impl Run {
    fn new(name: &'static str, target: fn(&[u8])) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let files = fs::read_dir(root.join("tests/fuzz/seeds").join(name));
        let mut files: Vec<_> =
            files.expect("the target has seeds").map(|file| file.unwrap().path()).collect();
        files.sort();
        let seeds: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        assert!(!seeds.is_empty(), "{name} has no seed");
        Self { name, target, seeds }
    }

    /// Runs one input; a finding is shown so that it can become a seed.
    fn case(&self, input: &[u8], number: Option<u64>) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.target)(input))) {
            let seed = number.map_or("a file".to_owned(), |number| format!("case {number}"));
            eprintln!("{} fails by {seed}: b\"{}\"", self.name, input.escape_ascii());
            std::panic::resume_unwind(panic);
        }
    }

    /// The mutated input of this number.
    fn input(&self, number: u64) -> Vec<u8> {
        let mut rng = Rng::for_purpose(number, self.name.len() as u64);
        let mut input = rng.pick(&self.seeds).cloned().unwrap_or_default();
        for _ in 0..rng.between(1, MUTATIONS_MAX) {
            let other = rng.pick(&self.seeds).cloned().unwrap_or_default();
            mutate(&mut input, &other, &mut rng);
        }
        input.truncate(BYTES_MAX);
        input
    }
}

fn mutate(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let place = |rng: &mut Rng, bytes: usize| usize::try_from(rng.below(bytes as u64 + 1)).unwrap();
    let at = place(rng, input.len());
    // Short parts matter more often than long ones.
    let length_max = 1 << rng.below(8);
    let end = (at + place(rng, length_max)).min(input.len());
    match rng.below(8) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            let byte = u8::try_from(rng.below(256)).unwrap();
            input.splice(at..end.min(at + 1), [byte]);
        }
        2 | 3 => {
            let token = rng.pick(TOKENS).copied().unwrap_or_default();
            let end = if rng.percent(70.0) { at } else { end };
            input.splice(at..end, token.bytes());
        }
        4 => drop(input.drain(at..end)),
        5 => {
            let part = input[at..end].to_vec();
            let times = usize::try_from(rng.between(1, 4)).unwrap();
            input.splice(at..at, part.repeat(times));
        }
        6 => {
            let from = place(rng, other.len());
            let to = (from + place(rng, 2 * length_max)).min(other.len());
            input.splice(at..end, other[from..to].iter().copied());
        }
        _ if rng.percent(30.0) => {
            input.truncate(at);
            input.extend_from_slice(&other[place(rng, other.len())..]);
        }
        _ => input.truncate(at),
    }
}

fn fuzz(name: &str) {
    let (name, target) = TARGETS.into_iter().find(|(other, _)| *other == name).expect("a target");
    let run = Run::new(name, target);
    run.seeds.iter().for_each(|seed| run.case(seed, None));
    let seconds = std::env::var("FUZZ_SECONDS").ok().map(|text| text.parse().expect("seconds"));
    let seed = std::env::var("FUZZ_SEED").map_or(1, |text| text.parse().expect("a number"));
    let clock = Clock::system();
    let begun = clock.moment();
    let is_over = |cases: u64| match seconds {
        Some(seconds) => clock.moment().since(begun) >= Duration::from_secs(seconds),
        None => cases == CASES,
    };
    let mut cases = 0;
    while !is_over(cases) {
        let number = seed + cases;
        run.case(&run.input(number), Some(number));
        cases += 1;
    }
    if seconds.is_some() {
        eprintln!("{name}: {cases} cases without a finding");
    }
}

macro_rules! fuzz_tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn every_target_runs() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($name)),*]);
        }
    };
}

fuzz_tests! {
    cache_control chunked_body config graphql http2_frames request_head rewriting upstream_head webhook
}
