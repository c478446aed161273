//! The emulator and the gateway as processes on addresses that the test chooses, so that they can
//! end and come back.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use weir::clock::Clock;

use super::{config, http};

/// The longest wait for something that must come. A loaded machine needs seconds.
const LONGEST_WAIT: Duration = Duration::from_mins(2);
/// The key of the client `ci`.
pub const KEY: &str = "weir_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// A token of the seed world.
pub const TOKEN: &str = "emu_classic_ada_all_scopes";

/// A token that the upstream does not know.
pub const UNKNOWN_TOKEN: &str = "emu_unknown_token";

/// Asks again and again until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    let clock = Clock::system();
    let begun = clock.now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(clock.now().since(begun) < LONGEST_WAIT, "this does not come about: {what}");
        std::thread::yield_now();
    }
}

/// An address that was free a moment ago.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").to_string()
}

/// A process that ends when it is dropped. Its output is in a file.
pub struct Program {
    child: Child,
    output: PathBuf,
    _folder: TempDir,
}

impl Program {
    pub fn start(mut command: Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the output");
        let output = folder.path().join("output");
        let file = File::create(&output).expect("a file for the output");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("the same file")).stderr(file);
        let child = command.spawn().unwrap_or_else(|fault| {
            let program = command.get_program().display();
            panic!("{program} does not start: {fault}; `deploy/setup.sh test` installs it")
        });
        Self { child, output, _folder: folder }
    }

    /// `weir` with these arguments.
    pub fn weir(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).env_remove("WEIR_CONFIG").env_remove("WEIR_LOG");
        Self::start(command)
    }

    /// Everything that it has printed.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.output).expect("the output")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a process that runs");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `weir emulate`.
pub struct Upstream {
    pub address: String,
    process: Option<Program>,
}

impl Upstream {
    pub fn start() -> Self {
        let mut upstream = Self { address: free_address(), process: None };
        upstream.revive();
        upstream
    }

    pub fn end(&mut self) {
        self.process = None;
    }

    /// Starts it again, with a new world.
    pub fn revive(&mut self) {
        let arguments = ["emulate", "--dialect", "github", "--listen", &self.address];
        self.process = Some(Program::weir(&arguments));
        until("an emulator", || http::get(&self.address, "/_emulator/world"));
    }

    /// Arms a fault.
    pub fn fault(&self, fault: &Value) {
        self.control("POST /_emulator/faults", fault);
    }

    fn control(&self, line: &str, body: &Value) {
        let answer = http::send(&self.address, line, body).expect("an emulator");
        assert!((200..300).contains(&answer.status), "{line}: {answer:?}");
    }
}

/// `weir serve`.
pub struct Gateway {
    pub address: String,
    pub admin: String,
    folder: TempDir,
    process: Option<Program>,
}

impl Gateway {
    /// A gateway in front of this upstream, with an account `ada` and a client `ci`. `sections` are
    /// further sections of its config.
    pub fn start(upstream: &str, sections: &str) -> Self {
        Self::start_with(upstream, "", sections)
    }

    /// The same with further keys of `[listen]`.
    pub fn start_with(upstream: &str, listen: &str, sections: &str) -> Self {
        let mut gateway = Self::new();
        gateway.write(&(gateway.text(upstream, listen, TOKEN) + sections));
        gateway.revive();
        gateway
    }

    /// A gateway whose only token the upstream has rejected.
    pub fn unready(upstream: &str) -> Self {
        let mut gateway = Self::new();
        gateway.write(&gateway.text(upstream, "", UNKNOWN_TOKEN));
        gateway.spawn();
        until("a gateway that has looked at its token", || {
            http::get(&gateway.admin, "/readyz").filter(|answer| answer.body.contains("token 0"))
        });
        gateway
    }

    /// A gateway whose admin listener speaks TLS by these further keys of `[listen]`.
    pub fn start_with_tls(upstream: &str, keys: &str) -> Self {
        let mut gateway = Self::new();
        gateway.write(&gateway.text(upstream, keys, TOKEN));
        gateway.spawn();
        until("a gateway that serves", || gateway.get("/user").filter(|status| *status == 200));
        gateway
    }

    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the config");
        Self { address: free_address(), admin: free_address(), folder, process: None }
    }

    /// The text of its config.
    fn text(&self, upstream: &str, listen: &str, token: &str) -> String {
        config::listen(&self.address, &format!("admin = \"{}\"\n{listen}", self.admin))
            + &config::upstream(&format!("http://{upstream}"), config::GITHUB)
            + &config::user("ada", token)
            + &config::client("ci", KEY, "writes = \"ada\"\nmax_wait = \"1s\"")
    }

    /// Its config.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("weir.toml")
    }

    pub fn end(&mut self) {
        self.process = None;
    }

    pub fn revive(&mut self) {
        self.spawn();
        until("a gateway that is ready", || {
            http::get(&self.admin, "/readyz").filter(|answer| answer.status == 200)
        });
    }

    fn spawn(&mut self) {
        let config = self.config();
        self.process = Some(Program::weir(&["serve", "--config", path(&config)]));
    }

    /// Reloads this config.
    pub fn reload(&self, text: &str) {
        self.write(text);
        self.reload_same();
    }

    /// Reloads its config as it is.
    pub fn reload_same(&self) {
        self.process.as_ref().expect("a gateway that runs").signal(Signal::HUP);
    }

    fn write(&self, text: &str) {
        fs::write(self.config(), text).expect("the config is written");
    }

    /// The status of the client's `GET path`.
    pub fn get(&self, path: &str) -> Option<u16> {
        let key = format!("Authorization: Bearer {KEY}\r\n");
        Some(http::exchange(&self.address, &format!("GET {path}"), &key, "")?.status)
    }
}

/// A path as an argument.
pub fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
