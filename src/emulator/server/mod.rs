//! The emulator behind a socket: HTTP/1.1 and h2c, latency, and the waits for gates.
//!
//! It makes no decisions: [`Emulator::arrive`] gives every response and its transport faults. The
//! emulator completes a request just before the response is written, so a client never sees a
//! response that still holds a concurrency slot.

mod idle;
mod refusal;
mod response_writer;
mod write_queue;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use self::idle::Activity;
use self::response_writer::{BrokenOff, SentBody, depart};
use self::write_queue::{ConnectionControls, WriteQueue};
use crate::clock::{Clock, Timestamp};
use crate::cross_site;
use crate::emulator::control;
use crate::emulator::events::delivery::sender::{self, WebhookSender};
use crate::emulator::faults::FaultId;
use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::http::ApiError;
use crate::emulator::http::path::{self, UploadBytes};
use crate::emulator::limits::RequestId;
use crate::emulator::pipeline::emulator::Emulator;

/// Simultaneous connections; further ones wait in the listener's queue.
const CONNECTIONS_MAX: usize = 4_096;
/// The service closes idle connections after about 60 s (SPECIFICATION, "Conditional requests in
/// practice").
const IDLE_WAIT: Duration = Duration::from_secs(60);
/// The headers of a request head, over any protocol; the HTTP implementation's own bound over
/// HTTP/1.1.
const HEADERS_MAX: usize = 100;
/// The bytes of a head, each of which costs memory before anything is known of its client. Ours:
/// more than the 64 KiB of a target, which has a status of its own.
const HEAD_BYTES_MAX: usize = 96 * 1024;
/// Above the bound of a head, so that a head between both is refused by a response of the API.
const HTTP2_HEAD_BYTES_MAX: u32 = 512 * 1024;
/// The longest pause in a request's body. Undocumented.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The time that a shutdown gives responses under way before it drops their connections.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);
/// The longest wait of `GET /_emulator/gates/{id}?held=N` and `GET
/// /_emulator/faults/{id}?struck=N`, which then answer with the current number.
const CONTROL_WAIT: Duration = Duration::from_secs(10);

/// Starts emulators on sockets.
#[derive(Debug)]
pub struct Server;

/// A running emulator. Dropping it ends the server without waiting for it; [`Handle::shutdown`]
/// waits.
#[derive(Debug)]
pub struct Handle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
    deliveries: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    emulator: Mutex<Emulator>,
    clock: Clock,
    latency: Duration,
    /// Notified when a request arrives or leaves, or a gate may have opened.
    changed: Notify,
    /// Notified when a delivery is due.
    post: Arc<Notify>,
}

impl Server {
    /// Serves `emulator` on `listener` and delays each response by `latency`. Must be called inside
    /// a tokio runtime.
    #[must_use]
    pub fn start(
        listener: TcpListener,
        emulator: Emulator,
        clock: Clock,
        latency: Duration,
    ) -> Handle {
        Self::start_with(listener, emulator, clock, latency, WebhookSender::default())
    }

    /// Starts like [`Server::start`], with a custom sender of webhook deliveries.
    #[must_use]
    pub fn start_with(
        listener: TcpListener,
        emulator: Emulator,
        clock: Clock,
        latency: Duration,
        sender: WebhookSender,
    ) -> Handle {
        Self::start_narrow(listener, emulator, clock, latency, sender, CONNECTIONS_MAX)
    }

    pub(in crate::emulator) fn start_narrow(
        listener: TcpListener,
        emulator: Emulator,
        clock: Clock,
        latency: Duration,
        sender: WebhookSender,
        connections_max: usize,
    ) -> Handle {
        // A bound listener knows its address; the fallback spares callers an impossible error.
        let addr = listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let shared = Arc::new(Shared {
            emulator: Mutex::new(emulator),
            clock,
            latency,
            changed: Notify::new(),
            post: Arc::default(),
        });
        let (stop, stopped) = watch::channel(());
        let deliveries = tokio::spawn(deliver(sender, Arc::clone(&shared), stopped.clone()));
        let task = tokio::spawn(accept(listener, Arc::clone(&shared), stopped, connections_max));
        Handle { addr, shared, stop, task, deliveries }
    }
}

impl Handle {
    /// Returns the listening address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Gives access to the emulator between two requests.
    pub fn with_emulator<T>(&self, access: impl FnOnce(&mut Emulator) -> T) -> T {
        let result = access(&mut self.shared.emulator.lock());
        self.shared.changed.notify_waiters();
        self.shared.post.notify_one();
        result
    }

    /// Waits until every webhook delivery has been sent and reported.
    pub async fn wait_until_delivered(&self) {
        self.shared.wait_for(Emulator::is_all_delivered).await;
    }

