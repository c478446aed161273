//! Restarts under load, many times: no connection is refused, no answer is lost, no write is made
//! twice.
//!
//! Clients ask all the time, on new and on open connections, over HTTP/1.1 and HTTP/2. They write
//! with and without a wait for the outcome. A process takes over from the one before, or systemd
//! (which the test plays) starts it on the same sockets after the end of the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};
use weir::clock::machine_instant;

use super::drain::{get, is_whole};
use crate::support::process::{Process, activated, serve_by};
use crate::support::raw::Connection;
use crate::support::{KEY, OTHER_KEY, Setup, World, bounded};

const REPOSITORY: &str = "/repos/acme/widgets";
const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const OTHER_COMMENTS: &str = "/repos/acme/widgets/issues/2/comments";
/// Rounds, unless the environment variable has another number. Each takes about two seconds.
const ROUNDS: usize = 4;
const ROUNDS_VARIABLE: &str = "RESTART_ROUNDS";
/// Another program instead of the gateway, such as a release build.
const PROGRAM_VARIABLE: &str = "RESTART_PROGRAM";
/// Writes that are queued before each restart: those of an hour in 200 rounds, one a second. They
/// are 50 ms apart, so that most are made after it.
const QUEUED: usize = 18;
/// Requests between two restarts.
const USUAL: usize = 300;
/// Rounds without a restart, in which the usual durations are measured. They are spread over the
/// time, because a machine is not always as fast.
const USUAL_ROUNDS: usize = 20;
/// The pause of a client between two requests.
const PACE: Duration = Duration::from_millis(10);
/// The same of clients that write.
const WRITE_PACE: Duration = Duration::from_millis(100);

/// Queued writes of which one is waited for.
const WAITED_FOR: usize = 10;
/// The longest time between two queued writes that are made, on a machine that does much else.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The way in which a process follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Takeover,
    Activation,
}

/// The way in which a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    NewConnection,
    OpenConnection,
    Stream,
    Write,
    QueuedWrite,
}

/// The present part of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// A round without a restart.
    Usual,
    /// The time after a restart and before such a round, which counts nowhere.
    #[default]
    Settling,
    /// The time before a restart.
    Between,
    /// From a signal or a start to the next process.
    Restart,
}

/// The results of all clients.
#[derive(Default)]
struct Tally {
    phase: Mutex<Phase>,
    is_over: AtomicBool,
    requests: watch::Sender<usize>,
    refused: AtomicUsize,
    lost: Mutex<Vec<String>>,
    /// Durations of usual rounds, between restarts, and in restarts.
    durations: Mutex<[Vec<(Kind, Duration)>; 3]>,
    /// The texts of the comments that were made or accepted.
    comments: Mutex<Vec<String>>,
    numbers: AtomicUsize,
}

/// The begin of a request.
struct Began {
    kind: Kind,
    at: Instant,
    phase: Phase,
}

impl Tally {
    fn begin(&self, kind: Kind) -> Began {
        Began { kind, at: machine_instant(), phase: *self.phase.lock().unwrap() }
    }

