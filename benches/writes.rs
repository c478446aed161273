//! Cost of stored writes (benches/README.md): new ones per second, in the file alone and through
//! the gateway's listener; the start with many of them, and their memory.
//!
//! Run it with `cargo bench --bench writes`; an argument is the directory whose disk is measured,
//! `target` by default.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use weir::api::ResourceName;
use weir::clock::{Clock, Timestamp};
use weir::config;
use weir::gateway::Current;
use weir::gateway::Listening;
use weir::gateway::{New, Recovery, WriteGroup};
use weir::telemetry::Metrics;
use weir::writes::file::FileStore;
use weir::writes::memory::MemoryStore;
use weir::writes::record::{Address, Shape};
use weir::writes::{Change, Progress, Store, Stored, Write, WriteId};

/// The allocator of `weir`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CALLERS: [u64; 3] = [1, 64, 1_000];
/// Time of the measurement for each number of callers.
const MEASURED: Duration = Duration::from_secs(5);
const QUEUED: u64 = 10_000;
const BODY_BYTES: usize = 1024;
const ACCEPTED: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Clients with a connection each, and clients of the config among which they are distributed.
const CONNECTIONS: u64 = 64;
const KEY: &str = "weir_key_of_all_the_clients_of_this_measurement";
/// Makes this program the process that starts.
const RECOVER: &str = "--recover";
/// Makes this program the process that keeps writes in memory.
const HOLD: &str = "--hold";

fn main() {
    let clock = Clock::system();
    let arguments = std::env::args().collect::<Vec<_>>();
    if let [_, order, path] = arguments.as_slice()
        && order == RECOVER
    {
        return recover(Path::new(path), &clock);
    }
    if let [_, order, _] = arguments.as_slice()
        && order == HOLD
    {
        return hold(&clock);
    }
    let directory = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"))
        .map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let directory = tempfile::TempDir::new_in(directory).expect("the directory is there");
    println!("{:>8}  {:>12}  {:>10}  {:>10}", "callers", "new writes/s", "p50", "p99");
    for callers in CALLERS {
        enqueue(&directory.path().join(format!("{callers}.redb")), callers, &clock);
    }
    through_the_gateway(&directory.path().join("gateway.redb"), &clock);
    recovery(directory.path());
}

/// Runs callers that each insert a write when the previous one is stored.
fn enqueue(path: &Path, callers: u64, clock: &Clock) {
    let store = Arc::new(FileStore::open(path, |_, _| Ok(())).expect("a new file"));
    let numbers = Arc::new(AtomicU64::new(0));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
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
    print_rate(callers, took, &mut waits);
}

fn print_rate(callers: u64, took: Duration, waits: &mut [u64]) {
    waits.sort_unstable();
    let rate = Duration::from_secs(1).as_nanos() * waits.len() as u128 / took.as_nanos().max(1);
    let wait = |percent: usize| {
        format!(
            "{:.1?}",
            Duration::from_micros(
                waits.get(waits.len() * percent / 100).copied().unwrap_or_default()
            )
        )
    };
    println!("{callers:>8}  {rate:>12}  {:>10}  {:>10}", wait(50), wait(99));
}

