//! Accepts the connections of the admin listener, even when the process is out of descriptors: a
//! health probe that gets no answer ends a gateway that still serves its clients.
//!
//! Ordinary connections are bounded in number and in time. Beyond the number, and out of
//! descriptors, a connection gets one answer and a short time, by a descriptor of the reserve. One
//! that sends no request makes room for the next.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustix::io::{DupFlags, dup3};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{HEAD_TIMEOUT, Peer, Reply, Site, respond};
use crate::gateway::Tls;

/// Most ordinary connections. Our choice: many times the probes, scrapers and operators of one
/// gateway.
const CONNECTIONS_MAX: usize = 64;
/// Longest life of an ordinary connection. Our choice: a scraper comes once a minute or more often.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// Descriptors in reserve, and most brief connections. Our choice: some probes at the same time.
const SPARES: usize = 8;
/// Longest life of a brief connection. Our choice: probes wait for a second or a few.
const BRIEF_TIME: Duration = Duration::from_secs(2);
/// Longest head of a request, as at the gateway's listeners. The server itself would take 400 KiB.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Pause after an accept that the reserve could not help either. Our choice: a probe does not
/// notice it, and it costs no measurable CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listener with its reserve of descriptors.
pub struct Listener {
    socket: TcpListener,
    /// `None`: plain HTTP.
    tls: Option<Arc<Tls>>,
    /// Duplicates of `socket`, closed to make room for a connection.
    spares: Mutex<Vec<OwnedFd>>,
}

/// A brief connection.
#[derive(Default)]
struct Brief {
    has_request: AtomicBool,
    /// Notified when another connection needs its place.
    given_up: Notify,
}

impl Listener {
    /// Takes descriptors into reserve; fails if the process has none left at its start.
    pub fn new(socket: TcpListener, tls: Option<Arc<Tls>>) -> io::Result<Self> {
        let spares =
            (0..SPARES).map(|_| socket.as_fd().try_clone_to_owned()).collect::<io::Result<_>>()?;
        Ok(Self { socket, tls, spares: Mutex::new(spares) })
    }

    /// Accepts and serves until the stop, or for ever.
    pub async fn serve(self, site: Arc<Site>, mut stop: watch::Receiver<bool>) {
        let listener = Arc::new(self);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut briefs = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut stop) => return,
            };
            let Some((stream, is_spare)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let slot = Arc::clone(&slots).try_acquire_owned().ok().filter(|_| !is_spare);
            if let Some(slot) = slot {
                let (tls, stop) = (listener.tls.clone(), stop.clone());
                tokio::spawn(serve(stream, tls, Arc::clone(&site), slot, stop));
                continue;
            }
            make_room(&mut briefs).await;
            let (listener, site) = (Arc::clone(&listener), Arc::clone(&site));
            let brief = Arc::new(Brief::default());
            let own = Arc::clone(&brief);
            let task = tokio::spawn(async move {
                let tls = listener.tls.as_deref();
                let stream = serve_briefly(stream, tls, site, &own).await;
                listener.give_back(stream);
            });
            briefs.push_back((brief, task));
        }
    }

    /// Returns the next connection, and true if it has a descriptor of the reserve. `None` when the
    /// reserve is used up, or nobody waits any more.
    async fn accept(&self) -> Option<(TcpStream, bool)> {
        self.refill();
        if let Ok((stream, _)) = self.socket.accept().await {
            return Some((stream, false));
        }
        let take_spare = || self.spares.lock().pop();
        while let Some(spare) = take_spare() {
            drop(spare);
            match self.socket.accept().now_or_never() {
                Some(Ok((stream, _))) => return Some((stream, true)),
                // Another task took the descriptor.
                Some(Err(_)) => {}
                None => break,
            }
        }
        None
    }

    /// Replaces lost descriptors of the reserve, as far as the process has free ones.
    fn refill(&self) {
        let mut spares = self.spares.lock();
        while spares.len() < SPARES
            && let Ok(spare) = self.socket.as_fd().try_clone_to_owned()
        {
            spares.push(spare);
        }
    }

    /// Closes a connection and keeps its descriptor if the reserve lacks one. It is never free in
    /// between, when any other task could take it.
    fn give_back(&self, stream: TcpStream) {
        let Ok(stream) = stream.into_std() else { return };
        let mut descriptor = OwnedFd::from(stream);
        let mut spares = self.spares.lock();
        if spares.len() < SPARES && dup3(&self.socket, &mut descriptor, DupFlags::CLOEXEC).is_ok() {
            spares.push(descriptor);
        }
    }
}