    /// Notes an answer, of which `fault` says what is wrong.
    fn answered(&self, began: &Began, fault: Option<String>) {
        let took = began.at.elapsed();
        let phases = [began.phase, *self.phase.lock().unwrap()];
        let place = if phases.contains(&Phase::Restart) {
            Some(2)
        } else if phases.contains(&Phase::Settling) {
            None
        } else {
            Some(usize::from(phases != [Phase::Usual; 2]))
        };
        if let Some(place) = place {
            self.durations.lock().unwrap()[place].push((began.kind, took));
        }
        self.requests.send_modify(|requests| *requests += 1);
        self.lost.lock().unwrap().extend(fault);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn next_text(&self, kind: &str) -> String {
        format!("{kind}-{}", self.numbers.fetch_add(1, Ordering::SeqCst))
    }

    async fn connect(&self, address: SocketAddr) -> Option<Connection> {
        let opened = Connection::try_open(address).await;
        if opened.is_err() {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        opened.ok()
    }

    /// The durations at a hundredth from the longest: without restarts, of the rounds with
    /// restarts, and of the restarts alone.
    fn p99(&self, counts: impl Fn(Kind) -> bool) -> [Duration; 3] {
        let of = |durations: &[(Kind, Duration)]| {
            let counted = durations.iter().filter(|(kind, _)| counts(*kind));
            counted.map(|(_, took)| *took).collect::<Vec<_>>()
        };
        let [usual, between, restarts] =
            self.durations.lock().unwrap().each_ref().map(|all| of(all));
        let rounds = [between, restarts.clone()].concat();
        [usual, rounds, restarts].map(|mut durations| {
            durations.sort_unstable();
            durations.get(durations.len() * 99 / 100).copied().unwrap_or_default()
        })
    }
}

/// Ticks with this pause, however late one is.
fn pace(pause: Duration) -> Interval {
    let mut pace = interval(pause);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

fn write(path: &str, key: &str, text: &str, more: &str) -> String {
    let body = json!({ "body": text }).to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {key}\r\n{more}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The fault of an answer that must be whole and have this status.
fn fault_of(answer: &str, status: u16) -> Option<String> {
    (!is_whole(answer, status)).then(|| format!("not {status}: {answer:?}"))
}

/// Reads on one connection as long as it stays open, then on another. `each`: on another at once.
async fn reads(address: SocketAddr, tally: Arc<Tally>, each: bool) {
    let (mut open, mut pace) = (None, pace(PACE));
    while !tally.is_over() {
        let kind = if open.is_some() { Kind::OpenConnection } else { Kind::NewConnection };
        let began = tally.begin(kind);
        let mut client = match open.take() {
            Some(client) => client,
            None => match tally.connect(address).await {
                Some(client) => client,
                None => continue,
            },
        };
        if !client.send_unless_closed(get(REPOSITORY, "round").as_bytes()).await {
            continue;
        }
        let answer = client.read_answer().await;
        tally.answered(&began, fault_of(&answer, 200));
        if !each && !answer.to_ascii_lowercase().contains("\r\nconnection: close") {
            open = Some(client);
        }
        pace.tick().await;
    }
}

/// Writes and waits for the outcome; every other write has a key.
async fn writes(address: SocketAddr, tally: Arc<Tally>) {
    let mut pace = pace(WRITE_PACE);
    while !tally.is_over() {
        let text = tally.next_text("waited");
        let number = tally.numbers.load(Ordering::SeqCst);
        let key = if number.is_multiple_of(2) {
            String::new()
        } else {
            format!("Idempotency-Key: {text}\r\n")
        };
        write_once(address, &tally, &write(COMMENTS, KEY, &text, &key), &text, 201).await;
        pace.tick().await;
    }
}

/// Queues writes. Now and then it waits for the last one: a slow machine gets fewer.
async fn queues(address: SocketAddr, tally: Arc<Tally>) {
    let mut pace = pace(WRITE_PACE);
    while !tally.is_over() {
        for last in (0..WAITED_FOR).rev() {
            let text = tally.next_text("queued");
            let accepted = queue_one(address, &tally, COMMENTS, KEY, &text).await;
            pace.tick().await;
            if last == 0
                && let Some(accepted) = accepted
            {
                ended(address, &tally, &accepted).await;
            }
        }
    }
}

/// Waits until the write that this answer has accepted has ended.
async fn ended(address: SocketAddr, tally: &Tally, accepted: &str) {
    let location = accepted.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("location").then_some(value)
    });
    // The tally knows of an answer without it.
    let Some(path) = location else { return };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nPrefer: wait=10\r\n\r\n"
    );
    let mut pace = pace(WRITE_PACE);
    loop {
        pace.tick().await;
        let Some(mut client) = tally.connect(address).await else { continue };
        if !client.send_unless_closed(request.as_bytes()).await {
            continue;
        }
        // In a hand-over nobody may know it for a while.
        let answer = client.read_answer().await;
        if is_whole(&answer, 200) && !answer.contains("\"finished_at\":null") {
            return;
        }
    }
}

async fn queue_one(
    address: SocketAddr,
    tally: &Tally,
    path: &str,
    key: &str,
    text: &str,
) -> Option<String> {
    let request = write(path, key, text, "Prefer: respond-async\r\n");
    write_once(address, tally, &request, text, 202).await
}

/// Sends a write. Returns its answer, if it was sent.
async fn write_once(
    address: SocketAddr,
    tally: &Tally,
    request: &str,
    text: &str,
    status: u16,
) -> Option<String> {
    let began = tally.begin(if status == 202 { Kind::QueuedWrite } else { Kind::Write });
    let mut client = tally.connect(address).await?;
    if !client.send_unless_closed(request.as_bytes()).await {
        return None;
    }
    tally.comments.lock().unwrap().push(text.to_owned());
    let answer = client.read_answer().await;
    tally.answered(&began, fault_of(&answer, status));
    Some(answer)
}

/// Reads by streams of one HTTP/2 connection until it ends, then of another.
async fn streams(address: SocketAddr, tally: Arc<Tally>) {
    let mut pace = pace(PACE);
    while !tally.is_over() {
        let Ok(stream) = TcpStream::connect(address).await else {
            tally.refused.fetch_add(1, Ordering::SeqCst);
            continue;
        };
        let (mut sender, connection) =
            http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let driving = tokio::spawn(connection);
        while !tally.is_over() && sender.ready().await.is_ok() {
            let request = Request::get(format!("http://weir{REPOSITORY}"))
                .header("authorization", format!("Bearer {KEY}"))
                .body(Full::default())
                .unwrap();
            let began = tally.begin(Kind::Stream);
            let fault = match sender.send_request(request).await {
                // The stream was not begun: the connection had ended (RFC 9113 §6.8).
                Err(error)
                    if error.is_canceled()
                        || format!("{error:?}").contains("GoAway(b\"\", NO_ERROR, Remote)") =>
                {
                    break;
                }
                Err(error) => Some(format!("{error:?}")),
                Ok(answer) => {
                    let status = answer.status().as_u16();
                    let body = answer.into_body().collect().await;
                    (status != 200 || body.is_err()).then(|| format!("{status} {body:?}"))
                }
            };
            tally.answered(&began, fault);
            pace.tick().await;
        }
        driving.abort();
    }
}

/// Starts processes one after the other.
struct Starter {
    way: Way,
    program: PathBuf,
    config: PathBuf,
    socket: TcpListener,
}

impl Starter {
    fn start(&self) -> Process {
        let command = serve_by(&self.program, &self.config);
        match self.way {
            Way::Takeover => Process::start(command),
            Way::Activation => {
                let socket = self.socket.try_clone().unwrap();
                Process::start(activated(&command, vec![("http", socket.into())]))
            }
        }
    }