/// Measures the start with a file full of queued writes: after a clean end, and after a SIGKILL.
fn recovery(directory: &Path) {
    let (ended, killed) = (directory.join("ended.redb"), directory.join("killed.redb"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let store = FileStore::open(&ended, |_, _| Ok(())).expect("a new file");
    let mut last = None;
    for number in 0..QUEUED {
        last = Some(store.apply(Change::Insert(number, write(number))));
        // Waits after each thousand: more may not wait at once.
        if number % 1_000 == 999 {
            runtime.block_on(last.take().expect("it was just made")).expect("it is kept");
        }
    }
    drop(last);
    std::fs::copy(&ended, &killed).expect("it can be copied");
    drop(store);
    let size = std::fs::metadata(&killed).map_or(0, |file| file.len());
    println!(
        "\n{QUEUED} queued writes of {BODY_BYTES} bytes, {} MiB of file",
        size / (1024 * 1024)
    );
    // Each in a process of its own: the memory of this one is not comparable.
    let program = std::env::current_exe().expect("this program");
    for (how, path) in [("ended well", &ended), ("killed", &killed)] {
        println!("  {how}:");
        let status = Command::new(&program).arg(RECOVER).arg(path).status();
        assert!(status.is_ok_and(|status| status.success()), "the start failed");
    }
    println!("  in memory:");
    let status = Command::new(&program).arg(HOLD).arg("-").status();
    assert!(status.is_ok_and(|status| status.success()), "they cannot be held");
}

/// A gateway without an upstream, and with an hour between two attempts.
fn config() -> Arc<config::Config> {
    let text = format!(
        "[listen]\nhttp = [\"127.0.0.1:0\"]\n[upstream]\nurl = \"http://127.0.0.1:9\"\n\
         [[accounts]]\nname = \"build-bot\"\nkind = \"user\"\n[[tokens]]\naccount = \"build-bot\"\nkind = \"classic\"\nsecret = {{ value = \"x\" }}\n\
         [[clients]]\nname = \"ci\"\nkey_sha256 = \"{}\"\nwrites = \"build-bot\"\n\
         [writes]\nspacing = \"1h\"\nnotify_spacing = \"1h\"\nqueue_max = 1000000\n",
        config::digest_hex(KEY.as_bytes())
    );
    Arc::new(config::parse(&text, "bench", &|_| None, Path::new(".")).expect("it is a config"))
}

/// Sends requests with `Prefer: respond-async` on real sockets, each after the 202 of the one
/// before.
fn through_the_gateway(path: &Path, clock: &Clock) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (took, mut waits) = runtime.block_on(async {
        let store = Arc::new(FileStore::open(path, |_, _| Ok(())).expect("a new file"));
        let current = Current::with_writes(
            config(),
            clock.clone(),
            Arc::new(Metrics::new()),
            store,
            Recovery::default(),
        );
        let listening = Listening::open(&current).expect("it listens");
        let begun = clock.now();
        let numbers = Arc::new(AtomicU64::new(0));
        let client = || {
            let (address, numbers, clock) =
                (listening.addresses[0], Arc::clone(&numbers), clock.clone());
            tokio::spawn(async move {
                let stream = TcpStream::connect(address).await.expect("it listens");
                let (mut sender, connection) =
                    http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
                tokio::spawn(connection);
                let mut waits = Vec::new();
                while clock.now().since(begun) < MEASURED {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let request =
                        Request::post(format!("/repos/acme/widgets/issues/{number}/comments"))
                            .header("host", "weir")
                            .header("authorization", format!("Bearer {KEY}"))
                            .header("prefer", "respond-async")
                            .body(Full::new(Bytes::from_static(&[b'x'; BODY_BYTES])))
                            .expect("a request");
                    let before = weir::clock::machine_micros();
                    let answer = sender.send_request(request).await.expect("an answer");
                    assert_eq!(answer.status(), 202);
                    answer.into_body().collect().await.expect("its body");
                    waits.push(weir::clock::machine_micros() - before);
                }
                waits
            })
        };
        let clients = (0..CONNECTIONS).map(|_| client()).collect::<Vec<_>>();
        let mut waits = Vec::new();
        for client in clients {
            waits.extend(client.await.expect("it does not panic"));
        }
        (clock.now().since(begun), waits)
    });
    println!("through the gateway, durable before each 202:");
    print_rate(CONNECTIONS, took, &mut waits);
}

/// Measures a start of the queue, and its memory.
fn recover(path: &Path, clock: &Clock) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let (config, metrics) = (config(), Arc::new(Metrics::new()));
    drop(Current::new(Arc::clone(&config), clock.clone(), Arc::clone(&metrics)));
    let before = resident();
    let begun = clock.now();
    let mut recovery = Recovery::default();
    let store = FileStore::open(path, |number, stored| {
        recovery.take(number, &stored).map_err(|fault| fault.to_string())
    });
    let store = store.expect("it is whole");
    let opened = clock.now().since(begun);
    let current = Current::with_writes(config, clock.clone(), metrics, Arc::new(store), recovery);
    let took = clock.now().since(begun);
    assert_eq!(current.gateway().writes.queue().unfinished() as u64, QUEUED);
    print_memory(
        &format!("checked and read after {opened:?}, queued again after {took:?}"),
        before,
    );
}

/// Measures as many writes in a gateway without a file.
fn hold(clock: &Clock) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let current = Current::with_writes(
            config(),
            clock.clone(),
            Arc::new(Metrics::new()),
            Arc::new(MemoryStore::default()),
            Recovery::default(),
        );
        let gateway = current.gateway();
        let before = resident();
        for number in 0..QUEUED {
            let group = WriteGroup { client: 0, content: true, resource: ResourceName::core() };
            let lane = format!("/repos/acme/widgets/issues/{number}");
            let new = New {
                write: comment(number),
                group,
                may_go: true,
                lane,
                deadline: Timestamp::FAR_FUTURE,
                memory: None,
                waiter: None,
            };
            gateway
                .writes
                .queue()
                .accept(gateway.writes.turns(), new)
                .await
                .expect("there is room");
        }
        print_memory("queued", before);
    });
}

fn print_memory(what: &str, before: u64) {
    let grown = resident().saturating_sub(before);
    println!(
        "    {what}; {} MiB more resident: {} bytes a write",
        grown / (1024 * 1024),
        grown / QUEUED
    );
}

/// A typical write: a comment with a key.
fn write(number: u64) -> Stored {
    Stored {
        request: comment(number).encode(),
        progress: Progress::queued(ACCEPTED, Timestamp::FAR_FUTURE).encode(),
    }
}

fn comment(number: u64) -> Write {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("user-agent", HeaderValue::from_static("a-bot/1.0"));
    Write {
        id: WriteId { number, salt: number },
        client: "ci".into(),
        account: "build-bot".into(),
        method: Method::POST,
        address: Address::Rest,
        shape: Shape::Plain,
        path: format!("/repos/acme/widgets/issues/{number}/comments"),
        query: None,
        headers,
        body: vec![b'x'; BODY_BYTES].into(),
        accepted: ACCEPTED,
        key: None,
    }
}

/// Resident memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
        * 1024
}
