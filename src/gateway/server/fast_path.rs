//! The fast path: reads over HTTP/1.1 without a framework session; one read, buffer and write.
//!
//! Only unambiguous requests take it: a GET or HEAD without a body and without headers about its
//! connection. The functions of every other request validate, classify, answer and finish it; only
//! reading and writing differ. A miss goes on in `reads.rs`. Everything else goes to a session
//! (`stages.rs`) with its bytes and the results so far, so that no stage runs twice.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Method, Uri, Version};
use memchr::memmem;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use crate::clock::timer_now;
use crate::decision::floor_rate::FloorRate;
use crate::gateway::error::GatewayError;
use crate::gateway::request::validate::{self, BodyFraming, Wire, absolute};
use crate::gateway::response::pacing::{Broken, unless_cut_off};
use crate::gateway::response::render::{BUFFERED_BYTES_MAX, Buffered};
use crate::gateway::server::connection::{Connection, HEAD_ENDS, Received, Watch};
use crate::gateway::server::handler::{Frontend, Handler, PREFACE};
use crate::gateway::server::head::HeadReader;
use crate::gateway::server::header_memo::{HeaderMemo, Lines};
use crate::gateway::server::reads::{Miss, Served};
use crate::gateway::server::request::{Classification, Known, Request, Transport};

/// The end of the request lines that the fast path takes.
const LINE_ENDS: &[u8] = b" HTTP/1.1\r\n";
const LINE_END: &[u8] = b"\r\n";
/// The methods of the fast path, as they begin a request.
const METHODS: [(&[u8], Method); 2] = [(b"GET ", Method::GET), (b"HEAD ", Method::HEAD)];
/// The largest answer buffer that a connection keeps; ordinary answers are far smaller.
const BUFFER_KEPT_BYTES: usize = 16 * 1024;

/// The reason why a connection leaves the fast path.
pub(super) enum Next {
    Over,
    /// The bytes do not begin a request, are too many, or came too late.
    Unreadable(GatewayError),
    Preface,
    /// A session serves the next request. The connection has its whole head and yields no more than
    /// this request.
    Session(Option<Box<Known>>),
}

/// The result of a request that the fast path took.
#[expect(clippy::large_enum_variant, reason = "a box would cost each hit an allocation")]
enum Lookup {
    /// A hit, or a request for the session.
    Served(Served),
    Miss(Box<Miss>),
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
        let mut memo = None;
        let mut rate = handler.floor_rate();
        loop {
            let listen = &handler.gateway.env.config.listen;
            let now = timer_now();
            connection.turn.end(now);
            let until =
                now + if age == Age::New { listen.header_timeout } else { listen.idle_timeout };
            if let Some(next) = first_bytes(connection, watch, age, until).await {
                return next;
            }
            if let Some(renewed) = self.renewed(handler) {
                *handler = renewed;
                // Under the new config the same key may be unknown.
                memo = None;
                rate = handler.floor_rate();
            }
            let listen = &handler.gateway.env.config.listen;
            let deadline =
                if age == Age::New { until } else { timer_now() + listen.header_timeout };
            let looked_up = handler
                .looked_up(connection, watch, &mut memo, &mut buffer, deadline, shutdown)
                .await;
            let (lookup, whole) = match looked_up {
                Ok(looked_up) => looked_up,
                Err(next) => return next,
            };
            let Some((lookup, head_bytes)) = lookup else {
                return for_a_session(connection, whole);
            };
            let mut served = match lookup {
                Lookup::Served(served) => served,
                Lookup::Miss(miss) => {
                    handler.fetch_for_connection(connection, *miss, shutdown, &mut buffer).await
                }
            };
            // For a session, the buffer has interim answers that the client has not taken yet.
            let sent = handler.send(connection, watch, &mut rate, &mut buffer, &mut served).await;
            let mut request = match served {
                Served::Buffered(request, _) if sent.is_ok() => {
                    request.finish();
                    connection.used(head_bytes);
                    buffer.clear();
                    buffer.shrink_to(BUFFER_KEPT_BYTES);
                    age = Age::Used;
                    continue;
                }
                Served::Known(known) if sent.is_ok() => {
                    connection.begin(head_bytes, Some(BodyFraming::None));
                    return Next::Session(Some(known));
                }
                Served::Buffered(request, _) | Served::ClientGone(request) => request,
                Served::Known(known) => known.request,
            };
            if let Some(reason) = sent.err().and_then(Broken::reason) {
                request.cut_off(reason);
            }
            request.finish();
            return Next::Over;
        }
    }
}