    /// Waits until `gate` holds at least `count` requests.
    pub async fn wait_until_held(&self, gate: GateId, count: usize) {
        self.shared.wait_for(|emulator| emulator.held(gate) >= count).await;
    }

    /// Waits until `fault` has struck at least `count` requests, or is deleted.
    pub async fn wait_until_struck(&self, fault: FaultId, count: u64) {
        self.shared.wait_until_struck(fault, count).await;
    }

    /// Stops accepting, grants responses under way a short time, and ends.
    pub async fn shutdown(self) {
        // A failed send means that the task has already ended.
        let _ = self.stop.send(());
        let _ = self.task.await;
        let _ = self.deliveries.await;
    }
}

async fn deliver(sender: WebhookSender, shared: Arc<Shared>, stopped: watch::Receiver<()>) {
    let clock = &shared.clock;
    let take = || {
        let taken = shared.emulator.lock().take_outgoing(shared.clock.now());
        // Taking may empty the queue without a send: the webhook was deleted.
        shared.changed.notify_waiters();
        taken
    };
    let settle = |id, receipt| {
        shared.emulator.lock().delivered(id, receipt);
        shared.changed.notify_waiters();
    };
    let due = || {
        let due = shared.emulator.lock().next_due();
        async move {
            match due {
                Some(at) => clock.reach(at).await,
                None => std::future::pending().await,
            }
        }
    };
    sender::run(sender, (take, due), settle, Arc::clone(&shared.post), stopped).await;
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<()>,
    connections_max: usize,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            _ = stopped.changed() => break,
        };
        let Ok(slot) = slot else { break };
        tokio::select! {
            accepted = listener.accept() => {
                // Neither a lost client nor a lack of descriptors ends the server. The pause avoids
                // a busy loop.
                let Ok((stream, peer)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let connection = serve(stream, peer.ip(), Arc::clone(&shared), stopped.clone());
                connections.spawn(async move { connection.await; drop(slot) });
            }
            _ = stopped.changed() => break,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_WAIT, drained).await.is_err() {
        connections.shutdown().await;
    }
}

