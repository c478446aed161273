//! Concurrency of a thousand clients at the upstream (benches/README.md): real sockets, real time,
//! and the emulator's own record.
//!
//! Run it with `cargo bench --bench concurrency`; an argument is the upstream's latency in
//! milliseconds. It fails when one request too many was in flight or one was denied. The average in
//! flight depends on the load of the machine, and is a figure only.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use weir::api::Dialect;
use weir::clock::Clock;
use weir::config;
use weir::emulator::{Emulator, Entry, Handle, Options, Server};
use weir::gateway::Current;
use weir::gateway::Listening;
use weir::telemetry::Metrics;

/// The allocator of `weir`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEY: &str = "weir_key_of_all_the_clients_of_this_measurement";
const TOKEN: &str = "emu_classic_ada_all_scopes";
/// Each has a connection of its own.
const CLIENTS: u64 = 1_000;
/// The upstream's limit (SPECIFICATION, "Secondary rate limits").
const CONCURRENCY_MAX: u32 = 100;
/// Default latency of the upstream: slow, so that a slot is free for little of the time.
const LATENCY: Duration = Duration::from_secs(1);
/// Length of the measurement. With a thousand clients and a second's latency each request waits for
/// 10 s of its 30.
const LENGTH: Duration = Duration::from_secs(20);
/// Time before the measurement, for connections and first answers.
const WARM_UP: Duration = Duration::from_secs(3);
/// Endpoints in turn, because each permits 900 requests a minute.
const LISTS: [&str; 5] = ["issues", "labels", "commits", "pulls", "milestones"];

/// The emulator with its latency and the gateway in front of it, both on loopback.
struct Stage {
    emulator: Handle,
    listening: Listening,
    clock: Clock,
    latency: Duration,
}

impl Stage {
    async fn build(latency: Duration) -> Result<Self, String> {
        let clock = Clock::system();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|fault| fault.to_string())?;
        let upstream = listener.local_addr().map_err(|fault| fault.to_string())?;
        let options = Options {
            dialect: Dialect::Github,
            base_url: format!("http://{upstream}"),
            ..Options::default()
        };
        let emulator =
            Server::start(listener, Emulator::new(options, clock.now()), clock.clone(), latency);
        let text = config_text(upstream);
        let config = config::parse(&text, "bench", &|_| None, Path::new("."))
            .map_err(|faults| faults.to_string())?;
        let current = Current::new(Arc::new(config), clock.clone(), Arc::new(Metrics::new()));
        let listening = Listening::open(&current).map_err(|fault| fault.to_string())?;
        Ok(Self { emulator, listening, clock, latency })
    }

    fn seen(&self) -> Vec<Entry> {
        self.emulator.with_emulator(|emulator| emulator.transcript(0))
    }

    /// Returns the average of requests in flight from the end of the warm-up until `end`, by the
    /// emulator's record. Each is in flight for at least the latency, so this is a lower bound.
    fn average_in_flight(&self, seen: &[Entry], end: u64) -> f64 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let begin = seen.first().map_or(end, |first| first.at_millis + millis(WARM_UP));
        let stay = |entry: &Entry| {
            (entry.at_millis + millis(self.latency))
                .min(end)
                .saturating_sub(entry.at_millis.max(begin))
        };
        ratio(seen.iter().map(stay).sum(), end.saturating_sub(begin))
    }
}

/// The defaults but for one limit: the gateway takes elapsed time for CPU time, and these answers
/// are slow without being expensive.
fn config_text(upstream: SocketAddr) -> String {
    format!(
        r#"
        [listen]
        http = ["127.0.0.1:0"]
        [upstream]
        url = "http://{upstream}"
        dialect = "github"
        [limits]
        cpu_seconds_per_minute = 1000000
        [[accounts]]
        name = "account"
        kind = "user"
        [[tokens]]
        account = "account"
        kind = "classic"
        secret = {{ value = "{TOKEN}" }}
        [[clients]]
        name = "all"
        key_sha256 = "{}"
        "#,
        config::digest_hex(KEY.as_bytes())
    )
}

/// Runs one client that sends a new request after each answer. Returns its answers by status.
async fn client(
    number: u64,
    address: SocketAddr,
    goes_on: Arc<AtomicBool>,
) -> Result<BTreeMap<StatusCode, u64>, String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|fault| format!("client {number} cannot connect: {fault}"))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|fault| fault.to_string())?;
    // It ends with its client, which sees its errors.
    tokio::spawn(connection);
    let (mut statuses, mut turn) = (BTreeMap::new(), number);
    while goes_on.load(Ordering::Relaxed) {
        turn += CLIENTS;
        let list = usize::try_from(number).unwrap_or(0) % LISTS.len();
        let request =
            Request::get(format!("/repos/acme/widgets/{}?per_page=1&page={turn}", LISTS[list]))
                .header("host", address.to_string())
                .header("authorization", format!("Bearer {KEY}"))
                .body(Empty::<Bytes>::new())
                .map_err(|fault| fault.to_string())?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|fault| format!("client {number} was not answered: {fault}"))?;
        *statuses.entry(answer.status()).or_default() += 1;
        answer.into_body().collect().await.map_err(|fault| fault.to_string())?;
    }
    Ok(statuses)
}

async fn measure(latency: Duration) -> Result<ExitCode, String> {
    let stage = Stage::build(latency).await?;
    let address = stage.listening.addresses[0];
    let goes_on = Arc::new(AtomicBool::new(true));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(client(number, address, Arc::clone(&goes_on))))
        .collect();
    tokio::time::sleep(LENGTH).await;
    let (end, seen) = (stage.clock.now().as_millis(), stage.seen());
    // Waiting requests are still answered.
    goes_on.store(false, Ordering::Relaxed);
    let mut statuses: BTreeMap<StatusCode, u64> = BTreeMap::new();
    for client in clients {
        for (status, count) in client.await.map_err(|fault| fault.to_string())?? {
            *statuses.entry(status).or_default() += count;
        }
    }
    let all = stage.seen();
    // An entry counts the requests before it.
    let most = all.iter().map(|entry| entry.concurrency + 1).max().unwrap_or(0);
    let refused = all.iter().filter(|entry| entry.refused.is_some()).count();
    let average = stage.average_in_flight(&seen, end);
    let answered: Vec<String> =
        statuses.iter().map(|(status, count)| format!("{count} × {}", status.as_u16())).collect();
    println!("latency of the upstream    {} ms", latency.as_millis());
    println!("requests of the clients    {}", answered.join(", "));
    println!(
        "requests at the emulator   {}, {:.0} a second",
        all.len(),
        average / latency.as_secs_f64()
    );
    println!("most in flight at once     {most} of {CONCURRENCY_MAX}");
    println!("in flight on average       {average:.1} at least");
    println!("refused by the upstream    {refused}");
    stage.emulator.shutdown().await;
    Ok(if most > CONCURRENCY_MAX || refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a minute, times a hundred")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn main() -> ExitCode {
    // `cargo bench` adds options of its own.
    let latency = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .map_or(LATENCY, Duration::from_millis);
    let measured = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(measure(latency)),
        Err(fault) => Err(fault.to_string()),
    };
    measured.unwrap_or_else(|problem| {
        eprintln!("concurrency: {problem}");
        ExitCode::FAILURE
    })
}
