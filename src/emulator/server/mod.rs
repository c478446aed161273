//! The emulator behind a socket: HTTP/1.1 and h2c, a latency, and the waiting that gates ask for.
//!
//! It decides nothing: every answer comes from [`Emulator::arrive`], and so does the way it leaves.
//! A request leaves the emulator's books just before its answer is written, so that a client can
//! never see an answer whose place is still taken.

mod idle;
mod response_writer;
mod write_queue;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, StatusCode, header};
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
use self::response_writer::{Broken, Sent, depart};
use self::write_queue::{Ends, WriteQueue};
use crate::clock::{Clock, Timestamp};
use crate::emulator::control::waits;
use crate::emulator::events::delivery::sender::{self, WebhookSender};
use crate::emulator::faults::FaultId;
use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::http::path::{self, UploadBytes};
use crate::emulator::limits::RequestId;
use crate::emulator::pipeline::emulator::Emulator;

/// Connections at once; further ones wait in the listener's queue.
const CONNECTIONS_MAX: usize = 4_096;
/// UPSTREAM.md, Conditional requests: "idle keep-alive connections are closed at about 60 s". A
/// request's head has as long to arrive.
const IDLE_WAIT: Duration = Duration::from_secs(60);
/// The longest pause in a request's body. Not shown.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// Between two attempts to accept a connection when the first one failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a shutdown waits for answers under way before it drops their connections.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);
/// How long `GET /_emulator/gates/{id}?held=N` waits for N requests before it answers with the
/// number that there is, and `GET /_emulator/faults/{id}?struck=N` until it has struck N.
const HELD_WAIT: Duration = Duration::from_secs(10);

/// Starts emulators on sockets.
#[derive(Debug)]
pub struct Server;

/// A running emulator. Dropping it ends the server without waiting for it; [`Handle::shutdown`]
/// waits.
#[derive(Debug)]
pub struct Handle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<Phase>,
    task: JoinHandle<()>,
    deliveries: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Stopping,
}

#[derive(Debug)]
struct Shared {
    emulator: Mutex<Emulator>,
    clock: Clock,
    latency: Duration,
    /// Told whenever a request arrived or left, or a gate may have been opened.
    changed: Notify,
    /// Told when there is something to deliver.
    post: Arc<Notify>,
}

impl Server {
    /// Serves `emulator` on `listener`, each answer `latency` after its request. Must be called
    /// inside a tokio runtime.
    #[must_use]
    pub fn start(
        listener: TcpListener,
        emulator: Emulator,
        clock: Clock,
        latency: Duration,
    ) -> Handle {
        Self::start_with(listener, emulator, clock, latency, WebhookSender::default())
    }

    /// As [`Server::start`], with a courier of one's own for webhook deliveries.
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

    /// The same, with room for so many connections at once.
    pub(in crate::emulator) fn start_narrow(
        listener: TcpListener,
        emulator: Emulator,
        clock: Clock,
        latency: Duration,
        sender: WebhookSender,
        connections_max: usize,
    ) -> Handle {
        // A bound listener knows its address; the fallback only saves every caller an error that
        // does not happen.
        let addr = listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let (changed, post) = (Notify::new(), Arc::new(Notify::new()));
        let shared =
            Arc::new(Shared { emulator: Mutex::new(emulator), clock, latency, changed, post });
        let (stop, phase) = watch::channel(Phase::Serving);
        let deliveries = tokio::spawn(deliver(sender, Arc::clone(&shared), phase.clone()));
        let task = tokio::spawn(accept(listener, Arc::clone(&shared), phase, connections_max));
        Handle { addr, shared, stop, task, deliveries }
    }
}

impl Handle {
    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Looks at or changes the emulator between two requests.
    pub fn with_emulator<T>(&self, look: impl FnOnce(&mut Emulator) -> T) -> T {
        let seen = look(&mut self.shared.emulator.lock());
        self.shared.changed.notify_waiters();
        self.shared.post.notify_one();
        seen
    }

    /// Waits until every webhook delivery has been sent and answered for.
    pub async fn wait_until_delivered(&self) {
        self.shared.wait_for(Emulator::is_all_delivered).await;
    }

