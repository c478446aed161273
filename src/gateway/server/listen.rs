//! Opens and closes the listeners on the caller's runtime. pingora's own server is not used,
//! because it takes over the process.

use std::fmt::Display;
use std::fs::Permissions;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
#[cfg(target_os = "linux")]
use socket2::SockFilter;
use socket2::SockRef;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout, timeout_at};

use crate::clock::timer_now;
use crate::config::Listen;
use crate::gateway::cache::invalidation::snapshot_mark::Level;
use crate::gateway::connections::slot::Listener as Kind;
use crate::gateway::reload::Current;
use crate::gateway::server::connection::LAST_REQUEST_WAIT;
use crate::gateway::server::connection::accept::{Listener, Socket};
use crate::gateway::server::handler::Frontend;
use crate::gateway::server::tls::{HTTPS, Tls};

/// Bytes of a connection that the system holds and has not sent. It would otherwise take megabytes
/// of an answer, and then nothing for minutes from a client that still reads.
const UNSENT_BYTES_MAX: u32 = 64 * 1024;

/// Owner and group may connect to a Unix socket; a client key is needed all the same.
const SOCKET_MODE: u32 = 0o660;

/// Drops packets with the flag SYN. All others pass: they belong to connections under way.
#[cfg(target_os = "linux")]
static DROP_SYN: [SockFilter; 4] = [
    // Loads the byte of the flags (RFC 9293 §3.1).
    SockFilter::new(0x30, 0, 0, 13),
    // Tests the flag, and skips one instruction if it is not set.
    SockFilter::new(0x45, 0, 1, 0x02),
    // Returns the number of bytes to keep.
    SockFilter::new(0x06, 0, 0, 0),
    SockFilter::new(0x06, 0, 0, u32::MAX),
];

/// The time before the end of a drain at which the cache is written although requests still run.
/// Chosen here: several hundred MiB take it.
const SNAPSHOT_TIME: Duration = Duration::from_secs(2);

/// The most connections that are taken from a backlog: the system's usual bound for one
/// (`net.core.somaxconn`).
const BACKLOG_MAX: usize = 4096;

impl Socket {
    /// Lets no further connection into the backlog. Where the system cannot do that, one that comes
    /// in the instant before the end is reset.
    fn refuse_new(&self) {
        let _ = match self {
            // Attempts are dropped, and so meet the end, or the next process, a second later.
            #[cfg(target_os = "linux")]
            Self::Tcp(listener) => SockRef::from(listener).attach_filter(&DROP_SYN),
            #[cfg(not(target_os = "linux"))]
            Self::Tcp(_) => Ok(()),
            Self::Unix(listener) => SockRef::from(listener).shutdown(Shutdown::Read),
        };
    }
}

