//! The change from one process to the next without a refused connection: sockets of systemd, and
//! takeover (SPECIFICATION, "Commands").

use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use weir::clock::Clock;

use super::drain::{get, is_whole};
use crate::support::issuer::{Issuer, Signer};
use crate::support::process::{Process, activated, serve};
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World, bounded};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
/// The log line of a process whose predecessor has ended.
const ENDED: &str = "the predecessor has ended";

/// An emulator, and a config for processes in front of it.
struct Stage {
    world: World,
    folder: tempfile::TempDir,
    config: PathBuf,
}

impl Stage {
    async fn new(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let takeover = folder.path().join("takeover.sock");
        let listen = format!("admin = \"127.0.0.1:0\"\ntakeover = \"{}\"", takeover.display());
        let world = setup.listen(&listen).start().await;
        let config = folder.path().join("weir.toml");
        std::fs::write(&config, &world.text).unwrap();
        Self { world, folder, config }
    }

    /// With a file of writes.
    async fn with_writes() -> Self {
        let stage = Self::new(Setup::new().unspaced_writes()).await;
        stage.edit("[writes]\n", "[writes]\nstore = { path = \"weir.redb\" }\n");
        stage
    }

    fn edit(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&self.config, text.replace(from, to)).unwrap();
    }

    fn takeover(&self) -> PathBuf {
        self.folder.path().join("takeover.sock")
    }

    async fn started(&self) -> Process {
        let process = Process::start(serve(&self.config));
        process.logged("admin listening").await;
        process
    }
}

async fn ask(address: SocketAddr, path: &str) -> String {
    ask_by(address, path, KEY).await
}

async fn ask_by(address: SocketAddr, path: &str, key: &str) -> String {
    let mut client = Connection::open(address).await;
    let request = get(path, "handover").replace("Host: weir", "Host: 127.0.0.1");
    client.send(request.replace(KEY, key).as_bytes()).await;
    client.read_answer().await
}

