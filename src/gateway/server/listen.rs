//! Opens and closes the listeners on the caller's runtime. pingora's own server is not used,
//! because it takes over the process.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
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
use crate::gateway::connections::slot::Listener as Slotted;
use crate::gateway::reload::Current;
use crate::gateway::server::connection::LAST_REQUEST_WAIT;
use crate::gateway::server::connection::accept::Listener;
use crate::gateway::server::handler::Frontend;
use crate::gateway::server::sockets::bind::{cannot_listen, socket_obstacle};
use crate::gateway::server::sockets::{Kind, Opened, Socket, Sockets};
use crate::gateway::server::tls::{HTTPS, Tls};

/// Bytes of a connection that the system holds and has not sent. It would otherwise take megabytes
/// of an answer, and then nothing for minutes from a client that still reads.
const UNSENT_BYTES_MAX: u32 = 64 * 1024;

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

/// The time for a first request, and for the rest of a head, in a hand-over. Chosen here: some
/// round trips from the other end of the world with a handshake of TLS. Queued writes wait for it.
const FIRST_REQUEST_WAIT: Duration = Duration::from_secs(2);

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
    let unix = listen.unix.iter().map(|path| ("listen.unix", path));
    let takeover = listen.takeover.iter().map(|path| ("listen.takeover", path));
    let paths = unix.chain(takeover).filter_map(|(key, path)| {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // An anonymous file, gone at once.
        let writable = || tempfile::tempfile_in(directory.unwrap_or(Path::new("."))).map(drop);
        let error = socket_obstacle(path).and_then(|_| writable()).err()?;
        // The predecessor listens there.
        let is_free = key == "listen.takeover" && error.kind() == io::ErrorKind::AddrInUse;
        (!is_free).then(|| (key, cannot_listen(path.display(), &error).to_string()))
    });
    opened.into_iter().filter_map(problem).chain(paths).collect()
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
    /// Stops accepting on sockets that another process keeps open.
    stop_activated: watch::Sender<bool>,
    /// Has seen no change, so that HTTP/2 connections of the backlog learn of the stop.
    stopped: watch::Receiver<bool>,
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

/// The reason of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The process ends.
    Ending,
    /// A successor goes on with the sockets of these names, and with the snapshot.
    HandedOver(Vec<String>),
}

impl Leaving {
    fn keeps(&self, name: &String) -> bool {
        // The kind may be another one there.
        let place_of = |name: &str| name.split_once(' ').map(|(_, place)| place.to_owned());
        let is_it = |kept: &String| kept == name || place_of(kept) == place_of(name);
        matches!(self, Self::HandedOver(names) if names.iter().any(is_it))
    }
}

impl Listening {
    /// Opens every configured listener except that for operators. Fails before it serves any
    /// request if one cannot be opened.
    pub fn open(current: &Arc<Current>) -> io::Result<Self> {
        let listen = Listen { admin: None, ..current.gateway().env.config.listen.clone() };
        let (mut sockets, _) = Sockets::open(&listen, Vec::new())?;
        Self::open_on(current, &mut sockets)
    }

    /// Serves on the sockets of every configured listener.
    pub fn open_on(current: &Arc<Current>, sockets: &mut Sockets) -> io::Result<Self> {
        let gateway = current.gateway();
        let listen = &gateway.env.config.listen;
        let (stop, stopped) = watch::channel(false);
        let (stop_activated, activated_stopped) = watch::channel(false);
        let (mut addresses, mut listeners) = (Vec::new(), Vec::new());
        let plain = Arc::new(Frontend::plain(current));
        let mut open = |opened: Opened, kind: Slotted, front: Arc<Frontend>| {
            let Opened { name, is_activated, socket, .. } = opened;
            let bound = match &socket {
                Socket::Tcp(listener) => {
                    // Its connections inherit both, without a call for each.
                    let socket = SockRef::from(listener);
                    socket.set_tcp_nodelay(true)?;
                    // Where the system lacks it, a connection buffers more.
                    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
                    Some(listener.local_addr()?)
                }
                Socket::Unix(_) => None,
            };
            listeners.push(Arc::new(Listener { name, is_activated, socket, kind, front }));
            io::Result::Ok(bound)
        };
        for address in &listen.http {
            let opened = sockets.take(Kind::Http, address)?;
            addresses.extend(open(opened, Slotted::Http, Arc::clone(&plain))?);
        }
        let (mut https, mut renewals) = (None, JoinSet::new());
        if let Some(config) = &listen.https
            && let Some(tls) = Tls::new(HTTPS, current)?
        {
            let front = Arc::new(Frontend::tls(current, Arc::clone(&tls)));
            https = open(sockets.take(Kind::Https, config.address)?, Slotted::Https, front)?;
            renewals.spawn(tls.renew(Arc::clone(current)));
        }
        if let Some(path) = &listen.unix {
            open(sockets.take(Kind::Unix, path.display())?, Slotted::Unix, plain)?;
        }
        let mut services = JoinSet::new();
        for listener in &listeners {
            let connections = Arc::clone(&gateway.env.connections);
            let until = if listener.is_activated { &activated_stopped } else { &stopped };
            let accepting = listener.accept_until(connections, until.clone(), stopped.clone())?;
            services.spawn(accepting);
        }
        let current = Arc::clone(current);
        Ok(Self {
            current,
            addresses,
            https,
            listeners,
            stop,
            stop_activated,
            stopped,
            services,
            renewals,
        })
    }

    /// Stops accepting, and serves what was sent before. Running requests may finish for at most
    /// `grace`; then the rest is cut off.
    pub async fn drain(self, grace: Duration) -> Drained {
        self.drain_as(grace, &Leaving::Ending).await
    }

    /// The same, where another process may go on with some of the sockets.
    pub async fn drain_as(mut self, grace: Duration, leaving: &Leaving) -> Drained {
        let over = timer_now() + grace;
        let gateway = self.current.gateway();
        let active = &gateway.env.active;
        active.drain();
        if *leaving != Leaving::Ending {
            // Half of the drain is left for the answers.
            active.hand_over(timer_now() + FIRST_REQUEST_WAIT.min(grace / 2));
        }
        self.stop.send_replace(true);
        if *leaving == Leaving::Ending && self.listeners.iter().any(|other| other.is_activated) {
            // The next process begins after the end of this one. Until the open connections have
            // ended, new ones are served here.
            let _ = timeout_at(over.min(timer_now() + LAST_REQUEST_WAIT), active.idle()).await;
        }
        self.stop_activated.send_replace(true);
        // Its end can only be late if no descriptor was free, and a panic in it has been logged.
        let ended = async { while self.services.join_next().await.is_some() {} };
        let _ = timeout_at(over, ended).await;
        self.listeners.retain(|listener| !listener.is_activated && !leaving.keeps(&listener.name));
        self.listeners.iter().for_each(|listener| listener.socket.refuse_new());
        self.serve_backlog();
        let wait_end = || over.min(timer_now() + LAST_REQUEST_WAIT);
        if self.listeners.is_empty() {
            let _ = timeout_at(wait_end(), active.idle()).await;
        } else {
            sleep_until(wait_end()).await;
            // Connections whose handshake was under way.
            if self.serve_backlog() > 0 {
                sleep_until(wait_end()).await;
            }
            self.listeners.clear();
        }
        active.all_arrived().await;
        active.refuse();
        let snapshots = self.current.snapshots().filter(|_| *leaving == Leaving::Ending);
        let finished = match snapshots {
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