    /// Waits until `gate` holds at least `count` requests.
    pub async fn wait_until_held(&self, gate: GateId, count: usize) {
        self.shared.wait_for(|emulator| emulator.held(gate) >= count).await;
    }

    /// Waits until `fault` has struck at least `count` requests, or is deleted.
    pub async fn wait_until_struck(&self, fault: FaultId, count: u64) {
        self.shared
            .wait_for(|emulator| emulator.struck(fault).is_none_or(|struck| struck >= count))
            .await;
    }

    /// Stops accepting, gives answers under way a moment, and ends.
    pub async fn shutdown(self) {
        // A failed send means that the task has already ended, which is what is wanted.
        let _ = self.stop.send(Phase::Stopping);
        let _ = self.task.await;
        let _ = self.deliveries.await;
    }
}

async fn deliver(sender: WebhookSender, shared: Arc<Shared>, phase: watch::Receiver<Phase>) {
    let take = || {
        let taken = shared.emulator.lock().take_outgoing(shared.clock.now());
        // Taking may empty the outbox without sending: the webhook is gone.
        shared.changed.notify_waiters();
        taken
    };
    let settle = |id, receipt| {
        shared.emulator.lock().delivered(id, receipt);
        shared.changed.notify_waiters();
    };
    sender::run(sender, take, settle, Arc::clone(&shared.post), phase).await;
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut phase: watch::Receiver<Phase>,
    connections_max: usize,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            _ = phase.changed() => break,
        };
        let Ok(slot) = slot else { break };
        tokio::select! {
            accepted = listener.accept() => {
                // A client that is gone before it was accepted is no reason to end. Nor is it that
                // the system has no more descriptors, but asking again at once would only keep it
                // busy.
                let Ok((stream, peer)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let connection = serve(stream, peer.ip(), Arc::clone(&shared), phase.clone());
                connections.spawn(async move { connection.await; drop(slot) });
            }
            _ = phase.changed() => break,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let drained = tokio::time::timeout(SHUTDOWN_WAIT, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
    if drained.is_err() {
        connections.shutdown().await;
    }
}

async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    shared: Arc<Shared>,
    mut phase: watch::Receiver<Phase>,
) {
    // An answer is one small write; waiting for more would only add latency. A socket that cannot
    // be set still works.
    let _ = stream.set_nodelay(true);
    let ends = Arc::new(Ends::default());
    let line = WriteQueue::new(stream, Arc::clone(&ends), Arc::clone(&shared));
    let ends_of_answers = Arc::clone(&ends);
    let activity = Arc::new(Activity::default());
    let asked = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let asking = asked.begin();
        let answer = answer(request, peer, Arc::clone(&shared), Arc::clone(&ends_of_answers));
        async move {
            let answer = answer.await;
            drop(asking);
            answer
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(line), service));
    tokio::select! {
        // What goes wrong on a client's connection is the client's business.
        _ = connection.as_mut() => return,
        () = ends.wait_for_cut() => return,
        () = activity.idle_for(IDLE_WAIT) => {}
        _ = phase.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = ends.wait_for_cut() => {}
        // What has not even said which protocol it speaks does not end by being asked to.
        () = activity.idle_for(SHUTDOWN_WAIT) => {}
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: IpAddr,
    shared: Arc<Shared>,
    ends: Arc<Ends>,
) -> Result<Response<Sent>, Broken> {
    let version = request.version();
    let request = match read(request).await {
        Ok(request) => request,
        Err(unreadable) => return Ok(unreadable.into_response()),
    };
    if let Some((gate, count)) = waits::awaited_gate(request.method(), request.uri()) {
        // Answering late with the number that there is lets a test say what it missed.
        let _ = tokio::time::timeout(
            HELD_WAIT,
            shared.wait_for(|emulator| emulator.gate_is_open(gate) || emulator.held(gate) >= count),
        )
        .await;
    }
    if let Some((fault, count)) = waits::awaited_fault(request.method(), request.uri()) {
        let struck =
            shared.wait_for(|emulator| emulator.struck(fault).is_none_or(|struck| struck >= count));
        let _ = tokio::time::timeout(HELD_WAIT, struck).await;
    }
    let (arrival, has_outgoing) = {
        let mut emulator = shared.emulator.lock();
        (emulator.arrive(shared.clock.now(), &request, peer), emulator.has_outgoing())
    };
    if has_outgoing {
        shared.post.notify_one();
    }
    let mut in_flight =
        InFlight { id: arrival.id, shared: Arc::clone(&shared), end: End::ClientGone };
    shared.changed.notify_waiters();
    if let Some(gate) = arrival.gate {
        shared.wait_for(|emulator| emulator.gate_is_open(gate)).await;
    }
    if let Wire::HeldBack { until } = arrival.wire {
        shared.wait_until_let_go(arrival.id, until).await;
    }
    if !shared.latency.is_zero() {
        tokio::time::sleep(shared.latency).await;
    }
    in_flight.end = End::Answered;
    drop(in_flight);
    if arrival.departure == Departure::Watched {
        ends.departs(arrival.id, arrival.response.body().len() as u64);
    }
    depart(arrival.response, arrival.wire, version, &ends).await
}

/// Why a request's body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreadable {
    Malformed,
    /// Nothing more came for a long time.
    Stalled,
}

