//! A redis-server of a test, on a free port of loopback, with its data in a temporary folder. Unit
//! tests have this file too (`src/state/`).

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// See the module. Ends with the value.
pub struct RedisServer {
    process: Child,
    port: u16,
    arguments: Vec<String>,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server with further arguments, and waits until it answers.
    pub fn start(arguments: &[&str]) -> Self {
        // Another process may take the port in between.
        (0..5).find_map(|_| Self::try_start(arguments)).expect("a redis-server that answers")
    }

    fn try_start(arguments: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let port = Self::free_port();
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let process = spawn(port, &folder, &arguments);
        let mut server = Self { process, port, arguments, folder };
        server.is_up().then_some(server)
    }

    /// A port that nobody has at the moment.
    pub fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A field of `INFO`; empty without it.
    pub fn info(&self, field: &str) -> String {
        self.field("INFO everything", field)
    }

    /// The state of the cluster, as this node sees it.
    pub fn cluster_state(&self) -> String {
        self.field("CLUSTER INFO", "cluster_state")
    }

    fn field(&self, command: &str, field: &str) -> String {
        let mut connection = self.connect();
        connection.send(command);
        connection.send("QUIT");
        let mut text = String::new();
        connection.0.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Address for a config.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again on its port with the data on its disk, if any.
    pub fn revive(&mut self) {
        self.process = spawn(self.port, &self.folder, &self.arguments);
        assert!(self.is_up(), "redis-server does not start again");
    }

    /// Cuts so many bytes off the end of its log on disk, as a lost sector does.
    pub fn cut_log(&self, bytes: u64) {
        let log = self.folder.path().join("appendonlydir/appendonly.aof.1.incr.aof");
        let log = OpenOptions::new().write(true).open(log).expect("a server with a log");
        let length = log.metadata().unwrap().len();
        log.set_len(length.checked_sub(bytes).expect("a longer log")).unwrap();
    }

    /// Stops the process without its end.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// The opposite.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Runs a command, such as `FLUSHALL`, and returns the first line of its answer.
    pub fn run(&self, command: &str) -> String {
        self.connect().run(command)
    }

    /// Runs a command, and returns the text that answers it.
    pub fn bulk(&self, command: &str) -> String {
        let mut connection = self.connect();
        let length = connection.run(command);
        assert!(length.starts_with('$'), "{length}");
        connection.line()
    }

    /// Opens a connection for several commands.
    pub fn connect(&self) -> RedisConnection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        RedisConnection(BufReader::new(stream))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    fn is_up(&mut self) -> bool {
        loop {
            if self.answers() {
                return true;
            }
            if self.process.try_wait().unwrap().is_some() {
                return false;
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
}

/// An open connection.
pub struct RedisConnection(BufReader<TcpStream>);

impl RedisConnection {
    /// Sends a command, and does not wait for its answer.
    pub fn send(&mut self, command: &str) {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    /// Runs a command, and returns the first line of its answer.
    pub fn run(&mut self, command: &str) -> String {
        self.send(command);
        self.line()
    }

    /// Reads a line of an answer, or of a message.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

fn spawn(port: u16, folder: &TempDir, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .arg("--dir")
        .arg(folder.path())
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server (deploy/setup.sh test installs it)")
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