/// Waits for a place among the brief connections. The oldest without a request loses its own.
async fn make_room(briefs: &mut VecDeque<(Arc<Brief>, JoinHandle<()>)>) {
    briefs.retain(|(_, task)| !task.is_finished());
    if briefs.len() < SPARES {
        return;
    }
    let is_idle = |brief: &Brief| !brief.has_request.load(Ordering::Acquire);
    let oldest = briefs.iter().position(|(brief, _)| is_idle(brief)).unwrap_or(0);
    if let Some((brief, task)) = briefs.remove(oldest) {
        if is_idle(&brief) {
            brief.given_up.notify_one();
        }
        // A panic in it has been logged.
        let _ = task.await;
    }
}

/// Waits for the stop; for ever if there is none.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn serve(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    site: Arc<Site>,
    slot: OwnedSemaphorePermit,
    stop: watch::Receiver<bool>,
) {
    let peer = peer_of(&stream);
    match tls {
        None => serve_over(stream, peer, site, stop).await,
        Some(tls) => {
            // The client learns of a failed handshake by an alert.
            let now = site.current.gateway().env.clock.now();
            if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept_over(stream, now)).await {
                serve_over(stream, peer, site, stop).await;
            }
        }
    }
    drop(slot);
}

async fn serve_over<T>(stream: T, peer: Peer, site: Arc<Site>, mut stop: watch::Receiver<bool>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    server.http1().max_buf_size(HEAD_BYTES_MAX);
    let service = service_fn(|request| exchange(Arc::clone(&site), peer, request));
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    // An error here means that the client disconnected.
    let is_over = tokio::select! {
        ended = timeout(CONNECTION_TIME, connection.as_mut()) => ended.is_ok(),
        () = stopped(&mut stop) => false,
    };
    if !is_over {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(HEAD_TIMEOUT, connection).await;
    }
}

/// Answers one request over HTTP/1.1 and returns the connection, which is to be closed.
async fn serve_briefly(
    mut stream: TcpStream,
    tls: Option<&Tls>,
    site: Arc<Site>,
    brief: &Brief,
) -> TcpStream {
    let mut server = http1::Builder::new();
    let peer = peer_of(&stream);
    server.keep_alive(false).timer(TokioTimer::new()).max_buf_size(HEAD_BYTES_MAX);
    let service = service_fn(|request| {
        brief.has_request.store(true, Ordering::Release);
        exchange(Arc::clone(&site), peer, request)
    });
    let answering = async {
        match tls {
            None => _ = server.serve_connection(TokioIo::new(&mut stream), service).await,
            Some(tls) => {
                let now = site.current.gateway().env.clock.now();
                if let Ok(stream) = tls.accept_over(&mut stream, now).await {
                    _ = server.serve_connection(TokioIo::new(stream), service).await;
                }
            }
        }
    };
    // Neither a slow nor a lost client matters.
    tokio::select! {
        _ = timeout(BRIEF_TIME, answering) => {}
        () = brief.given_up.notified() => {}
    }
    stream
}

/// The other end of a connection; the unspecified address if it is gone.
fn peer_of(stream: &TcpStream) -> Peer {
    Peer(stream.peer_addr().map_or(IpAddr::from([0; 4]), |peer| peer.ip()))
}

async fn exchange(
    site: Arc<Site>,
    peer: Peer,
    mut request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    request.extensions_mut().insert(peer);
    Ok(respond(site, request).await)
}