    /// Lets a process follow another, which then has ended.
    async fn follow(&self, before: Process) -> Process {
        if self.way == Way::Activation {
            before.signal(Signal::TERM);
            assert!(before.ended().await.success());
            let next = self.start();
            next.logged("listening").await;
            return next;
        }
        let next = self.start();
        next.logged("the predecessor has ended").await;
        assert!(before.ended().await.success());
        next
    }
}

/// An emulator without limits, and the text of a config in front of it.
async fn stage(folder: &Path) -> World {
    let world = Setup::new()
        .accounts(2)
        .listen(&format!("takeover = \"{}\"", folder.join("takeover.sock").display()))
        .writes("spacing = \"50ms\"\nnotify_spacing = \"50ms\"")
        .limits(
            "rest_points_per_minute = 1000000\ncontent_per_minute = 1000000\n\
             content_per_hour = 1000000\ncpu_seconds_per_minute = 1000000",
        )
        .start()
        .await;
    world.set_limits(&json!({
        "core.user": 1_000_000, "points.rest": 1_000_000, "content.minute": 1_000_000,
        "content.hour": 1_000_000,
    }));
    world
}

async fn rounds(way: Way) {
    let wanted: Option<usize> =
        std::env::var(ROUNDS_VARIABLE).ok().and_then(|rounds| rounds.parse().ok());
    let folder = tempfile::tempdir().unwrap();
    let world = stage(folder.path()).await;
    let config = folder.path().join("weir.toml");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let text = world
        .text
        .replace("127.0.0.1:0", &address.to_string())
        .replace("[writes]\n", "[writes]\nstore = { path = \"weir.redb\" }\n")
        .replace("[upstream]\n", "[cache]\nsnapshot = \"weir.cache\"\n[upstream]\n");
    std::fs::write(&config, text).unwrap();
    let program = std::env::var_os(PROGRAM_VARIABLE);
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into()).into();
    let socket = match way {
        Way::Activation => socket,
        // The first process binds the address.
        Way::Takeover => {
            drop(socket);
            TcpListener::bind("127.0.0.1:0").unwrap()
        }
    };
    let starter = Starter { way, program, config, socket };
    let mut process = starter.start();
    process.logged("listening").await;
    let tally = Arc::new(Tally::default());
    let mut load = JoinSet::new();
    for each in [true, true, false, false] {
        load.spawn(reads(address, Arc::clone(&tally), each));
    }
    load.spawn(writes(address, Arc::clone(&tally)));
    load.spawn(queues(address, Arc::clone(&tally)));
    load.spawn(streams(address, Arc::clone(&tally)));
    let (restarts, usual) = (wanted.unwrap_or(ROUNDS), wanted.map_or(0, |_| USUAL_ROUNDS));
    for round in 0..restarts {
        for _ in 0..usual * (round + 1) / restarts - usual * round / restarts {
            load_for(Phase::Settling, address, &tally).await;
            load_for(Phase::Usual, address, &tally).await;
        }
        load_for(Phase::Between, address, &tally).await;
        *tally.phase.lock().unwrap() = Phase::Restart;
        process = starter.follow(process).await;
    }
    *tally.phase.lock().unwrap() = Phase::Settling;
    tally.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = bounded(load.join_next()).await {
        ended.unwrap();
    }
    let wrong = wrong_comments(&world, &tally).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    judge(way, wanted, &tally, &wrong);
}