impl Unreadable {
    fn into_response(self) -> Response<Sent> {
        let (status, body) = match self {
            Self::Malformed => (
                StatusCode::BAD_REQUEST,
                &br#"{"message":"Problems reading the request body"}"#[..],
            ),
            Self::Stalled => (
                StatusCode::REQUEST_TIMEOUT,
                &br#"{"message":"The request body did not arrive"}"#[..],
            ),
        };
        let mut response = Response::new(Either::Left(Full::new(Bytes::from_static(body))));
        *response.status_mut() = status;
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=utf-8"),
        );
        response
    }
}

/// Reads the whole request. An upload is only counted; other bodies are read to one byte beyond
/// what the emulator accepts, and not at all when they are announced as larger.
async fn read(request: Request<Incoming>) -> Result<Request<Bytes>, Unreadable> {
    let (mut parts, mut body) = request.into_parts();
    let is_upload = path::is_upload(&parts.method, parts.uri.path());
    if !is_upload && body.size_hint().lower() > path::BODY_BYTES_MAX as u64 {
        parts.extensions.insert(path::Unread);
        return Ok(Request::from_parts(parts, Bytes::new()));
    }
    let mut kept = BytesMut::new();
    let mut upload_bytes: u64 = 0;
    while let Some(frame) =
        tokio::time::timeout(BODY_WAIT, body.frame()).await.map_err(|_| Unreadable::Stalled)?
    {
        let Ok(data) = frame.map_err(|_| Unreadable::Malformed)?.into_data() else { continue };
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

impl Shared {
    /// Until the fault that holds an answer back lets it go, or its time has come.
    async fn wait_until_let_go(&self, id: RequestId, until: Timestamp) {
        tokio::select! {
            () = self.wait_for(|emulator| !emulator.is_held_back(self.clock.now(), id)) => {}
            () = self.clock.reach(until) => {}
        }
    }

    async fn wait_for(&self, reached: impl Fn(&Emulator) -> bool) {
        loop {
            let changed = self.changed.notified();
            let mut changed = pin!(changed);
            // Registered before the look, so that a change between the look and the wait is not
            // missed.
            changed.as_mut().enable();
            if reached(&self.emulator.lock()) {
                return;
            }
            changed.await;
        }
    }
}

/// A request's place in the books; given back also when its client goes away.
struct InFlight {
    id: RequestId,
    shared: Arc<Shared>,
    end: End,
}

/// Why a request is no longer in flight.
enum End {
    Answered,
    ClientGone,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        {
            // The time is read under the lock, so that ends are noted in the order of their times.
            let mut emulator = self.shared.emulator.lock();
            let now = self.shared.clock.now();
            match self.end {
                End::Answered => emulator.finish(now, self.id),
                End::ClientGone => emulator.abandon(now, self.id),
            }
        }
        self.shared.changed.notify_waiters();
    }
}
