//! The built program as a process of its own: its log, its signals, its end.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::watch;

use super::bounded;

/// A gateway process, which is killed when its test ends before it.
pub struct Process {
    child: Arc<Mutex<Child>>,
    pid: Pid,
    log: Arc<Mutex<Vec<Value>>>,
    /// The number of lines in the log; closed with it.
    lines: watch::Receiver<usize>,
}

/// `weir serve` with this config.
pub fn serve(config: &Path) -> Command {
    serve_by(env!("CARGO_BIN_EXE_weir"), config)
}

/// The same by another program.
pub fn serve_by(program: impl AsRef<OsStr>, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(config).env_remove("WEIR_LOG").stdout(Stdio::null());
    command
}

/// `command` with sockets as systemd passes them: from descriptor 3 on, with these names.
pub fn activated(command: &Command, sockets: Vec<(&str, OwnedFd)>) -> Command {
    let names: Vec<_> = sockets.iter().map(|(name, _)| *name).collect();
    let variables =
        format!("LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={}", names.len(), names.join(":"));
    // The system closes all other descriptors of the test in a new program.
    let moved = ["3<&0", "4<&1"].iter().take(names.len()).copied().collect::<Vec<_>>().join(" ");
    let mut shell = Command::new("/bin/sh");
    let script = format!("exec {moved} </dev/null >/dev/null; {variables} exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
    shell.env_remove("WEIR_LOG").stdout(Stdio::null());
    for (index, (_, socket)) in sockets.into_iter().enumerate() {
        match index {
            0 => shell.stdin(Stdio::from(socket)),
            1 => shell.stdout(Stdio::from(socket)),
            _ => panic!("at most two sockets can be passed"),
        };
    }
    shell
}

impl Process {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let output = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (count, lines) = watch::channel(0);
        let into = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                into.lock().unwrap().push(line);
                count.send_modify(|count| *count += 1);
            }
        });
        Self { child: Arc::new(Mutex::new(child)), pid, log, lines }
    }

    pub fn pid(&self) -> u32 {
        u32::try_from(self.pid.as_raw_nonzero().get()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Stops it, and waits until none of its threads runs any more.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            // After the name, which may have anything in it; a thread that has ended has no file.
            stat.is_ok_and(|stat| {
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
            })
        };
        let tasks = format!("/proc/{}/task", self.pid.as_raw_nonzero());
        while !std::fs::read_dir(&tasks).unwrap().all(is_stopped) {
            std::thread::yield_now();
        }
    }

    /// The log so far.
    pub fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line with this message, and returns it. Fails if the process ends before.
    pub async fn logged(&self, message: &str) -> Value {
        let mut lines = self.lines.clone();
        let found = async {
            loop {
                lines.borrow_and_update();
                let is_it = |line: &&Value| line["message"] == message;
                if let Some(line) = self.log.lock().unwrap().iter().find(is_it) {
                    return line.clone();
                }
                let changed = lines.changed().await;
                assert!(changed.is_ok(), "{message:?} is not in {:#?}", self.log());
            }
        };
        bounded(found).await
    }

    /// The address in a line with this message.
    pub async fn address(&self, message: &str) -> SocketAddr {
        self.logged(message).await["address"].as_str().unwrap().parse().unwrap()
    }

    /// Waits for the end of the process.
    pub async fn ended(&self) -> ExitStatus {
        let child = Arc::clone(&self.child);
        let ended = tokio::task::spawn_blocking(move || child.lock().unwrap().wait());
        bounded(ended).await.unwrap().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended cannot be killed.
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}
