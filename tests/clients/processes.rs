//! The emulator and the gateway as an operator runs them: processes of the built binary, on ports
//! that the system chooses.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::Value;

use super::control::request;

/// The longest wait for a listening process. A loaded machine needs seconds.
const START_WAIT: Duration = Duration::from_mins(1);

/// A process that ends when it is dropped.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts the binary. `output` names the stream that announces the address; the test inherits
    /// the other one.
    fn start(arguments: &[&str], output: Output) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).stdin(Stdio::null());
        match output {
            Output::Stdout => command.stdout(Stdio::piped()),
            Output::Stderr => command.stderr(Stdio::piped()).stdout(Stdio::null()),
        };
        let mut child = command.spawn().expect("the binary starts");
        let stream: Box<dyn Read + Send> = match output {
            Output::Stdout => Box::new(child.stdout.take().expect("a pipe")),
            Output::Stderr => Box::new(child.stderr.take().expect("a pipe")),
        };
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                // Read to the end, even without a receiver: a full pipe would block the process.
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// The first text that `find` recognises in a line of the output.
    fn announced(&self, find: impl Fn(&str) -> Option<String>) -> String {
        let mut printed = String::new();
        loop {
            match self.lines.recv_timeout(START_WAIT) {
                Ok(line) => match find(&line) {
                    Some(found) => return found,
                    None => printed = printed + &line + "\n",
                },
                Err(fault) => panic!("nothing was announced ({fault}), only:\n{printed}"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy)]
enum Output {
    Stdout,
    Stderr,
}

/// A running `weir emulate`.
pub struct Upstream {
    pub address: String,
    _process: Process,
}

impl Upstream {
    /// Starts with the seed world, in the dialect of the client libraries.
    pub fn emulated() -> Self {
        Self::start(&["emulate", "--dialect", "github", "--listen", "127.0.0.1:0"])
    }

    /// Starts with the recorded exchanges below `directory`.
    pub fn replaying(directory: &str) -> Self {
        Self::start(&[
            "emulate",
            "--dialect",
            "github",
            "--listen",
            "127.0.0.1:0",
            "--replay",
            directory,
        ])
    }

    fn start(arguments: &[&str]) -> Self {
        let process = Process::start(arguments, Output::Stdout);
        let address = process.announced(|line| {
            let address = line.split_once("http://")?.1;
            Some(
                address
                    .split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')
                    .next()?
                    .to_owned(),
            )
        });
        Self { address, _process: process }
    }

    /// The response of `/_emulator/{path}`.
    pub fn control(&self, path: &str) -> Value {
        request(&self.address, "GET", &format!("/_emulator/{path}"), None)
    }

    /// Sets limits of the emulator.
    pub fn limit(&self, limits: &Value) {
        request(&self.address, "PUT", "/_emulator/limits", Some(limits));
    }

    /// Every request received, the oldest first.
    pub fn transcript(&self) -> Vec<Value> {
        let transcript = self.control("transcript");
        transcript["requests"]
            .as_array()
            .unwrap_or_else(|| panic!("no transcript: {transcript}"))
            .clone()
    }
}

/// A running `weir serve`.
pub struct Gateway {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub base_url: String,
    process: Process,
    _config: tempfile::NamedTempFile,
}

impl Gateway {
    /// Starts with this config, which has a listener without TLS.
    pub fn serve(config: &str) -> Self {
        Self::announcing(config, "http", "listening")
    }

    /// Starts with this config, which has a listener with TLS.
    pub fn serve_tls(config: &str) -> Self {
        Self::announcing(config, "https", "listening for TLS")
    }

    fn announcing(config: &str, scheme: &str, message: &str) -> Self {
        let mut file = tempfile::NamedTempFile::new().expect("a file for the config");
        file.write_all(config.as_bytes()).expect("the config is written");
        let path = file.path().to_str().expect("a path in UTF-8").to_owned();
        let process = Process::start(&["serve", "--config", &path], Output::Stderr);
        let address = process.announced(|line| listening_address(line, message));
        Self { base_url: format!("{scheme}://{address}"), process, _config: file }
    }

    /// The address of the admin listener, which is announced once, after the others.
    pub fn admin_address(&self) -> String {
        self.process.announced(|line| listening_address(line, "admin listening"))
    }
}

/// A running `weir demo` without bots.
pub struct Demo {
    pub address: String,
    pub key: String,
    _process: Process,
}

impl Demo {
    pub fn start() -> Self {
        let arguments = ["demo", "--listen", "127.0.0.1:0", "--bots", "0"];
        let process = Process::start(&arguments, Output::Stdout);
        let address = process.announced(|line| {
            let address = line.split_once("listening on http://")?.1;
            Some(address.split(',').next()?.to_owned())
        });
        let key = process.announced(|line| Some(line.strip_prefix("your key: ")?.to_owned()));
        Self { address, key, _process: process }
    }
}

/// The address in the log line of a listener.
fn listening_address(line: &str, message: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    (fields.get("message")? == message)
        .then(|| fields.get("address")?.as_str().map(str::to_owned))?
}
