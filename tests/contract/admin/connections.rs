//! Connections of the admin listener: their number, their end, and a process without descriptors
//! (SPECIFICATION, "Admin listener").

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use weir::admin::Admin;

use super::operator::ADMIN;
use crate::support::raw::Connection;
use crate::support::{Setup, config, eventually};

/// Far more than a probe waits for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most descriptors of the process: enough to start, few to use up.
const DESCRIPTORS: usize = 96;
/// Silent clients: fewer than half of the descriptors, which the gateway takes for them at most.
const CLIENTS: usize = 40;

/// A gateway of its own process, with few descriptors.
struct Process {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    /// The first client. Its descriptor is not to become free while others are counted.
    first: Option<Connection>,
    _folder: tempfile::TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Ports that were free a moment ago, bound together so that they differ.
        let free = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
        let [address, admin] = free.map(|listener| listener.local_addr().unwrap());
        let keys = format!("admin = \"{admin}\"\nheader_timeout = \"1h\"\nidle_timeout = \"1h\"");
        let text = config::listen(&address.to_string(), &keys)
            + &config::upstream("http://127.0.0.1:9", "")
            // Without a token, nobody looks at it, which would need descriptors for a moment.
            + &config::account("nobody", "anonymous", "")
            + &config::client("ci", crate::support::KEY, "");
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, text).unwrap();
        let child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {DESCRIPTORS} && exec \"$@\""), "sh"])
            .args([env!("CARGO_BIN_EXE_weir"), "serve", "--threads", "2", "--config"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Self { child, address, admin, first: None, _folder: folder };
        let mut first = loop {
            if let Ok(first) = Connection::try_open(address).await {
                break first;
            }
            assert!(process.child.try_wait().unwrap().is_none(), "the gateway does not start");
            tokio::task::yield_now().await;
        };
        // A client is answered when all listeners are open, and none needs a descriptor any more.
        assert_eq!(ask(&mut first).await, "HTTP/1.1 401 Unauthorized");
        process.first = Some(first);
        process
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    /// Opens connections of silent clients, and leaves the process no further descriptor.
    async fn use_up_descriptors(&self) -> Vec<TcpStream> {
        let mut clients = self.silent_clients(CLIENTS).await;
        // One with a high number is inherited.
        let is_own = |number: &u64| *number < DESCRIPTORS as u64;
        let own = || self.descriptors().into_iter().filter(is_own).collect::<BTreeSet<_>>();
        let end = own().last().unwrap() + 1;
        let process = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let limit = Rlimit { current: Some(end), maximum: Some(end) };
        prlimit(process, Resource::Nofile, limit).unwrap();
        // Numbers below the limit that were free.
        while own().len() < usize::try_from(end).unwrap() {
            let before = own().len();
            clients.push(TcpStream::connect(self.address).await.unwrap());
            eventually(|| own().len() > before).await;
        }
        clients
    }

    /// Opens connections that send nothing, until the gateway has accepted so many.
    async fn silent_clients(&self, count: usize) -> Vec<TcpStream> {
        let before = self.descriptors().len();
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(TcpStream::connect(self.address).await.unwrap());
        }
        eventually(|| self.descriptors().len() >= before + count.min(CLIENTS)).await;
        clients
    }

    /// The numbers of the open descriptors.
    fn descriptors(&self) -> BTreeSet<u64> {
        let open = std::fs::read_dir(self.proc("fd")).unwrap();
        open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }

    /// The beginning of the answer to a new client.
    async fn ask(&self) -> String {
        ask(&mut Connection::open(self.address).await).await
    }

    /// CPU time since the start, in clock ticks of 10 ms.
    fn cpu_ticks(&self) -> u64 {
        let line = std::fs::read_to_string(self.proc("stat")).unwrap();
        // proc(5): fields 14 and 15 of the line, counted behind the name in parentheses.
        let fields: Vec<&str> = line.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

/// Sends a request without a key, and returns the beginning of its answer.
async fn ask(client: &mut Connection) -> String {
    client.send(b"GET /user HTTP/1.1\r\nHost: weir\r\n\r\n").await;
    let head = timeout(PATIENCE, client.read_head()).await.expect("the client is served");
    head.lines().next().unwrap_or_default().to_owned()
}

async fn health(admin: SocketAddr) -> String {
    let mut connection = Connection::open(admin).await;
    connection.send(b"GET /healthz HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").await;
    timeout(PATIENCE, connection.read_to_close()).await.expect("health is answered")
}

/// Waits until the gateway closes the connection.
async fn closed(stream: &mut TcpStream) {
    // A reset counts as a close.
    let read = timeout(PATIENCE, stream.read(&mut [0])).await.expect("the gateway closes it");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

fn is_open(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn health_is_answered_without_free_descriptors() {
    let process = Process::start().await;
    let _clients = process.use_up_descriptors().await;
    // More probes than the reserve has descriptors: each gives its own back.
    for _ in 0..30 {
        let answer = health(process.admin).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    }
}

#[tokio::test]
async fn silent_clients_make_room_where_no_descriptor_is_free() {
    let process = Process::start().await;
    let _clients = process.use_up_descriptors().await;
    for _ in 0..3 {
        assert_eq!(process.ask().await, "HTTP/1.1 401 Unauthorized");
    }
}

#[tokio::test]
async fn clients_leave_a_reserve_of_descriptors() {
    let process = Process::start().await;
    let _clients = process.silent_clients(2 * DESCRIPTORS).await;
    // This one waits behind all others.
    assert_eq!(process.ask().await, "HTTP/1.1 401 Unauthorized");
    let open = process.descriptors().len();
    assert!(open < DESCRIPTORS - 10, "{open} of {DESCRIPTORS} descriptors are in use");
}

#[tokio::test]
async fn silent_connections_without_free_descriptors_cost_no_cpu() {
    let process = Process::start().await;
    let _clients = process.use_up_descriptors().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(process.admin).await.unwrap());
    }
    let before = process.cpu_ticks();
    // They get seconds each, a few at a time; the probe comes after all of them.
    let answer = health(process.admin).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A descriptor that was free for a moment makes a connection ordinary, with a longer life.
    let closing: FuturesUnordered<_> = silent.iter_mut().map(closed).collect();
    closing.take(16).collect::<()>().await;
    let ticks = process.cpu_ticks() - before;
    assert!(ticks < 100, "{ticks} ticks of CPU for nothing");
}

#[tokio::test(start_paused = true)]
async fn a_silent_admin_connection_ends() {
    let current = Setup::new().listen(ADMIN).gateway_alone();
    let admin = Admin::open(&current).unwrap().address().unwrap();
    let mut stream = TcpStream::connect(admin).await.unwrap();
    let read = timeout(Duration::from_secs(600), stream.read(&mut [0])).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
}

#[tokio::test]
async fn an_unfinished_head_at_the_admin_listener_is_refused() {
    let current = Setup::new().listen(ADMIN).gateway_alone();
    let admin = Admin::open(&current).unwrap().address().unwrap();
    let mut connection = Connection::open(admin).await;
    let head = format!("GET /healthz HTTP/1.1\r\nHost: weir\r\nX: {}", "x".repeat(40_000));
    connection.send(head.as_bytes()).await;
    let answer = timeout(PATIENCE, connection.read_to_close()).await.expect("it is refused");
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn silent_admin_connections_do_not_keep_out_a_probe() {
    let current = Setup::new().listen(ADMIN).gateway_alone();
    let admin = Admin::open(&current).unwrap().address().unwrap();
    let mut silent = Vec::new();
    for _ in 0..65 {
        silent.push(TcpStream::connect(admin).await.unwrap());
    }
    assert!(health(admin).await.starts_with("HTTP/1.1 200"));
    closed(&mut silent[64]).await;
    assert!(silent[..64].iter().all(is_open), "the first 64 have more time");
}