/// Opens a socket at this address. Returns the bound one too.
fn bind_tcp(address: &SocketAddr) -> io::Result<(SocketAddr, Socket)> {
    let listener = TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))?;
    listener.set_nonblocking(true)?;
    // Its connections inherit this. Where the system lacks it, a connection buffers more.
    let _ = SockRef::from(&listener).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    Ok((listener.local_addr()?, Socket::Tcp(listener)))
}

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
    let https = listen.https.iter().map(|https| ("listen.https", &https.address));
    let admin = listen.admin.iter().map(|address| ("listen.admin", address));
    // All stay open until the end, because two of them may exclude each other.
    let opened: Vec<_> =
        http.chain(https).chain(admin).map(|(key, at)| (key, at, TcpListener::bind(at))).collect();
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
    /// The bound address for TLS, if there is one.
    pub https: Option<SocketAddr>,
    listeners: Vec<Arc<Listener>>,
    stop: watch::Sender<bool>,
    /// Has seen no change, so that HTTP/2 connections of the backlog learn of the stop.
    stopped: watch::Receiver<bool>,
    /// Accept until the stop.
    services: JoinSet<()>,
    /// Ends with this.
    #[expect(dead_code, reason = "a set ends its tasks when it is dropped")]
    renewals: JoinSet<()>,
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
        let (mut addresses, mut listeners) = (Vec::new(), Vec::new());
        let plain = Arc::new(Frontend::plain(current));
        for address in &gateway.env.config.listen.http {
            let (bound, socket) = bind_tcp(address)?;
            listeners.push(Listener { socket, kind: Kind::Http, front: Arc::clone(&plain) });
            addresses.push(bound);
        }
        let (mut https, mut renewals) = (None, JoinSet::new());
        if let Some(config) = &gateway.env.config.listen.https
            && let Some(tls) = Tls::new(HTTPS, current)?
        {
            let (bound, socket) = bind_tcp(&config.address)?;
            let front = Arc::new(Frontend::tls(current, Arc::clone(&tls)));
            listeners.push(Listener { socket, kind: Kind::Https, front });
            https = Some(bound);
            renewals.spawn(tls.renew(Arc::clone(current)));
        }
        if let Some(path) = &gateway.env.config.listen.unix {
            let socket = Socket::Unix(bind_socket(path)?);
            listeners.push(Listener { socket, kind: Kind::Unix, front: plain });
        }
        let listeners: Vec<_> = listeners.into_iter().map(Arc::new).collect();
        let mut services = JoinSet::new();
        for listener in &listeners {
            let connections = Arc::clone(&gateway.env.connections);
            services.spawn(listener.accept_until(connections, stopped.clone())?);
        }
        let current = Arc::clone(current);
        Ok(Self { current, addresses, https, listeners, stop, stopped, services, renewals })
    }

    /// Stops accepting, and serves what was sent before. Running requests may finish for at most
    /// `grace`; then the rest is cut off.
    pub async fn drain(mut self, grace: Duration) -> Drained {
        let over = timer_now() + grace;
        let gateway = self.current.gateway();
        let active = &gateway.env.active;
        active.drain();
        self.stop.send_replace(true);
        // Its end can only be late if no descriptor was free, and a panic in it has been logged.
        let ended = async { while self.services.join_next().await.is_some() {} };
        let _ = timeout_at(over, ended).await;
        self.listeners.iter().for_each(|listener| listener.socket.refuse_new());
        self.serve_backlog();
        let wait = || sleep_until(over.min(timer_now() + LAST_REQUEST_WAIT));
        wait().await;
        // Connections whose handshake was under way.
        if self.serve_backlog() > 0 {
            wait().await;
        }
        self.listeners.clear();
        active.refuse();
        let finished = match self.current.snapshots() {
            None => timeout_at(over, active.idle()).await.is_ok(),
            Some(snapshots) => {
                let cache = Arc::clone(&self.current.gateway().cache);
                let write = |level| timeout_at(over, snapshots.end(Arc::clone(&cache), level));
                let spared = SNAPSHOT_TIME.min(grace / 10);
                let finished = timeout_at(over - spared, active.idle()).await.is_ok();
                if finished {
                    _ = write(Level::Last).await;
                    true
                } else {
                    // Requests that end later may spend what this snapshot does not know.
                    let (_, rest) =
                        join(write(Level::Unchanged), timeout_at(over, active.idle())).await;
                    rest.is_ok()
                }
            }
        };
        let left = active.count();
        if !finished {
            active.cut_off();
            // Each answer is one write.
            let _ = timeout(LAST_REQUEST_WAIT, active.idle()).await;
        }
        self.services.abort_all();
        if finished { Drained::Completely } else { Drained::CutOff(left) }
    }

    /// Serves the connections that the system holds: it would reset them with their sockets, and
    /// with the requests that their clients have sent. Returns their number.
    fn serve_backlog(&self) -> usize {
        let mut served = 0;
        let connections = Arc::clone(&self.current.gateway().env.connections);
        for listener in &self.listeners {
            for _ in 0..BACKLOG_MAX {
                let stream = match listener.socket.accept() {
                    Ok(stream) => stream,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                    Err(_) => break,
                };
                listener.serve(stream, connections.extra_place(listener.kind), &self.stopped);
                served += 1;
            }
        }
        served
    }
}