/// Waits for a request's first bytes, and for as many as tell HTTP/2 from HTTP/1.1. Returns the
/// reason, if the fast path ends here. One empty line before a request is ignored (RFC 9112 §2.2).
async fn first_bytes(
    connection: &mut Connection,
    watch: &mut Watch,
    age: Age,
    until: Instant,
) -> Option<Next> {
    let mut may_skip = true;
    loop {
        let ahead = connection.ahead();
        if may_skip && ahead.starts_with(LINE_END) {
            connection.used(LINE_END.len());
            may_skip = false;
            continue;
        }
        let is_first = age == Age::New && may_skip;
        if is_first && ahead.starts_with(PREFACE) {
            return Some(Next::Preface);
        }
        let may_be_more =
            may_skip && LINE_END.starts_with(ahead) || is_first && PREFACE.starts_with(ahead);
        if !(ahead.is_empty() || may_be_more) {
            return None;
        }
        if let Some(next) = more(connection, watch, until).await {
            return Some(next);
        }
    }
}

/// Reads until the head at the beginning of the buffer is whole, and returns its length.
async fn whole_head(
    connection: &mut Connection,
    watch: &mut Watch,
    deadline: Instant,
) -> Result<usize, Next> {
    let mut reader = HeadReader::default();
    loop {
        match reader.length(connection.ahead()) {
            Ok(Some(head_bytes)) => return Ok(head_bytes),
            Ok(None) => {}
            Err(fault) => return Err(Next::Unreadable(GatewayError::Malformed(fault))),
        }
        if let Some(next) = more(connection, watch, deadline).await {
            return Err(next);
        }
    }
}

/// Reads once. Returns the reason, if no request comes any more.
async fn more(connection: &mut Connection, watch: &mut Watch, deadline: Instant) -> Option<Next> {
    match connection.more(watch, deadline).await {
        Received::Bytes => None,
        Received::TimedOut if !connection.ahead().is_empty() => {
            Some(Next::Unreadable(GatewayError::HeadTimeout))
        }
        Received::Stopped if !connection.ahead().is_empty() => {
            Some(Next::Unreadable(GatewayError::Draining))
        }
        Received::TimedOut | Received::Closed | Received::Stopped => Some(Next::Over),
    }
}