async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<()>,
) {
    // A response is one small write; Nagle's algorithm would only add latency.
    let _ = stream.set_nodelay(true);
    let (controls, activity) =
        (Arc::new(ConnectionControls::default()), Arc::new(Activity::default()));
    let stream = WriteQueue::new(stream, peer, Arc::clone(&controls), Arc::clone(&shared));
    let (response_controls, requests) = (Arc::clone(&controls), Arc::clone(&activity));
    let service = service_fn(move |request| {
        let in_flight = requests.begin();
        let answer = answer(request, peer, Arc::clone(&shared), Arc::clone(&response_controls));
        async move {
            let answer = answer.await;
            drop(in_flight);
            answer
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(HEAD_BYTES_MAX);
    builder.http2().max_header_list_size(HTTP2_HEAD_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // A failed connection is the client's concern alone.
        _ = connection.as_mut() => return,
        () = controls.wait_for_cut() => return,
        () = activity.idle_for(IDLE_WAIT) => {}
        _ = stopped.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = controls.wait_for_cut() => {}
        // A connection without a detected protocol does not react to a graceful shutdown.
        () = activity.idle_for(SHUTDOWN_WAIT) => {}
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: IpAddr,
    shared: Arc<Shared>,
    controls: Arc<ConnectionControls>,
) -> Result<Response<SentBody>, BrokenOff> {
    let version = request.version();
    let request = match read(request).await {
        Ok(request) => request,
        Err(error) => {
            let response = shared.refuse_unreadable(peer, error);
            return Ok(response.map(|body| Either::Left(Full::new(body))));
        }
    };
    // A late response with the current number lets a test report what is missing.
    let (method, uri) = (request.method(), request.uri());
    if let Some((gate, count)) = control::parse_wait(method, uri, "/gates/", "held") {
        let gate = GateId(gate);
        let held = shared.wait_for(|emulator| {
            emulator.gate_is_open(gate) || emulator.held(gate) as u64 >= count
        });
        let _ = tokio::time::timeout(CONTROL_WAIT, held).await;
    }
    if let Some((fault, count)) = control::parse_wait(method, uri, "/faults/", "struck") {
        let struck = shared.wait_until_struck(FaultId(fault), count);
        let _ = tokio::time::timeout(CONTROL_WAIT, struck).await;
    }
    let (arrival, has_outgoing) = {
        let mut emulator = shared.emulator.lock();
        let arrival = emulator.arrive(shared.clock.now(), &request, peer);
        (arrival, emulator.has_outgoing() || emulator.next_due().is_some())
    };
    if has_outgoing {
        shared.post.notify_one();
    }
    let mut in_flight =
        InFlight { id: arrival.id, shared: Arc::clone(&shared), end: Emulator::abandon };
    shared.changed.notify_waiters();
    if let Some(gate) = arrival.gate {
        shared.wait_for(|emulator| emulator.gate_is_open(gate)).await;
    }
    if let Wire::HeldBack { until } = arrival.wire {
        shared.wait_until_released(arrival.id, until).await;
    }
    if !shared.latency.is_zero() {
        tokio::time::sleep(shared.latency).await;
    }
    in_flight.end = Emulator::finish;
    drop(in_flight);
    if arrival.departure == Departure::Watched {
        controls.departs(arrival.id, arrival.response.body().len() as u64);
    }
    depart(arrival.response, arrival.wire, version, &controls).await
}

const MALFORMED: ApiError =
    ApiError::Unreadable(StatusCode::BAD_REQUEST, "Problems reading the request body");
/// No data for a long time.
const STALLED: ApiError =
    ApiError::Unreadable(StatusCode::REQUEST_TIMEOUT, "The request body did not arrive");

/// An upload is only counted. Other bodies are read to one byte beyond the maximum, and not at all
/// when announced as larger.
async fn read(request: Request<Incoming>) -> Result<Request<Bytes>, ApiError> {
    let (mut parts, mut body) = request.into_parts();
    if parts.headers.len() > HEADERS_MAX || head_bytes(&parts) > HEAD_BYTES_MAX {
        return Err(refusal::Refusal::HeadTooLarge.error());
    }
    if cross_site::has_foreign_host(&parts.uri, &parts.headers) {
        parts.extensions.insert(path::ForeignHost);
    }
    let is_upload = path::is_upload(&parts.method, parts.uri.path());
    if !is_upload && body.size_hint().lower() > path::BODY_BYTES_MAX as u64 {
        parts.extensions.insert(path::Unread);
        return Ok(Request::from_parts(parts, Bytes::new()));
    }
    let mut kept = BytesMut::new();
    let mut upload_bytes: u64 = 0;
    while let Some(frame) =
        tokio::time::timeout(BODY_WAIT, body.frame()).await.map_err(|_| STALLED)?
    {
        let Ok(data) = frame.map_err(|_| MALFORMED)?.into_data() else { continue };
        if is_upload {
            upload_bytes = upload_bytes.saturating_add(data.len() as u64);
        } else {
            kept.extend_from_slice(&data);
            if kept.len() > path::BODY_BYTES_MAX {
                break;
            }
        }
    }
    if is_upload {
        parts.extensions.insert(UploadBytes(upload_bytes));
    }
    Ok(Request::from_parts(parts, kept.freeze()))
}

/// The size of a head over HTTP/1.1; HTTP/2 compresses it.
fn head_bytes(parts: &http::request::Parts) -> usize {
    let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let lines = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    lines.sum::<usize>() + target
}

impl Shared {
    fn refuse_unreadable(&self, peer: IpAddr, error: ApiError) -> Response<Bytes> {
        let mut emulator = self.emulator.lock();
        emulator.refuse_unreadable(self.clock.now(), peer, error)
    }

    async fn wait_until_struck(&self, fault: FaultId, count: u64) {
        self.wait_for(|emulator| emulator.struck(fault).is_none_or(|struck| struck >= count)).await;
    }

    /// Waits until the fault releases the response, or until its time has come.
    async fn wait_until_released(&self, id: RequestId, until: Timestamp) {
        tokio::select! {
            () = self.wait_for(|emulator| !emulator.is_held_back(self.clock.now(), id)) => {}
            () = self.clock.reach(until) => {}
        }
    }

    async fn wait_for(&self, reached: impl Fn(&Emulator) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registers before the check, so that a change between check and wait is not missed.
            changed.as_mut().enable();
            if reached(&self.emulator.lock()) {
                return;
            }
            changed.await;
        }
    }
}

/// Guard of a request in flight: it ends the request on drop, a disconnect included.
struct InFlight {
    id: RequestId,
    shared: Arc<Shared>,
    /// [`Emulator::abandon`] until the response leaves, then [`Emulator::finish`].
    end: fn(&mut Emulator, Timestamp, RequestId),
}

impl Drop for InFlight {
    fn drop(&mut self) {
        {
            // Reads the time under the lock, so that completions are recorded in order.
            let mut emulator = self.shared.emulator.lock();
            let now = self.shared.clock.now();
            (self.end)(&mut emulator, now, self.id);
        }
        self.shared.changed.notify_waiters();
    }
}
