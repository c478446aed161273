//! Reads over HTTP/1.1, answered before the framework makes a session: one read, one buffer, one
//! write.
//!
//! Only what cannot be misunderstood is taken here: a GET or HEAD that came in one piece, without a
//! body and without a word about its connection. It is checked, sorted, answered, dressed and
//! concluded by the functions of every other request; what is different is who reads the bytes and
//! who writes them. What has to be asked for goes on in `asking.rs`; everything that is no read
//! goes on to the framework's session (`service.rs`), with its bytes and with what was found out
//! about it, so that no stage runs twice.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Method, Uri};
use memchr::memmem;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use crate::clock::Timestamp;

use crate::clock::timer_now;
use crate::gateway::cache::store::Entry;
use crate::gateway::error::GatewayError;
use crate::gateway::request::validate::{self, Wire};
use crate::gateway::response::render::Compression;
use crate::gateway::server::connection::{Came, Connection, Watch};
use crate::gateway::server::handler::{Frontend, Handler, PREFACE_BEGINS};
use crate::gateway::server::header_memo::{HeaderMemo, Lines};
use crate::gateway::server::miss::{Asked, Asking};
use crate::gateway::server::request::Known;
use crate::gateway::server::request::{Classification, Request, Task};

/// How the request lines that are taken here end.
const LINE_ENDS: &[u8] = b" HTTP/1.1\r\n";
/// How any line ends.
const LINE_END: &[u8] = b"\r\n";
/// How a head ends.
const HEAD_ENDS: &[u8; 4] = b"\r\n\r\n";
/// The methods taken here, as they begin a request.
const METHODS: [(&[u8], Method); 2] = [(b"GET ", Method::GET), (b"HEAD ", Method::HEAD)];
/// An answer's buffer is kept for the connection's next one up to this size; ordinary answers are
/// far smaller.
const BUFFER_KEPT_BYTES: usize = 16 * 1024;