/// Waits for some requests, then queues a burst of writes.
async fn load_for(phase: Phase, address: SocketAddr, tally: &Tally) {
    *tally.phase.lock().unwrap() = phase;
    let mut requests = tally.requests.subscribe();
    let from = *requests.borrow();
    bounded(requests.wait_for(|requests| *requests >= from + USUAL)).await.unwrap();
    for _ in 0..QUEUED {
        let text = tally.next_text("burst");
        queue_one(address, tally, OTHER_COMMENTS, OTHER_KEY, &text).await;
    }
}

/// Prints the figures if a number of rounds was asked for, and checks them.
fn judge(way: Way, wanted: Option<usize>, tally: &Tally, wrong: &[String]) {
    let [usual, round, restart] = tally.p99(|_| true);
    let refused = tally.refused.load(Ordering::SeqCst);
    let lost = tally.lost.lock().unwrap();
    if let Some(rounds) = wanted {
        let all = tally.durations.lock().unwrap().clone();
        let [usually, between, restarting] = all.each_ref().map(Vec::len);
        let writes = tally.comments.lock().unwrap().len();
        eprintln!(
            "{way:?}: {usually} requests without restarts with p99 {usual:?}; {rounds} rounds of {} \
             requests with p99 {round:?}, {restarting} of them in restarts with p99 {restart:?}; \
             {writes} writes; {refused} refused, {} lost, {} writes not made once",
            between + restarting,
            lost.len(),
            wrong.len()
        );
        let kinds: BTreeSet<_> = all.iter().flatten().map(|(kind, _)| *kind).collect();
        for kind in kinds {
            let [usual, round, restart] = tally.p99(|other| other == kind);
            eprintln!("{kind:?}: p99 {usual:?}, {round:?} and {restart:?}");
        }
    }
    assert!(refused == 0 && lost.is_empty() && wrong.is_empty(), "{refused}, {lost:?}, {wrong:?}");
    if wanted.is_some() {
        assert!(round <= 2 * usual, "{round:?} is more than two times {usual:?}");
    }
}

/// Waits for the queued writes, as long as more of them are made. Returns the comments that the
/// emulator has not exactly once.
async fn wrong_comments(world: &World, tally: &Tally) -> Vec<String> {
    let wanted = tally.comments.lock().unwrap().clone();
    let mut pace = pace(WRITE_PACE);
    let (mut most, mut last) = (0, machine_instant());
    loop {
        pace.tick().await;
        let made = made_comments(world);
        let found = wanted.iter().filter(|text| made.contains_key(*text)).count();
        if found > most {
            (most, last) = (found, machine_instant());
        }
        if found == wanted.len() || last.elapsed() > LONGEST_PAUSE {
            let is_once = |text: &&String| made.get(*text) == Some(&1);
            return wanted.iter().filter(|text| !is_once(text)).cloned().collect();
        }
    }
}

/// The texts of the emulator's comments, and how many have each.
fn made_comments(world: &World) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::<String, usize>::new();
    for path in [COMMENTS, OTHER_COMMENTS] {
        for page in 1.. {
            let path = format!("{path}?per_page=100&page={page}");
            let comments = world.ask_emulator(Method::GET, &path, &Value::Null);
            let comments = comments.as_array().cloned().unwrap_or_default();
            if comments.is_empty() {
                break;
            }
            for comment in comments {
                *made.entry(comment["body"].as_str().unwrap_or_default().into()).or_default() += 1;
            }
        }
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_under_load_loses_nothing() {
    rounds(Way::Takeover).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_on_sockets_of_systemd_loses_nothing() {
    rounds(Way::Activation).await;
}
