//! A redis-server of a test, on a free port of loopback, with its data in a temporary folder.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::config::{Redis, fixture};

/// See the module. Ends with the value.
pub(crate) struct TestServer {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl TestServer {
    /// Starts a server with further arguments, and waits until it answers.
    pub fn start(arguments: &[&str]) -> Self {
        // Another process may take the port in between.
        (0..5).find_map(|_| Self::try_start(arguments)).expect("a redis-server that answers")
    }

    fn try_start(arguments: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(folder.path())
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server (deploy/setup.sh test installs it)");
        let mut server = Self { process, port, _folder: folder };
        loop {
            if server.answers() {
                return Some(server);
            }
            if server.process.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::yield_now();
        }
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut answer = [0; 5];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && (&answer == b"+PONG" || &answer == b"-NOAU")
    }

    /// The settings of a replica with this server.
    pub fn settings(&self, prefix: &str) -> Redis {
        let redis = format!(
            "[upstream]\nurl = \"http://127.0.0.1:1\"\n[state]\nredis = {{ url = \"redis://127.0.0.1:{}\", op_timeout = \"5s\", prefix = \"{prefix}\" }}",
            self.port
        );
        fixture::parsed(&fixture::text(&redis)).state.redis.unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
