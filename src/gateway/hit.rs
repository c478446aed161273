//! Reads over HTTP/1.1, answered before the framework makes a session: one read, one buffer, one write.
//!
//! Only what cannot be misunderstood is taken here: a GET or HEAD that came in one piece, without a body and without a word about its connection. It is checked,
//! sorted, answered, dressed and concluded by the functions of every other request; what is different is who reads the bytes and who writes them. What has to be
//! asked for goes on in `asking.rs`; everything that is no read goes on to the framework's session (`service.rs`), with its bytes and with what was found out about
//! it, so that no stage runs twice.

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Method};
use memchr::memmem;
use pingora::http::RequestHeader;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use crate::clock::Timestamp;
use crate::telemetry::CacheOutcome;

use super::asking::{Asked, Asking};
use super::connection::{Came, Connection, Watch, now};
use super::door::{Door, FrontDoor, PREFACE_BEGINS};
use super::intake::{self, Wire};
use super::refuse::Refused;
use super::request::{Request, Sorted, Task};
use super::respond::encode;
use super::service::Known;
use super::store::Entry;

/// The most headers of a request that is looked at here; ordinary clients send about ten.
const HEADERS_MAX: usize = 32;
/// How a head ends.
const HEAD_ENDS: &[u8; 4] = b"\r\n\r\n";
/// The methods taken here, as they begin a request.
const METHODS: [(&[u8], Method); 2] = [(b"GET ", Method::GET), (b"HEAD ", Method::HEAD)];
/// Headers about the connection, or a body: whoever sends one is served by the session.
const NOT_HERE: [&[u8]; 6] = [b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer"];
/// An answer's buffer is kept for the connection's next one up to this size; ordinary answers are far smaller.
const BUFFER_KEPT_BYTES: usize = 16 * 1024;

/// How far a connection came before something else than a hit was asked for.
pub(super) enum Next {
    /// To its end.
    Over,
    /// No request came in time on a new connection, but its beginning.
    Late,
    /// HTTP/2 is spoken, or perhaps.
    Preface,
    /// A session is to serve the next request, whose head is there by `deadline` or never.
    Session {
        /// What is known of it already.
        known: Option<Box<Known>>,
        /// When its head must be there.
        deadline: Instant,
    },
}

/// How a connection has been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Not at all: its first request is not there yet.
    New,
    /// It carried a request before.
    Used,
}

impl FrontDoor {
    /// Answers what is asked on a connection as long as it is reads.
    pub(super) async fn reads(&self, connection: &mut Connection, watch: &mut Watch, mut age: Age, shutdown: &ShutdownWatch) -> Next {
        let listen = &self.http1.gateway.config.listen;
        let mut buffer = Vec::new();
        loop {
            let began = now();
            let until = began + if age == Age::New { listen.header_timeout } else { listen.idle_timeout };
            while is_too_short(connection.ahead()) {
                match connection.more(watch, until).await {
                    Came::Bytes => {}
                    Came::Late if age == Age::New && !connection.ahead().is_empty() => return Next::Late,
                    Came::Late | Came::Over => return Next::Over,
                }
            }
            if age == Age::New && connection.ahead().starts_with(PREFACE_BEGINS) {
                return Next::Preface;
            }
            let head = if *shutdown.borrow() { None } else { Head::taken_from(connection) };
            let deadline = || if age == Age::New { until } else { now() + listen.header_timeout };
            let Some(head) = head else { return Next::Session { known: None, deadline: deadline() } };
            let active = self.http1.gateway.active.enter();
            let (asked, raw) = match self.http1.look(head, &mut buffer) {
                Looked::Hit(request, body_bytes) => (Asked::Answered(request, body_bytes), None),
                Looked::Stale(asking, raw) => {
                    // Boxed: kept in line, its state would be moved about for every hit.
                    (Box::pin(self.http1.ask_here(connection, *asking, shutdown, &mut buffer)).await, Some(raw))
                }
                Looked::Other(known, raw) => (Asked::Known(known), Some(raw)),
            };
            match asked {
                Asked::Answered(request, body_bytes) => {
                    let is_written = connection.write(watch, &buffer, listen.body_timeout).await;
                    self.http1.conclude(request, is_written.then_some(body_bytes));
                    if !is_written {
                        return Next::Over;
                    }
                }
                Asked::Gone(request) => {
                    self.http1.conclude(request, None);
                    return Next::Over;
                }
                Asked::Known(known) => {
                    connection.put_back(&raw.unwrap_or_default());
                    return Next::Session { known: Some(known), deadline: deadline() };
                }
            }
            drop(active);
            buffer.clear();
            buffer.shrink_to(BUFFER_KEPT_BYTES);
            age = Age::Used;
        }
    }
}

