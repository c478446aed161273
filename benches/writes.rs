//! What it costs to keep writes in a file (benches/README.md): new ones per second, the start with many of them, and the memory they take.
//!
//! Run it with `cargo bench --bench writes`; an argument is the directory whose disk is measured, `target` without one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use weir::clock::{Clock, Timestamp};
use weir::writes::file::FileStore;
use weir::writes::record::Address;
use weir::writes::{Change, Progress, State, Store, Stored, Write, WriteId};

/// The one that `weir` ships with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CALLERS: [u64; 3] = [1, 64, 1_000];
/// How long each number of callers is measured.
const MEASURED: Duration = Duration::from_secs(5);
const QUEUED: u64 = 10_000;
const BODY_BYTES: usize = 1024;
/// Tells this program to be the one that starts.
const RECOVER: &str = "--recover";

fn main() {
    let clock = Clock::system();
    let arguments = std::env::args().collect::<Vec<_>>();
    if let [_, order, path] = arguments.as_slice()
        && order == RECOVER
    {
        return recover(Path::new(path), &clock);
    }
    let directory =
        std::env::args().skip(1).find(|argument| !argument.starts_with("--")).map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let directory = tempfile::TempDir::new_in(directory).expect("the directory is there");
    println!("{:>8}  {:>12}  {:>10}  {:>10}", "callers", "new writes/s", "p50", "p99");
    for callers in CALLERS {
        enqueue(&directory.path().join(format!("{callers}.redb")), callers, &clock);
    }
    recovery(directory.path());
}

/// Callers that each bring a write as soon as the one before is kept.
fn enqueue(path: &Path, callers: u64, clock: &Clock) {
    let store = Arc::new(FileStore::open(path, |_, _| Ok(())).expect("a new file"));
    let numbers = Arc::new(AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (took, mut waits) = runtime.block_on(async {
        let begun = clock.now();
        let caller = || {
            let (store, numbers, clock) = (Arc::clone(&store), Arc::clone(&numbers), clock.clone());
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while clock.now().since(begun) < MEASURED {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let before = weir::clock::machine_micros();
                    store.apply(Change::Insert(number, write(number))).await.expect("it is kept");
                    waits.push(weir::clock::machine_micros() - before);
                }
                waits
            })
        };
        let callers = (0..callers).map(|_| caller()).collect::<Vec<_>>();
        let mut waits = Vec::new();
        for caller in callers {
            waits.extend(caller.await.expect("it does not panic"));
        }
        (clock.now().since(begun), waits)
    });
    waits.sort_unstable();
    let rate = Duration::from_secs(1).as_nanos() * waits.len() as u128 / took.as_nanos().max(1);
    let wait =
        |percent: usize| format!("{:.1?}", Duration::from_micros(waits.get(waits.len() * percent / 100).copied().unwrap_or_default()));
    println!("{callers:>8}  {rate:>12}  {:>10}  {:>10}", wait(50), wait(99));
}

/// The start with a file full of queued writes: after a clean end, and after a SIGKILL.
fn recovery(directory: &Path) {
    let (ended, killed) = (directory.join("ended.redb"), directory.join("killed.redb"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let store = FileStore::open(&ended, |_, _| Ok(())).expect("a new file");
    let mut last = None;
    for number in 0..QUEUED {
        last = Some(store.apply(Change::Insert(number, write(number))));
        // A second commit for each thousand: more may not wait.
        if number % 1_000 == 999 {
            runtime.block_on(last.take().expect("it was just made")).expect("it is kept");
        }
    }
    drop(last);
    std::fs::copy(&ended, &killed).expect("it can be copied");
    drop(store);
    let size = std::fs::metadata(&killed).map_or(0, |file| file.len());
    println!("\n{QUEUED} queued writes of {BODY_BYTES} bytes, {} MiB of file", size / (1024 * 1024));
    // In a process of its own each: what this one has in memory already says nothing.
    let program = std::env::current_exe().expect("this program");
    for (how, path) in [("ended well", &ended), ("killed", &killed)] {
        println!("  {how}:");
        let status = Command::new(&program).arg(RECOVER).arg(path).status();
        assert!(status.is_ok_and(|status| status.success()), "the start failed");
    }
}

/// A start, and what it takes.
fn recover(path: &Path, clock: &Clock) {
    let before = resident();
    let begun = clock.now();
    let mut kept = Vec::new();
    let store = FileStore::open(path, |_, stored| {
        // As the queue does: the bodies stay in the file until it is their turn.
        let mut write = Write::decode(&stored.request).map_err(|problem| problem.to_string())?;
        write.body = Bytes::new();
        kept.push((write, Progress::decode(&stored.progress).map_err(|problem| problem.to_string())?));
        Ok(())
    });
    let took = clock.now().since(begun);
    let store = store.expect("it is whole");
    assert!(kept.len() as u64 == QUEUED && kept.iter().all(|(_, progress)| progress.state == State::Queued));
    let grown = resident().saturating_sub(before);
    println!("    open after {took:?}, {} MiB more resident: {} bytes a write", grown / (1024 * 1024), grown / QUEUED);
    drop(store);
}

/// A usual one: a comment with a key.
fn write(number: u64) -> Stored {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("user-agent", HeaderValue::from_static("a-bot/1.0"));
    let accepted = Timestamp::from_secs(1_800_000_000);
    let write = Write {
        id: WriteId { number, salt: number },
        client: "ci".into(),
        account: "build-bot".into(),
        method: Method::POST,
        address: Address::Rest,
        path: format!("/repos/acme/widgets/issues/{number}/comments"),
        query: None,
        headers,
        body: vec![b'x'; BODY_BYTES].into(),
        accepted,
        deadline: Timestamp::FAR_FUTURE,
        key: None,
        attended: false,
    };
    Stored { request: write.encode(), progress: Progress::queued(accepted).encode() }
}

/// What of this process is in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
}