/// Queues a write on a new connection. Returns the path of its status.
async fn queue(address: SocketAddr, title: &str) -> String {
    let mut client = Connection::open(address).await;
    let headers = [("Prefer", "respond-async")];
    client.send_write(&Method::POST, ISSUES, &headers, &json!({ "title": title })).await;
    let answer = client.read_answer().await;
    assert!(is_whole(&answer, 202), "{answer}");
    let head = answer.to_ascii_lowercase();
    head.split("\r\nlocation: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned()
}

/// Queues a write that the upstream holds at a gate. Returns the gate, and the path of its status.
async fn hold_write(stage: &Stage, address: SocketAddr) -> (u64, String) {
    let gate = stage.world.close_gate("POST", ISSUES);
    let on_its_way = queue(address, "on its way").await;
    stage.world.held(gate, 1).await;
    (gate, on_its_way)
}

/// Waits for the end of a queued write, and returns its state.
async fn outcome(address: SocketAddr, location: &str) -> String {
    let request = format!(
        "GET {location} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nPrefer: wait=60\r\n\r\n"
    );
    let mut client = Connection::open(address).await;
    client.send(request.as_bytes()).await;
    let answer = client.read_answer().await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    body["state"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_of_systemd_outlasts_the_process() {
    let stage = Stage::new(Setup::new()).await;
    let [http, admin] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = http.local_addr().unwrap();
    let start = || {
        let sockets = vec![
            ("admin", admin.try_clone().unwrap().into()),
            ("http", http.try_clone().unwrap().into()),
        ];
        Process::start(activated(&serve(&stage.config), sockets))
    };
    let first = start();
    assert_eq!(first.address("listening").await, address);
    assert_eq!(first.address("admin listening").await, admin.local_addr().unwrap());
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
    first.signal(Signal::TERM);
    assert!(first.ended().await.success());
    // Nobody accepts it; the next process does.
    let mut waiting = Connection::open(address).await;
    waiting.send(get(REPOSITORY, "waiting").as_bytes()).await;
    let _second = start();
    assert!(is_whole(&waiting.read_answer().await, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_of_systemd_is_served_while_open_connections_end() {
    let stage = Stage::new(Setup::new()).await;
    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = http.local_addr().unwrap();
    let process = Process::start(activated(&serve(&stage.config), vec![("http", http.into())]));
    process.address("listening").await;
    // It may carry a request that is on its way, and so ends a moment after the signal.
    let mut idle = Connection::open(address).await;
    idle.send(get(REPOSITORY, "idle").as_bytes()).await;
    assert!(is_whole(&idle.read_answer().await, 200));
    process.signal(Signal::TERM);
    // On its way out, the gateway says so.
    while !ask(address, REPOSITORY).await.to_ascii_lowercase().contains("\r\nconnection: close") {}
    assert_eq!(idle.read_to_close().await, "");
    assert!(process.ended().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_of_systemd_without_a_listener_stops_the_start() {
    let stage = Stage::new(Setup::new()).await;
    for name in ["https", "unix", "weir.socket"] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let command = activated(&serve(&stage.config), vec![(name, other.into())]);
        let process = Process::start(command);
        process
            .logged(
                "no listener of the config has the address and the name of this socket of systemd",
            )
            .await;
        assert_eq!(process.ended().await.code(), Some(1));
    }
}

/// It is looked at before the config, which here lets no gateway start.
#[test]
fn a_listen_fds_that_is_no_number_stops_the_start() {
    for count in ["one", "-1", "4000000000"] {
        let mut command = serve(Path::new("/absent.toml"));
        let ended = command.env("LISTEN_FDS", count).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("which is no number of sockets"), "{said}");
        assert_eq!(ended.status.code(), Some(2));
    }
}

/// The next message that is no sign of life.
fn message(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    loop {
        let length = manager.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..length]);
        if text != "WATCHDOG=1" {
            return text.into_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_manager_hears_of_start_reload_and_end() {
    let stage = Stage::new(Setup::new()).await;
    let path = stage.folder.path().join("notify");
    let name = format!("weir-test-{}-{}", std::process::id(), stage.world.address.port());
    let by_path = (path.display().to_string(), UnixAddr::from_pathname(&path).unwrap());
    let by_name = (format!("@{name}"), UnixAddr::from_abstract_name(&name).unwrap());
    for (variable, address) in [by_path, by_name] {
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut command = serve(&stage.config);
        command.env("NOTIFY_SOCKET", variable);
        let process = Process::start(command);
        let ready = format!("READY=1\nMAINPID={}\n", process.pid());
        assert!(message(&manager).starts_with(&ready));
        process.signal(Signal::HUP);
        let reloading = message(&manager);
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert!(message(&manager).starts_with(&ready));
        process.signal(Signal::TERM);
        assert!(message(&manager).starts_with("STOPPING=1\n"));
        assert!(process.ended().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_hears_signs_of_life() {
    let stage = Stage::new(Setup::new()).await;
    let path = stage.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = serve(&stage.config);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "20000");
    let process = Process::start(command);
    message(&manager);
    let mut buffer = [0; 1024];
    for _ in 0..5 {
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"WATCHDOG=1");
    }
    // A stopped process gives none, even to one who waits for ten times as long.
    process.stop();
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut buffer).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    manager.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(manager.recv(&mut buffer).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_takes_over_the_listeners() {
    let stage = Stage::new(Setup::new()).await;
    let mut process = stage.started().await;
    let address = process.address("listening").await;
    let admin = process.address("admin listening").await;
    let mode = stage.takeover().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for _ in 0..3 {
        let gate = stage.world.close_gate("GET", ISSUES);
        let mut slow = Connection::open(address).await;
        slow.send(get(ISSUES, "slow").as_bytes()).await;
        stage.world.held(gate, 1).await;
        let next = stage.started().await;
        assert_eq!(next.address("listening").await, address);
        process.logged("draining").await;
        let ready = ask(admin, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        assert!(is_whole(&ask(address, REPOSITORY).await, 200));
        stage.world.open_gate(gate);
        assert!(is_whole(&slow.read_answer().await, 200));
        assert!(process.ended().await.success());
        next.logged(ENDED).await;
        process = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_about_to_drain_is_taken_over() {
    let stage = Stage::new(Setup::new().listen("drain_delay = \"10m\"")).await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    first.signal(Signal::TERM);
    first.logged("not ready any more; the drain begins later").await;
    let second = stage.started().await;
    assert_eq!(second.address("listening").await, address);
    assert!(first.ended().await.success());
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
}

/// The service manager hears of the new process, which ends like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_sigusr2_starts_a_successor() {
    let stage = Stage::new(Setup::new()).await;
    let path = stage.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = serve(&stage.config);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_PID", "1");
    let process = Process::start(command);
    let address = process.address("listening").await;
    assert!(message(&manager).contains(&format!("MAINPID={}\n", process.pid())));
    process.signal(Signal::USR2);
    let started = process.logged("a successor was started").await["pid"].as_u64().unwrap();
    assert!(message(&manager).contains(&format!("MAINPID={started}\n")));
    // Both write to the same log.
    process.logged(ENDED).await;
    assert!(process.ended().await.success());
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
    let successor = Pid::from_raw(i32::try_from(started).unwrap()).unwrap();
    kill_process(successor, Signal::TERM).unwrap();
    assert!(message(&manager).starts_with("STOPPING=1\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_fails_changes_nothing() {
    let stage = Stage::new(Setup::new()).await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _taken = TcpListener::bind(taken).unwrap();
    stage.edit("http = [\"127.0.0.1:0\"]", &format!("http = [\"127.0.0.1:0\", \"{taken}\"]"));
    let second = Process::start(serve(&stage.config));
    assert_eq!(second.ended().await.code(), Some(1));
    first.logged("a successor did not get ready; this process goes on").await;
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
    stage.edit(&format!(", \"{taken}\""), "");
    let third = stage.started().await;
    assert!(first.ended().await.success());
    assert_eq!(third.address("listening").await, address);
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
}

/// The end of a successor that the first process has noticed, and outlives.
async fn leaves_alone(stage: &Stage, first: &Process) {
    first.logged("a successor did not get ready; this process goes on").await;
    let address = first.address("listening").await;
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
    let write = queue(address, "after a failed takeover").await;
    assert_eq!(outcome(address, &write).await, "done");
    assert!(stage.takeover().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_successor_that_is_not_ready() {
    let stage = Stage::with_writes().await;
    let first = stage.started().await;
    for signal in [Signal::TERM, Signal::INT] {
        let gate = stage.world.close_gate("GET", "/rate_limit");
        let second = Process::start(serve(&stage.config));
        stage.world.held(gate, 1).await;
        second.signal(signal);
        assert!(second.ended().await.success());
        stage.world.open_gate(gate);
        leaves_alone(&stage, &first).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_is_not_ready_does_not_take_over() {
    let stage = Stage::with_writes().await;
    let first = stage.started().await;
    let token = stage.world.tokens[0].token.clone();
    stage.edit(&token, "emu_classic_unknown");
    let second = Process::start(serve(&stage.config));
    assert_eq!(second.ended().await.code(), Some(1));
    let message = "this process does not get ready; the predecessor goes on";
    let reason = second.logged(message).await["error"].to_string();
    assert!(reason.contains("no upstream token can be used"), "{reason}");
    leaves_alone(&stage, &first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_cannot_keep_writes_does_not_take_over() {
    let stage = Stage::with_writes().await;
    let first = stage.started().await;
    stage.edit("path = \"weir.redb\"", "path = \"missing/weir.redb\"");
    let second = Process::start(serve(&stage.config));
    assert_eq!(second.ended().await.code(), Some(1));
    let reason = second.logged("cannot keep writes").await["error"].to_string();
    assert!(reason.contains("missing/weir.redb"), "{reason}");
    leaves_alone(&stage, &first).await;
}

/// The file of writes is out of the way when the first process lets go of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_third_process_takes_over_from_one_without_its_file() {
    let stage = Stage::with_writes().await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    let (gate, on_its_way) = hold_write(&stage, address).await;
    let behind = queue(address, "behind").await;
    let second = stage.started().await;
    let [file, elsewhere] =
        ["weir.redb", "elsewhere.redb"].map(|name| stage.folder.path().join(name));
    std::fs::rename(&file, &elsewhere).unwrap();
    std::fs::create_dir(&file).unwrap();
    stage.world.open_gate(gate);
    second.logged("the queued writes of the predecessor wait").await;
    second.logged(ENDED).await;
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&elsewhere, &file).unwrap();
    let third = stage.started().await;
    assert!(second.ended().await.success());
    third.logged(ENDED).await;
    for write in [&on_its_way, &behind] {
        assert_eq!(outcome(address, write).await, "done");
    }
}

/// Its socket closes with the predecessor, after what was sent to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_a_successor_lacks_is_closed() {
    let stage = Stage::new(Setup::new()).await;
    let [gone, added] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [gone, added] = [gone, added].map(|listener| listener.local_addr().unwrap());
    let with = |other: SocketAddr| format!("http = [\"127.0.0.1:0\", \"{other}\"]");
    stage.edit("http = [\"127.0.0.1:0\"]", &with(gone));
    let first = stage.started().await;
    let address = first.address("listening").await;
    assert!(is_whole(&ask(gone, REPOSITORY).await, 200));
    stage.edit(&with(gone), &with(added));
    let _second = stage.started().await;
    assert!(first.ended().await.success());
    for open in [address, added] {
        assert!(is_whole(&ask(open, REPOSITORY).await, 200));
    }
    assert!(Connection::try_open(gone).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_may_serve_another_listener_of_a_successor() {
    let stage = Stage::new(Setup::new()).await;
    let [one, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, other] = [one, other].map(|listener| listener.local_addr().unwrap());
    let keys = |http, admin| format!("admin = \"{admin}\"\nhttp = [\"{http}\"]");
    stage.edit("http = [\"127.0.0.1:0\"]", "");
    stage.edit("admin = \"127.0.0.1:0\"", &keys(one, other));
    let first = stage.started().await;
    stage.edit(&keys(one, other), &keys(other, one));
    let _second = stage.started().await;
    assert!(first.ended().await.success());
    assert!(is_whole(&ask(other, REPOSITORY).await, 200));
    assert!(is_whole(&ask(one, "/healthz").await, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_successor_is_refused() {
    let stage = Stage::new(Setup::new()).await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    let mut slow = UnixStream::connect(stage.takeover()).unwrap();
    std::io::Write::write_all(&mut slow, b"{\"hello\":{\"version\":2}}\n").unwrap();
    first.logged("a successor asks for the sockets").await;
    let second = Process::start(serve(&stage.config));
    assert_eq!(second.ended().await.code(), Some(1));
    let fault = second.logged("cannot take over").await["error"].to_string();
    assert!(fault.contains("another takeover is not over yet"), "{fault}");
    drop(slow);
    first.logged("a successor did not get ready; this process goes on").await;
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_socket_left_by_a_crash_is_replaced() {
    let stage = Stage::new(Setup::new()).await;
    let first = stage.started().await;
    first.signal(Signal::KILL);
    first.ended().await;
    assert!(stage.takeover().exists());
    let second = stage.started().await;
    let _third = stage.started().await;
    assert!(second.ended().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_predecessor_that_hangs_is_left_alone() {
    let stage = Stage::new(Setup::new()).await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    first.stop();
    let second = Process::start(serve(&stage.config));
    assert_eq!(second.ended().await.code(), Some(1));
    let fault = second.logged("cannot take over").await["error"].to_string();
    assert!(fault.contains("does not answer"), "{fault}");
    first.signal(Signal::CONT);
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
}

/// The successor waits for the upstream when the predecessor dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_predecessor_that_dies_leaves_its_sockets() {
    let stage = Stage::with_writes().await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
    let gate = stage.world.close_gate("GET", "/rate_limit");
    let second = Process::start(serve(&stage.config));
    stage.world.held(gate, 1).await;
    first.signal(Signal::KILL);
    first.ended().await;
    let mut waiting = Connection::open(address).await;
    waiting.send(get(REPOSITORY, "waiting").as_bytes()).await;
    stage.world.open_gate(gate);
    assert!(is_whole(&waiting.read_answer().await, 200));
    second.logged("the predecessor has ended; this process goes on alone").await;
    let write = queue(address, "after a death").await;
    assert_eq!(outcome(address, &write).await, "done");
}

/// The first write is on its way when the successor is ready, the second comes then.
#[tokio::test(flavor = "multi_thread")]
async fn a_successor_gets_the_queued_writes_after_the_last_is_done() {
    let stage = Stage::with_writes().await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    let (gate, on_its_way) = hold_write(&stage, address).await;
    let behind = queue(address, "behind").await;
    let second = stage.started().await;
    first.logged("draining").await;
    let later = tokio::spawn(async move { queue(address, "later").await });
    let lookup = tokio::spawn({
        let on_its_way = on_its_way.clone();
        async move { outcome(address, &on_its_way).await }
    });
    stage.world.open_gate(gate);
    assert_eq!(bounded(lookup).await.unwrap(), "done");
    let later = bounded(later).await.unwrap();
    for write in [&behind, &later] {
        assert_eq!(outcome(address, write).await, "done");
    }
    assert!(first.ended().await.success());
    second.logged(ENDED).await;
    let titles = stage.world.ask_emulator(
        Method::GET,
        &format!("{ISSUES}?state=all&per_page=100"),
        &Value::Null,
    );
    for title in ["on its way", "behind", "later"] {
        let made = titles.as_array().unwrap().iter().filter(|issue| issue["title"] == title);
        assert_eq!(made.count(), 1, "{title}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_without_a_file_says_that_queued_writes_stay() {
    let stage = Stage::with_writes().await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    let (gate, _) = hold_write(&stage, address).await;
    stage.edit("store = { path = \"weir.redb\" }", "store = \"memory\"");
    let second = stage.started().await;
    let message = "queued writes of the predecessor do not go on: writes.store is \"memory\"";
    second.logged(message).await;
    stage.world.open_gate(gate);
    assert!(first.ended().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_answers_and_budgets_go_to_the_successor() {
    let stage = Stage::new(Setup::new()).await;
    stage.edit("[upstream]", "[cache]\nsnapshot = \"weir.cache\"\n[upstream]");
    let first = stage.started().await;
    let address = first.address("listening").await;
    let requests = || {
        let requests = stage.world.upstream_requests();
        requests.iter().filter(|request| request.path.starts_with(REPOSITORY)).count()
    };
    assert!(is_whole(&ask(address, REPOSITORY).await, 200));
    let second = stage.started().await;
    let restored =
        second.logged("the cache was restored; each answer is confirmed before it is served").await;
    assert_eq!((&restored["answers"], &restored["is_last"]), (&json!(1), &json!(true)));
    assert!(first.ended().await.success());
    second.logged(ENDED).await;
    let before = requests();
    let answer = ask(address, REPOSITORY).await;
    assert!(is_whole(&answer, 200), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("fwd-status=304"), "{answer}");
    assert_eq!(requests(), before + 1);
    assert!(!stage.folder.path().join("takeover.sock.snapshot").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_issuers_go_to_the_successor() {
    let signer = Signer::new("one");
    let issuer = Issuer::start(&[&signer]).await;
    let oidc = "oidc = { issuer = \"actions\", claims = { repository = \"acme/tools\" } }";
    let client = format!("[[clients]]\nname = \"tools\"\n{oidc}\nallow = [\"GET /repos/**\"]\n");
    let stage = Stage::new(Setup::new().config(&(issuer.section() + &client))).await;
    let first = stage.started().await;
    let address = first.address("listening").await;
    let token = signer.token(&issuer.claims(Clock::system().now().as_secs()));
    assert!(is_whole(&ask_by(address, REPOSITORY, &token).await, 200));
    issuer.set_down(true);
    let mut before = first;
    // The third has them from one that never fetched any.
    for _ in 0..2 {
        let next = stage.started().await;
        assert!(before.ended().await.success());
        next.logged(ENDED).await;
        next.logged("the keys of an issuer of tokens cannot be fetched; the old ones stay in force for a day").await;
        let answer = ask_by(address, REPOSITORY, &token).await;
        assert!(is_whole(&answer, 200), "{answer}");
        before = next;
    }
}