/// Whether it cannot be told yet whether these are the first bytes of HTTP/2.
fn is_too_short(ahead: &[u8]) -> bool {
    ahead.len() < PREFACE_BEGINS.len() && PREFACE_BEGINS.starts_with(ahead)
}

/// What the store has for a request, with the bytes of its head where they are needed again.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and a box would cost each hit an allocation")]
enum Looked {
    /// The answer, which is in the buffer; with the bytes of its body.
    Hit(Request, u64),
    /// Nothing that may be served without asking.
    Stale(Box<Asking>, Bytes),
    /// It is no read.
    Other(Box<Known>, Bytes),
}

/// A request's head, and its bytes.
struct Head {
    request: RequestHeader,
    raw: Bytes,
}

impl Head {
    /// Takes the head at the beginning of what was read; takes nothing when it is not all there, or is not for here.
    fn taken_from(connection: &mut Connection) -> Option<Self> {
        let (_, method) = METHODS.iter().find(|(word, _)| connection.ahead().starts_with(word))?;
        let length = memmem::find(connection.ahead(), HEAD_ENDS)? + HEAD_ENDS.len();
        let raw = connection.take(length);
        let request = read(&raw, method);
        if request.is_none() {
            connection.put_back(&raw);
        }
        request.map(|request| Self { request, raw })
    }
}

/// A head whose bytes end where they should; `None` when it is not for here, or not well-formed.
fn read(raw: &Bytes, method: &Method) -> Option<RequestHeader> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let is_whole = parsed.parse(raw).ok()? == httparse::Status::Complete(raw.len());
    let path = parsed.path.filter(|path| is_whole && parsed.version == Some(1) && path.starts_with('/'))?;
    if parsed.headers.iter().any(is_not_for_here) {
        return None;
    }
    let mut request = RequestHeader::build_no_case(method.clone(), path.as_bytes(), Some(parsed.headers.len())).ok()?;
    for header in &*parsed.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        request.append_header(name, HeaderValue::from_maybe_shared(raw.slice_ref(header.value)).ok()?).ok()?;
    }
    Some(request)
}

/// Whether a header is about the connection or a body. Keeping a connection is what happens here in any case.
fn is_not_for_here(header: &httparse::Header<'_>) -> bool {
    let name = header.name.as_bytes();
    NOT_HERE.iter().any(|other| name.eq_ignore_ascii_case(other))
        || name.eq_ignore_ascii_case(CONNECTION.as_str().as_bytes()) && !header.value.eq_ignore_ascii_case(b"keep-alive")
}

impl Door {
    /// Writes the answer into `buffer` when it is a hit.
    fn look(&self, head: Head, buffer: &mut Vec<u8>) -> Looked {
        let Head { request: head, raw } = head;
        let parts: http::request::Parts = head.into();
        let intake = intake::check(&parts.method, self.gateway.methods(), &parts.uri, &parts.headers, Wire::Http1(&raw));
        let mut request = Request::new(&self.gateway, parts.method, parts.uri.path(), parts.headers);
        let span = request.span.clone();
        let _inside = span.enter();
        // Nothing is waited for from here to the answer's last byte in the buffer: one reading of the clock serves all of it.
        let now = request.arrived;
        let sorted = intake.map_err(Refused::Malformed).and_then(|intake| self.sort(&mut request, intake));
        let allowed = match sorted {
            Ok(Sorted::Allowed(allowed)) => allowed,
            sorted => return Looked::Other(Box::new(Known { request, sorted }), raw),
        };
        if let Task::Read(route) = &allowed.task {
            match self.stored(&mut request, &allowed.intake, route, now) {
                Ok(entry) => {
                    if let Some(body_bytes) = self.put(&entry, CacheOutcome::Hit, &mut request, now, buffer) {
                        return Looked::Hit(request, body_bytes);
                    }
                }
                Err(sought) => return Looked::Stale(Box::new(Asking { request, allowed, sought }), raw),
            }
        }
        Looked::Other(Box::new(Known { request, sorted: Ok(Sorted::Allowed(allowed)) }), raw)
    }

    /// Writes the answer that an entry is; returns the length of its body.
    pub(super) fn put(
        &self,
        entry: &Entry,
        cache: CacheOutcome,
        request: &mut Request,
        now: Timestamp,
        buffer: &mut Vec<u8>,
    ) -> Option<u64> {
        if let Some((status, body_bytes)) = self.gateway.put_entry(entry, &request.form(), &self.added(request, now), now, buffer) {
            request.outcome.status = status.as_u16();
            return Some(body_bytes);
        }
        let mut reply = self.gateway.reply_from_entry(entry, cache, &request.form(), now);
        self.dress(request, &mut reply);
        encode(&request.method, reply, buffer)
    }
}
