//! `weir demo` with several gateways, which start and end a redis-server of their own.

use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{err, weir};

/// The longest wait for the end of Redis.
const END_MAX: Duration = Duration::from_mins(1);

/// A running demo.
struct Demo {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The addresses of the gateways.
    gateways: Vec<String>,
    redis: String,
    key: String,
    /// Temporary files. A demo that is killed leaves some.
    _folder: TempDir,
}

impl Demo {
    fn start(replicas: usize, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["demo", "--listen", "127.0.0.1:0", "--replicas", &replicas.to_string()])
            .args(arguments)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (gateways, redis, key) = (Vec::new(), String::new(), String::new());
        let mut demo = Self { process, lines, gateways, redis, key, _folder: folder };
        while demo.key.is_empty() {
            let line = demo.lines.next().expect("the demo announces its key").unwrap();
            demo.read(&line);
        }
        demo
    }

    /// Takes an address or the key from a line.
    fn read(&mut self, line: &str) {
        if let Some(key) = line.strip_prefix("your key: ") {
            key.clone_into(&mut self.key);
        } else if let Some((_, rest)) = line.split_once("gateways share redis://") {
            rest.split(',').next().unwrap().clone_into(&mut self.redis);
        } else if line.starts_with("  gateway ") {
            let (_, rest) = line.split_once("http://").unwrap();
            self.gateways.push(rest.split(' ').next().unwrap().to_owned());
        }
    }

    /// The status line of a gateway's answer.
    fn status(&self, gateway: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(gateway).unwrap();
        let key = &self.key;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {gateway}\r\nauthorization: Bearer {key}");
        write!(stream, "{head}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn gateways_of_a_demo_share_the_budgets() {
    let mut demo = Demo::start(3, &["--bots", "8", "--for", "5s"]);
    assert_eq!(demo.gateways.len(), 3);
    for gateway in &demo.gateways {
        assert_eq!(demo.status(gateway, "/repos/acme/widgets"), "HTTP/1.1 200 OK");
    }
    let printed: Vec<_> = demo.lines.by_ref().map(Result::unwrap).collect();
    let text = printed.join("\n");
    assert!(demo.process.wait().unwrap().success(), "{text}");
    assert!(text.contains("refusals by the upstream   0 (must be 0)"), "{text}");
    let served = printed.iter().rfind(|line| line.starts_with("served  ")).expect(&text);
    let served: Vec<u64> = served.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    assert!(served.len() == 4 && served.iter().all(|requests| *requests > 0), "{text}");
    let held = printed.iter().any(|line| line.starts_with("pool-") && line.contains('/'));
    assert!(held, "{text}");
    assert!(TcpStream::connect(&demo.redis).is_err(), "redis-server is left");
}

#[test]
fn a_demo_that_is_ended_leaves_no_redis_server() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let demo = Demo::start(2, &["--bots", "0"]);
        let mut redis = TcpStream::connect(&demo.redis).unwrap();
        redis.set_read_timeout(Some(END_MAX)).unwrap();
        kill_process(Pid::from_child(&demo.process), signal).unwrap();
        // A reset is an end too, unlike the timeout.
        let ended = redis.read_to_end(&mut Vec::new());
        let is_left = ended.is_err_and(|fault| fault.kind() == ErrorKind::WouldBlock);
        assert!(!is_left, "{signal:?}");
    }
}

#[test]
fn a_demo_without_redis_server_names_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let path = [("PATH", folder.path().to_str().unwrap())];
    let output = weir(folder.path(), &["demo", "--replicas", "2"], &path);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("apt-get install redis-server"), "{}", err(&output));
}

#[test]
fn a_demo_has_one_to_ten_gateways() {
    for arguments in [
        &["demo", "--replicas", "0"][..],
        &["demo", "--replicas", "11"],
        &["demo", "--replicas", "2", "--listen", "127.0.0.1:65535"],
    ] {
        let output = weir(Path::new("."), arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
    }
}