/// Leaves a request to a session, unless its first line is malformed. The session refuses an
/// ambiguous framing.
fn for_a_session(connection: &mut Connection, head_bytes: usize) -> Next {
    let head = connection.ahead().get(..head_bytes).unwrap_or_default();
    if let Err(malformed) = validate::check_line(head) {
        return Next::Unreadable(GatewayError::Malformed(malformed));
    }
    let framing = validate::framing_of(head).ok();
    let head_bytes = match absolute::with_host_of_target(head) {
        Some(corrected) => connection.replace(head_bytes, &corrected),
        None => head_bytes,
    };
    connection.begin(head_bytes, framing);
    Next::Session(None)
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
    /// Looks up the request at the beginning of the connection, and reads on while its head is
    /// unfinished. Returns the length of the head too, if it was needed.
    async fn looked_up(
        &self,
        connection: &mut Connection,
        watch: &mut Watch,
        memo: &mut Option<HeaderMemo>,
        buffer: &mut Vec<u8>,
        deadline: Instant,
        shutdown: &ShutdownWatch,
    ) -> Result<(Option<(Lookup, usize)>, usize), Next> {
        let mut whole = None;
        loop {
            if !connection.turn.begin() {
                // Evicted to make room for another connection.
                return Err(Next::Over);
            }
            // Only a session says that an answer is the connection's last.
            let lookup = if *shutdown.borrow() && connection.ends_with_head() {
                None
            } else {
                self.look_up(connection, memo, buffer)
            };
            if lookup.is_some() || whole.is_some() {
                return Ok((lookup, whole.unwrap_or_default()));
            }
            if !self.slot.is_known() {
                // Part of a stranger's head is no request that must not be cut off.
                connection.turn.end(timer_now());
            }
            // Its head has begun: a hand-over waits for the rest.
            self.awaited.begin();
            let at_first = connection.ahead().len();
            whole = Some(whole_head(connection, watch, deadline).await?);
            if connection.ahead().len() == at_first {
                // It was whole before, and is for a session.
                let is_begun = connection.turn.begin();
                return is_begun.then(|| (None, whole.unwrap_or_default())).ok_or(Next::Over);
            }
        }
    }

    /// Writes the buffer, and the rest of a long body through it, unless others need its memory
    /// meanwhile.
    async fn send(
        &self,
        connection: &mut Connection,
        watch: &mut Watch,
        rate: &mut FloorRate,
        buffer: &mut Vec<u8>,
        served: &mut Served,
    ) -> Result<(), Broken> {
        let answer = match served {
            Served::ClientGone(_) => return Err(Broken::Lost),
            Served::Known(_) => None,
            Served::Buffered(request, answer) => Some((request, answer)),
        };
        let Some((request, Buffered { body_bytes, rest })) = answer else {
            return connection.write(watch, rate, buffer).await;
        };
        let Some(rest) = rest else {
            connection.write(watch, rate, buffer).await?;
            request.outcome.bytes_out = *body_bytes;
            return Ok(());
        };
        let reading = self.reading(request, rest.text());
        let bytes_out = &mut request.outcome.bytes_out;
        let written = async {
            loop {
                connection.write(watch, rate, buffer).await?;
                let left = rest.bytes_left();
                *bytes_out = *body_bytes - left as u64;
                if left == 0 {
                    return Ok(());
                }
                buffer.clear();
                rest.fill(buffer, BUFFERED_BYTES_MAX);
            }
        };
        match &reading {
            Some(reading) => unless_cut_off(reading, written).await.flatten(),
            None => written.await,
        }
    }

    /// Looks up the answer to the request at the beginning of `connection`, and writes a hit into
    /// `buffer`. Returns the result and the length of the head.
    ///
    /// `memo` is that of the connection and is replaced by that of this request. `None` if the
    /// request is not for the fast path.
    fn look_up(
        &self,
        connection: &Connection,
        memo: &mut Option<HeaderMemo>,
        buffer: &mut Vec<u8>,
    ) -> Option<(Lookup, usize)> {
        let read = connection.ahead();
        let (RequestLine { method, target }, rest) = RequestLine::of(read)?;
        let known = memo.as_ref().filter(|memo| memo.lines.begin(rest));
        let new = if known.is_none() { Some(lines_of(rest)?) } else { None };
        let lines = known.map(|memo| &memo.lines).or(new.as_ref())?;
        let head = read.get(..read.len() - rest.len() + lines.len())?;
        let valid = match known {
            Some(memo) => validate::check_again(&method, &target, head, &memo.known.host),
            None => self.check(&method, &target, &lines.headers, Wire::Http1(head)),
        };
        let headers = Arc::clone(&lines.headers);
        let transport = Transport {
            scheme: self.scheme,
            version: Version::HTTP_11,
            client_address: connection.client_address(),
        };
        let mut request = Request::new(&self.gateway, transport, method, &target, headers);
        request.identity.known = known.map(|memo| Arc::clone(&memo.known));
        let span = request.span.as_tracing().clone();
        let _inside = span.enter();
        // Nothing waits up to the answer's last byte in the buffer: one clock reading is enough.
        let now = request.arrival.at;
        let classified = valid
            .map_err(GatewayError::Malformed)
            .and_then(|valid| self.classify(&mut request, valid));
        let Ok(Classification::Read(routed)) = classified else {
            return Some((Lookup::Served(Served::known(request, classified)), head.len()));
        };
        if let (Some(lines), Some(identified)) = (new, &request.identity.identified) {
            *memo = HeaderMemo::new(lines, &routed.from.valid.host, identified);
        }
        let lookup = match self.stored(&mut request, &routed, now) {
            Err(lookup) => Lookup::Miss(Box::new(Miss { request, read: routed, lookup })),
            Ok(entry) => Lookup::Served(match self.put(entry, &mut request, now, buffer) {
                Ok(buffered) => Served::Buffered(request, buffered),
                Err(_) => Served::known(request, Ok(Classification::Read(routed))),
            }),
        };
        Some((lookup, head.len()))
    }
}
