//! The redis-server of several gateways: a child process on a free port of loopback, without
//! persistence, with its log in a temporary folder.

use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const PROGRAM: &str = "redis-server";
/// The error without [`PROGRAM`]. The packages are those of deploy/setup.sh.
const MISSING: &str = "--replicas needs redis-server, which is not in PATH. To install it:

    sudo apt-get install redis-server    (Debian, Ubuntu)
    sudo dnf install redis               (Fedora)
    brew install redis                   (macOS)";
/// Starts the program of its arguments. The end of standard input, which is the end of the demo
/// even by SIGKILL, kills the program.
const SCRIPT: &str = r#"exec 3<&0; (read -r end <&3; kill -9 $$) & exec "$0" "$@""#;
/// Longest start. It usually takes milliseconds.
const START_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts to reach a server that starts.
const PAUSE: Duration = Duration::from_millis(20);
/// Ports that are tried. Another process may take a free one before the server does.
const ATTEMPTS: u32 = 5;

/// A running server. Ends with the value.
pub struct RedisServer {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server, and waits until it answers.
    pub async fn start() -> Result<Self, String> {
        let program = program().ok_or(MISSING)?;
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let spawned = Self::spawn(&program).await;
            let mut server = spawned.map_err(|fault| format!("{PROGRAM}: {fault}"))?;
            if server.is_up().await {
                return Ok(server);
            }
            reason = server.last_log_line();
        }
        Err(format!("{} does not start: {reason}", program.display()))
    }

    /// The address, as in a config.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    async fn spawn(program: &Path) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = free.local_addr()?;
        drop(free);
        let process = Command::new("/bin/sh")
            .args(["-c", SCRIPT])
            .arg(program)
            .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder.path())
            .arg("--logfile")
            .arg(log_of(&folder))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal reaches the group of the demo only: the gateways need Redis
            // until the bots have finished.
            .process_group(0)
            .spawn()?;
        Ok(Self { process, address, folder })
    }

    async fn is_up(&mut self) -> bool {
        let up = async {
            loop {
                if self.answers().await.unwrap_or(false) {
                    return true;
                }
                if !matches!(self.process.try_wait(), Ok(None)) {
                    return false;
                }
                sleep(PAUSE).await;
            }
        };
        timeout(START_MAX, up).await.unwrap_or(false)
    }

    async fn answers(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await?;
        Ok(&answer == b"+PONG")
    }

    fn last_log_line(&self) -> String {
        let log = fs::read_to_string(log_of(&self.folder)).unwrap_or_default();
        log.lines().last().unwrap_or("it writes no log").to_owned()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The group holds the shell that waits for the end of the demo too.
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait();
    }
}

fn log_of(folder: &TempDir) -> PathBuf {
    folder.path().join("redis.log")
}

/// Finds the program in `PATH`.
fn program() -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| folder.join(PROGRAM));
    paths.find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
}
