//! Opens and closes the listeners on the caller's runtime. pingora's own server is not used,
//! because it takes over the process.

use std::fmt::Display;
use std::fs::Permissions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pingora::listeners::ListenerConfig;
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::server::Fds;
use pingora::services::Service as _;
use pingora::services::listening::Service;
use socket2::SockRef;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Listen;
use crate::gateway::reload::Current;
use crate::gateway::server::handler::Frontend;

/// One write for an ordinary answer (src/gateway/README.md, "The framework"). Reads have a buffer
/// of the gateway's own; the framework's would hold another 64 KiB for each connection.
const BUFFERS: L4BufferSettings = L4BufferSettings { read: Some(0), write: Some(16 * 1024) };

/// Bytes of a connection that the system holds and has not sent. It would otherwise take megabytes
/// of an answer, and then nothing for minutes from a client that still reads.
const UNSENT_BYTES_MAX: u32 = 64 * 1024;

/// Owner and group may connect to a Unix socket; a client key is needed all the same.
const SOCKET_MODE: u32 = 0o660;

/// Opens a Unix socket and replaces a stale one that no process listens on.
fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    let failed = |error| cannot_listen(path.display(), &error);
    if socket_obstacle(path).map_err(failed)? {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The configured addresses that cannot be opened now, each with its key and the problem. None
/// stays open, and a Unix socket is not touched.
pub fn listen_problems(listen: &Listen) -> Vec<(&'static str, String)> {
    let http = listen.http.iter().map(|address| ("listen.http", address));
    let admin = listen.admin.iter().map(|address| ("listen.admin", address));
    // All stay open until the end, because two of them may exclude each other.
    let opened: Vec<_> =
        http.chain(admin).map(|(key, at)| (key, at, TcpListener::bind(at))).collect();
    let problem = |(key, at, opened): (_, &SocketAddr, io::Result<TcpListener>)| {
        Some((key, cannot_listen(at, &opened.err()?).to_string()))
    };
    let unix = listen.unix.iter().filter_map(|path| {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // An anonymous file, gone at once.
        let writable = || tempfile::tempfile_in(directory.unwrap_or(Path::new("."))).map(drop);
        let error = socket_obstacle(path).and_then(|_| writable()).err()?;
        Some(("listen.unix", cannot_listen(path.display(), &error).to_string()))
    });
    opened.into_iter().filter_map(problem).chain(unix).collect()
}

/// Fails if something is in the way of a Unix socket. True for a stale socket, which no
/// process listens on.
fn socket_obstacle(path: &Path) -> io::Result<bool> {
    if let Ok(there) = std::fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            let kind = io::ErrorKind::AlreadyExists;
            return Err(io::Error::new(kind, "it exists and is not a socket"));
        }
        if UnixStream::connect(path).is_ok() {
            let kind = io::ErrorKind::AddrInUse;
            return Err(io::Error::new(kind, "another process listens on it"));
        }
        return Ok(true);
    }
    Ok(false)
}

fn cannot_listen(at: impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {at}: {error}"))
}

/// The open listeners.
pub struct Listening {
    current: Arc<Current>,
    /// The bound HTTP addresses, with the ports that the system chose for port 0.
    pub addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    service: JoinHandle<()>,
}

/// The result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All requests finished.
    Completely,
    /// This many requests were cut off at the end of the grace period.
    CutOff(usize),
}

impl Listening {
    /// Opens every configured listener. Fails before it serves any request if one cannot be opened.
    pub fn open(current: &Arc<Current>) -> io::Result<Self> {
        let gateway = current.gateway();
        let (stop, stopped) = watch::channel(false);
        let mut fds = Fds::new();
        let mut service = Service::new("weir".into(), Frontend::new(current, "http"));
        let mut addresses = Vec::new();
        for address in &gateway.env.config.listen.http {
            let listener =
                TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))?;
            listener.set_nonblocking(true)?;
            // Its connections inherit this. Where the system lacks it, a connection buffers more.
            let _ = SockRef::from(&listener).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
            let bound = listener.local_addr()?;
            fds.add(bound.to_string(), listener.into_raw_fd());
            service.add_listener(ListenerConfig::tcp(bound.to_string()).l4_buffer(BUFFERS));
            addresses.push(bound);
        }
        if let Some(path) = &gateway.env.config.listen.unix {
            // The framework would panic on a bad path, and take over another process's socket.
            fds.add(path.display().to_string(), bind_socket(path)?.into_raw_fd());
            let endpoint = ListenerConfig::uds(path.display().to_string());
            let mode = Permissions::from_mode(SOCKET_MODE);
            service.add_listener(endpoint.permissions(mode).l4_buffer(BUFFERS));
        }
        let fds = Arc::new(Mutex::new(fds));
        let service =
            tokio::spawn(async move { service.start_service(Some(fds), stopped, 1).await });
        Ok(Self { current: Arc::clone(current), addresses, stop, service })
    }

    /// Stops accepting, lets running requests finish for at most `grace`, then cuts off the rest.
    pub async fn drain(self, grace: Duration) -> Drained {
        // The listener closes first: only then do the open connections begin to get 503.
        self.stop.send_replace(true);
        let gateway = self.current.gateway();
        gateway.env.active.drain();
        let finished = tokio::time::timeout(grace, gateway.env.active.idle()).await.is_ok();
        let left = gateway.env.active.count();
        self.service.abort();
        if finished { Drained::Completely } else { Drained::CutOff(left) }
    }
}