/// How far a connection came before something else than a hit was asked for.
pub(super) enum Next {
    /// To its end.
    Over,
    /// What came is not the beginning of a request, or came too late to be one.
    Unreadable(GatewayError),
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

impl Frontend {
    /// Answers what is asked on a connection as long as it is reads; `door` goes by the config in
    /// force when each of them begins.
    pub(super) async fn reads(
        &self,
        handler: &mut Handler,
        connection: &mut Connection,
        watch: &mut Watch,
        mut age: Age,
        shutdown: &ShutdownWatch,
    ) -> Next {
        let mut buffer = Vec::new();
        let mut said = None;
        loop {
            let began = timer_now();
            let listen = &handler.gateway.env.config.listen;
            let until =
                began + if age == Age::New { listen.header_timeout } else { listen.idle_timeout };
            while is_too_short(connection.ahead()) {
                match connection.more(watch, until).await {
                    Came::Bytes => {}
                    Came::Late if age == Age::New && !connection.ahead().is_empty() => {
                        return Next::Unreadable(GatewayError::HeadTimeout);
                    }
                    Came::Late | Came::Over => return Next::Over,
                }
            }
            if age == Age::New && connection.ahead().starts_with(PREFACE_BEGINS) {
                return Next::Preface;
            }
            if self.renew(handler) {
                // Whoever it was by the config before may be nobody now.
                said = None;
            }
            let listen = &handler.gateway.env.config.listen;
            let active = handler.gateway.env.active.enter();
            let looked = if *shutdown.borrow() {
                None
            } else {
                handler.look(connection.ahead(), &mut said, &mut buffer)
            };
            let deadline =
                || if age == Age::New { until } else { timer_now() + listen.header_timeout };
            let Some((looked, head_bytes)) = looked else {
                let deadline = deadline();
                return if connection.has_line(watch, deadline).await
                    && let Err(malformed) = validate::check_line(connection.ahead())
                {
                    Next::Unreadable(GatewayError::Malformed(malformed))
                } else {
                    Next::Session { known: None, deadline }
                };
            };
            let asked = match looked {
                Looked::Hit(request, body_bytes) => Asked::Answered(request, body_bytes),
                Looked::Stale(asking) => {
                    handler.ask_here(connection, *asking, shutdown, &mut buffer).await
                }
                Looked::Other(known) => Asked::Known(known),
            };
            match asked {
                Asked::Answered(request, body_bytes) => {
                    let is_written = connection.write(watch, &buffer, listen.body_timeout).await;
                    handler.finish(request, is_written.then_some(body_bytes));
                    if !is_written {
                        return Next::Over;
                    }
                }
                Asked::Gone(request) => {
                    handler.finish(request, None);
                    return Next::Over;
                }
                Asked::Known(known) => {
                    // Informational answers that the client has not taken yet.
                    if !connection.write(watch, &buffer, listen.body_timeout).await {
                        handler.finish(known.request, None);
                        return Next::Over;
                    }
                    return Next::Session { known: Some(known), deadline: deadline() };
                }
            }
            drop(active);
            connection.used(head_bytes);
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

/// What the store has for a request.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and a box would cost each hit an allocation"
)]
enum Looked {
    /// The answer, which is in the buffer; with the bytes of its body.
    Hit(Request, u64),
    /// Nothing that may be served without asking.
    Stale(Box<Asking>),
    /// It is no read.
    Other(Box<Known>),
}

/// A request line.
struct RequestLine {
    method: Method,
    target: Uri,
}

impl RequestLine {
    /// The line, and what was read after it; `None` when it is not all there, is not for here, or
    /// is not well-formed.
    fn of(read: &[u8]) -> Option<(Self, &[u8])> {
        let (word, method) = METHODS.iter().find(|(word, _)| read.starts_with(word))?;
        let (line, rest) = read.split_at(memchr::memchr(b'\n', read)? + 1);
        let target = line.get(word.len()..)?.strip_suffix(LINE_ENDS)?;
        let target =
            PathAndQuery::try_from(target).ok().filter(|target| target.path().starts_with('/'))?;
        Some((Self { method: method.clone(), target: target.into() }, rest))
    }
}

/// The header lines at the beginning of what was read after a request line; `None` when they are
/// not all there, or not for here.
fn lines_of(rest: &[u8]) -> Option<Lines> {
    let length = if rest.starts_with(LINE_END) {
        LINE_END.len()
    } else {
        memmem::find(rest, HEAD_ENDS)? + HEAD_ENDS.len()
    };
    Lines::read(rest.get(..length)?)
}

impl Handler {
    /// Looks for what answers the request at the beginning of what was read, and writes it into
    /// `buffer` when it is a hit; with the length of its head. `said` is what the connection's last
    /// request said, and becomes what this one says. `None` for what is not for here.
    fn look(
        &self,
        read: &[u8],
        said: &mut Option<HeaderMemo>,
        buffer: &mut Vec<u8>,
    ) -> Option<(Looked, usize)> {
        let (RequestLine { method, target }, rest) = RequestLine::of(read)?;
        let line_length = read.len() - rest.len();
        let again = said.as_ref().and_then(|said| Some((said, said.again(rest)?)));
        let (mut request, valid, new, length) = if let Some((said, lines)) = again {
            let length = line_length + lines.len();
            let valid =
                validate::check_again(&method, &target, read.get(..length)?, &said.known.host);
            let mut request =
                Request::new(&self.gateway, method, target.path(), Arc::clone(&lines.headers));
            request.identity.known = Some(Arc::clone(&said.known));
            (request, valid, None, length)
        } else {
            let lines = lines_of(rest)?;
            let length = line_length + lines.len();
            let valid = validate::check(
                &method,
                self.gateway.router.methods(),
                &target,
                &lines.headers,
                Wire::Http1(read.get(..length)?),
            );
            (
                Request::new(&self.gateway, method, target.path(), Arc::clone(&lines.headers)),
                valid,
                Some(lines),
                length,
            )
        };
        let span = request.span.clone();
        let _inside = span.enter();
        // Nothing is waited for from here to the answer's last byte in the buffer: one reading of
        // the clock serves all of it.
        let now = request.arrived;
        let sorted =
            valid.map_err(GatewayError::Malformed).and_then(|valid| self.sort(&mut request, valid));
        if let (Some(lines), Ok(Classification::Allowed(allowed))) = (new, &sorted) {
            *said = HeaderMemo::new(lines, &allowed.valid.host, &allowed.client);
        }
        let allowed = match sorted {
            Ok(Classification::Allowed(allowed)) => allowed,
            sorted => return Some((Looked::Other(Box::new(Known { request, sorted })), length)),
        };
        if let Task::Read(route) = &allowed.task {
            match self.stored(&mut request, &allowed.valid, route, now) {
                Ok(entry) => {
                    if let Ok(body_bytes) = self.put(entry, &mut request, now, buffer) {
                        return Some((Looked::Hit(request, body_bytes), length));
                    }
                }
                Err(lookup) => {
                    return Some((
                        Looked::Stale(Box::new(Asking { request, allowed, lookup })),
                        length,
                    ));
                }
            }
        }
        Some((
            Looked::Other(Box::new(Known {
                request,
                sorted: Ok(Classification::Allowed(allowed)),
            })),
            length,
        ))
    }

    /// Renders a stored answer into the buffer. Returns the bytes of its body, or the entry when
    /// that is for the session: its body has to be compressed first, elsewhere.
    pub(super) fn put(
        &self,
        entry: Arc<Entry>,
        request: &mut Request,
        now: Timestamp,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, Arc<Entry>> {
        let responder = &self.gateway.responder;
        let Some(selection) = responder.select(&entry, &request.form(), Compression::AtOnce) else {
            return Err(entry);
        };
        let added = self.gateway_headers(request, now);
        let (status, body_bytes) =
            responder.render_into(entry, selection, &request.form(), added, now, buffer);
        request.outcome.status = status.as_u16();
        Ok(body_bytes)
    }
}
