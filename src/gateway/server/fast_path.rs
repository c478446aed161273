//! The fast path: reads over HTTP/1.1 without a framework session; one read, buffer and write.
//!
//! Only unambiguous requests take it: a GET or HEAD that came in one piece, without a body and
//! without headers about its connection. The functions of every other request validate, classify,
//! answer and finish it; only reading and writing differ. A miss goes on in `miss.rs`. Everything
//! else goes to a session (`stages.rs`) with its bytes and the results so far, so that no stage
//! runs twice.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Method, Uri};
use memchr::memmem;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use crate::clock::{Timestamp, timer_now};
use crate::gateway::cache::store::Entry;
use crate::gateway::error::GatewayError;
use crate::gateway::request::validate::{self, Wire};
use crate::gateway::response::render::Compression;
use crate::gateway::server::connection::{Came, Connection, Watch};
use crate::gateway::server::handler::{Frontend, Handler, PREFACE_BEGINS};
use crate::gateway::server::header_memo::{HeaderMemo, Lines};
use crate::gateway::server::miss::{Asked, Asking};
use crate::gateway::server::request::{Classification, Known, Request, Task};

/// The end of the request lines that the fast path takes.
const LINE_ENDS: &[u8] = b" HTTP/1.1\r\n";
const LINE_END: &[u8] = b"\r\n";
const HEAD_ENDS: &[u8; 4] = b"\r\n\r\n";
/// The methods of the fast path, as they begin a request.
const METHODS: [(&[u8], Method); 2] = [(b"GET ", Method::GET), (b"HEAD ", Method::HEAD)];
/// The largest answer buffer that a connection keeps; ordinary answers are far smaller.
const BUFFER_KEPT_BYTES: usize = 16 * 1024;

/// The reason why a connection leaves the fast path.
pub(super) enum Next {
    Over,
    /// The bytes do not begin a request, or came too late.
    Unreadable(GatewayError),
    /// The bytes begin like HTTP/2.
    Preface,
    /// A session serves the next request; its head arrives by `deadline` or never.
    Session {
        known: Option<Box<Known>>,
        deadline: Instant,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// The first request has not arrived yet.
    New,
    Used,
}

impl Frontend {
    /// Serves a connection as long as its requests are reads, each under the current config.
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
                // Under the new config the same key may be unknown.
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
                    // Interim answers that the client has not taken yet.
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

/// True if the bytes are too few to tell HTTP/2 from HTTP/1.1.
fn is_too_short(ahead: &[u8]) -> bool {
    ahead.len() < PREFACE_BEGINS.len() && PREFACE_BEGINS.starts_with(ahead)
}

/// The result of a cache lookup on the fast path.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and a box would cost each hit an allocation"
)]
enum Looked {
    /// The answer is in the buffer; the number is the length of its body.
    Hit(Request, u64),
    /// A miss, or an entry that must be revalidated.
    Stale(Box<Asking>),
    Other(Box<Known>),
}

struct RequestLine {
    method: Method,
    target: Uri,
}

impl RequestLine {
    /// Splits off the request line. `None` if it is incomplete, malformed or not for the fast path.
    fn of(read: &[u8]) -> Option<(Self, &[u8])> {
        let (word, method) = METHODS.iter().find(|(word, _)| read.starts_with(word))?;
        let (line, rest) = read.split_at(memchr::memchr(b'\n', read)? + 1);
        let target = line.get(word.len()..)?.strip_suffix(LINE_ENDS)?;
        let target =
            PathAndQuery::try_from(target).ok().filter(|target| target.path().starts_with('/'))?;
        Some((Self { method: method.clone(), target: target.into() }, rest))
    }
}

/// Reads the header lines after a request line; `None` if incomplete or not for the fast path.
fn lines_of(rest: &[u8]) -> Option<Lines> {
    let length = if rest.starts_with(LINE_END) {
        LINE_END.len()
    } else {
        memmem::find(rest, HEAD_ENDS)? + HEAD_ENDS.len()
    };
    Lines::read(rest.get(..length)?)
}

impl Handler {
    /// Looks up the answer to the request at the beginning of `read`, and writes a hit into
    /// `buffer`. Returns the length of the head too.
    ///
    /// `said` holds the header memo of the connection and is replaced by that of this request.
    /// `None` if the request is not for the fast path.
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
        // Nothing waits up to the answer's last byte in the buffer: one clock reading is enough.
        let now = request.arrived;
        let classified = valid
            .map_err(GatewayError::Malformed)
            .and_then(|valid| self.classify(&mut request, valid));
        if let (Some(lines), Ok(Classification::Allowed(allowed))) = (new, &classified) {
            *said = HeaderMemo::new(lines, &allowed.valid.host, &allowed.client);
        }
        let allowed = match classified {
            Ok(Classification::Allowed(allowed)) => allowed,
            classified => {
                return Some((Looked::Other(Box::new(Known { request, classified })), length));
            }
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
                classified: Ok(Classification::Allowed(allowed)),
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
