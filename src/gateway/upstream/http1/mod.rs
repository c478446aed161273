//! One upstream connection in HTTP/1.1: requests out, answers in (RFC 9112).
//!
//! It replaces the framework's client session, which keeps each header in two maps and copies each
//! head three times. For a 304 that outweighs the rest of the work. Left out: connecting,
//! deadlines, retries, pooling and upgrades.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::gateway::http::interim::{Interim, Interims};
use crate::gateway::http::{chunks::ChunkReader, headers::list_items};
use crate::gateway::upstream::connect::{Stream, refused_certificate};

/// Size of one read: a head with a small body.
const READ_BYTES: usize = 4 * 1024;
const BODY_READ_BYTES: usize = 64 * 1024;
/// The longest head of an answer. Chosen here: eight times a request's limit.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// The most headers of an answer, in the same proportion.
const HEADERS_MAX: usize = 256;

/// The most interim answers. Chosen here: hints, and a sign of life a second during 30 s.
const INTERIM_MAX: usize = 32;
/// The most bytes of their heads together. Chosen here: twice a request's limit.
const INTERIM_BYTES_MAX: usize = 64 * 1024;

/// Non-standard names in most of the service's answers, in both spellings; interned, because each
/// would otherwise be allocated per answer.
const USUAL: [&str; 11] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-resource",
    "x-ratelimit-used",
    "x-github-request-id",
    "x-github-media-type",
    "x-service-request-id",
    "x-service-media-type",
    "x-oauth-scopes",
    "x-accepted-oauth-scopes",
];

static USUAL_NAMES: LazyLock<[HeaderName; USUAL.len()]> =
    LazyLock::new(|| USUAL.map(HeaderName::from_static));

/// The reason why a connection is unusable, in the words of the log.
#[derive(Debug)]
pub enum Broken {
    /// The upstream may have executed the request.
    Lost(String),
    /// The upstream has ended the handshake, and read no request.
    Refused(String),
}

impl Broken {
    pub fn into_text(self) -> String {
        match self {
            Self::Lost(text) | Self::Refused(text) => text,
        }
    }
}

impl From<&str> for Broken {
    fn from(what: &str) -> Self {
        Self::Lost(what.into())
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        if let Some(refused) = refused_certificate(&error) {
            return Self::Refused(refused);
        }
        // Without a number it is not the system's, and may quote another crate's documents.
        let of_system = error.raw_os_error().is_some();
        Self::Lost(if of_system { error.to_string() } else { error.kind().to_string() })
    }
}

pub struct Connection {
    stream: Stream,
    /// The address at the other end, if the stream is of the network.
    peer: Option<IpAddr>,
    read: BytesMut,
    /// The bytes of the request's body still to be sent.
    outgoing: u64,
    is_head: bool,
    incoming: Incoming,
    /// True if the upstream lets another request follow.
    persists: bool,
    /// The interim answers of this exchange: their number and the bytes of their heads.
    informational: (usize, usize),
}

pub type AnswerHead = (StatusCode, HeaderMap);

enum Incoming {
    /// With this many bytes to come; 0: read completely.
    Length(u64),
    Chunks(Box<ChunkReader>),
    UntilClosed,
}

enum Step {
    Sent(usize),
    Unsendable(Broken),
    /// The upstream sent bytes.
    Received,
}

impl Connection {
    /// Wraps a stream without an exchange in progress.
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            peer: None,
            read: BytesMut::new(),
            outgoing: 0,
            is_head: false,
            incoming: Incoming::Length(0),
            persists: true,
            informational: (0, 0),
        }
    }

    /// Notes the address at the other end.
    pub fn with_peer(self, peer: IpAddr) -> Self {
        Self { peer: Some(peer), ..self }
    }

    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Sends a request: its head in wire format, and a body as [`Connection::send_body`] does.
    pub async fn send(
        &mut self,
        method: &Method,
        head: &[u8],
        body: &[u8],
        outgoing: u64,
        interims: Option<&Interims>,
    ) -> Result<Option<AnswerHead>, Broken> {
        self.is_head = *method == Method::HEAD;
        self.outgoing = outgoing;
        self.informational = (0, 0);
        // The connection is busy until an answer was read completely.
        self.incoming = Incoming::UntilClosed;
        if let Err(error) = self.stream.write_all(head).await {
            return self.answered_early(error.into(), interims).await.map(Some);
        }
        if !body.is_empty() {
            return self.send_body(body, interims).await;
        }
        match self.stream.flush().await {
            Ok(()) => Ok(None),
            Err(error) => self.answered_early(error.into(), interims).await.map(Some),
        }
    }

    /// Sends a piece of the body. While the upstream takes none, its bytes are read. A final answer
    /// ends the exchange, and no request may follow on the connection (RFC 9112 §9.3, §9.5).
    pub async fn send_body(
        &mut self,
        piece: &[u8],
        interims: Option<&Interims>,
    ) -> Result<Option<AnswerHead>, Broken> {
        if piece.is_empty() {
            return Ok(None);
        }
        let left = self
            .outgoing
            .checked_sub(piece.len() as u64)
            .ok_or("the body is longer than was said")?;
        let early = self.send_piece(piece, interims).await?;
        if early.is_none() {
            self.outgoing = left;
        }
        Ok(early)
    }

    /// Sends this piece, or as much of it as the upstream takes before it answers.
    async fn send_piece(
        &mut self,
        piece: &[u8],
        interims: Option<&Interims>,
    ) -> Result<Option<AnswerHead>, Broken> {
        // The empty part at the end flushes buffers.
        for part in [piece, &[]] {
            let mut rest = part;
            loop {
                match self.step(rest).await? {
                    Step::Sent(count) => rest = rest.get(count..).unwrap_or_default(),
                    Step::Unsendable(broken) => {
                        return self.answered_early(broken, interims).await.map(Some);
                    }
                    Step::Received => {
                        if let Some(head) = self.final_head(interims)? {
                            return self.begin_body(head).map(Some);
                        }
                        continue;
                    }
                }
                if rest.is_empty() {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Reads what an upstream has sent that takes no more: an answer, or the alert by which it
    /// refuses the certificate.
    async fn answered_early(
        &mut self,
        unsendable: Broken,
        interims: Option<&Interims>,
    ) -> Result<AnswerHead, Broken> {
        match self.read_head(interims).await {
            Err(Broken::Lost(_)) => Err(unsendable),
            other => other,
        }
    }

    /// One send step; while the upstream takes nothing, it reads.
    async fn step(&mut self, rest: &[u8]) -> Result<Step, Broken> {
        let Self { stream, read, .. } = self;
        poll_fn(|context| {
            let to = Pin::new(&mut *stream);
            let sent = if rest.is_empty() {
                to.poll_flush(context).map_ok(|()| 0)
            } else {
                to.poll_write(context, rest)
            };
            if let Poll::Ready(sent) = sent {
                return Poll::Ready(Ok(match sent {
                    Ok(0) if !rest.is_empty() => {
                        Step::Unsendable("nothing more can be sent".into())
                    }
                    Ok(count) => Step::Sent(count),
                    Err(error) => Step::Unsendable(error.into()),
                }));
            }
            read.reserve(READ_BYTES);
            pin!(stream.read_buf(read)).poll(context).map(|received| match received? {
                0 => Err("the connection was closed".into()),
                _ => Ok(Step::Received),
            })
        })
        .await
    }

    /// Reads the head of the answer. Interim answers (1xx) before it go to `interims`, or are
    /// dropped. A 100 is dropped, because no request sends `Expect`.
    pub async fn read_head(&mut self, interims: Option<&Interims>) -> Result<AnswerHead, Broken> {
        loop {
            if let Some(head) = self.final_head(interims)? {
                return self.begin_body(head);
            }
            if !self.fill(READ_BYTES).await? {
                return Err("the connection was closed".into());
            }
        }
    }

    fn final_head(&mut self, interims: Option<&Interims>) -> Result<Option<Head>, Broken> {
        // The parser must not see empty input.
        while !self.read.is_empty() {
            match self.take_head()? {
                Some(head) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err("the protocol was switched".into());
                }
                Some(Head { status, headers, bytes: head_bytes, .. })
                    if status.is_informational() =>
                {
                    let (count, bytes) = &mut self.informational;
                    (*count, *bytes) = (*count + 1, *bytes + head_bytes);
                    if *count > INTERIM_MAX || *bytes > INTERIM_BYTES_MAX {
                        return Err(
                            "there are too many informational answers before the final one".into(),
                        );
                    }
                    if let Some(interims) = interims.filter(|_| status != StatusCode::CONTINUE) {
                        interims.push(Interim { status, headers });
                    }
                }
                Some(head) => return Ok(Some(head)),
                None if self.read.len() > HEAD_BYTES_MAX => {
                    return Err("the head of the answer is too large".into());
                }
                None => break,
            }
        }
        Ok(None)
    }

    /// Returns the next piece of the answer's body; `None` at its end.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            let wanted = match self.incoming {
                Incoming::Length(0) => return Ok(None),
                Incoming::Length(left) => usize::try_from(left).unwrap_or(usize::MAX),
                Incoming::Chunks(_) | Incoming::UntilClosed => usize::MAX,
            };
            if self.read.is_empty() && !self.fill(wanted.clamp(READ_BYTES, BODY_READ_BYTES)).await?
            {
                if matches!(self.incoming, Incoming::UntilClosed) {
                    self.incoming = Incoming::Length(0);
                    return Ok(None);
                }
                return Err("the answer broke off".into());
            }
            let piece = self.take(wanted);
            let piece = match &mut self.incoming {
                Incoming::Chunks(reader) => {
                    let (data, rest) = reader
                        .push(piece)
                        .map_err(|_| "the answer's chunks are not well-formed")?;
                    // Bytes after the end belong to no request.
                    self.persists &= rest.is_empty();
                    if reader.is_done() {
                        self.incoming = Incoming::Length(0);
                    }
                    data
                }
                Incoming::Length(left) => {
                    *left = left.saturating_sub(piece.len() as u64);
                    piece
                }
                Incoming::UntilClosed => piece,
            };
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }

    /// The rest of the body, if the head declares its length.
    pub fn body_bytes_left(&self) -> Option<u64> {
        match self.incoming {
            Incoming::Length(left) => Some(left),
            Incoming::Chunks(_) | Incoming::UntilClosed => None,
        }
    }

    /// True if another request may follow: the answer was read completely and nothing follows it.
    pub fn is_reusable(&self) -> bool {
        self.persists
            && self.read.is_empty()
            && self.body_bytes_left() == Some(0)
            && self.outgoing == 0
    }

    /// Drops a buffer that a long body has enlarged; otherwise each idle connection would keep it.
    pub fn shrink_buffer(&mut self) {
        if self.read.capacity() > 2 * READ_BYTES {
            self.read = BytesMut::new();
        }
    }

    /// True if there is nothing to read. An idle connection with readable bytes is unusable.
    pub fn is_silent(&mut self) -> bool {
        self.stream.read(&mut [0]).now_or_never().is_none()
    }

    /// Reads the available bytes, at most about `bytes`; false at the end of the stream.
    async fn fill(&mut self, bytes: usize) -> Result<bool, Broken> {
        self.read.reserve(bytes);
        Ok(self.stream.read_buf(&mut self.read).await? > 0)
    }

    /// Copies, because a stored piece must not keep the whole buffer alive.
    fn take(&mut self, bytes_max: usize) -> Bytes {
        let here = bytes_max.min(self.read.len());
        let piece = Bytes::copy_from_slice(self.read.get(..here).unwrap_or_default());
        self.read.advance(here);
        piece
    }

    fn take_head(&mut self) -> Result<Option<Head>, Broken> {
        let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        // As lenient as the framework's session.
        let mut parser = httparse::ParserConfig::default();
        parser
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true);
        let length =
            match parser.parse_response_with_uninit_headers(&mut parsed, &self.read, &mut lines) {
                Ok(httparse::Status::Complete(length)) => length,
                Ok(httparse::Status::Partial) => return Ok(None),
                Err(error) => {
                    return Err(Broken::Lost(format!(
                        "the head of the answer is not well-formed: {error}"
                    )));
                }
            };
        let status = parsed
            .code
            .and_then(|code| StatusCode::from_u16(code).ok())
            .ok_or("the answer's status is none")?;
        let is_http10 = parsed.version == Some(0);
        // One copy that all values share.
        let head = Bytes::copy_from_slice(self.read.get(..length).unwrap_or_default());
        let start = self.read.as_ptr().addr();
        let mut headers = HeaderMap::with_capacity(parsed.headers.len());
        for line in parsed.headers.iter() {
            let name = name_of(line.name).ok_or("the answer has a header without a name")?;
            let at = line.value.as_ptr().addr().wrapping_sub(start);
            let value = if memchr::memchr2(b'\r', b'\n', line.value).is_some() {
                HeaderValue::from_bytes(&unfolded(line.value))
            } else if at <= head.len() && line.value.len() <= head.len() - at {
                HeaderValue::from_maybe_shared(head.slice(at..at + line.value.len()))
            } else {
                HeaderValue::from_bytes(line.value)
            };
            headers.append(name, value.map_err(|_| "the answer has a header that cannot be read")?);
        }
        self.read.advance(length);
        Ok(Some(Head { status, headers, bytes: length, is_http10 }))
    }

    /// Determines the framing of the body (RFC 9112 §6.3) and the connection's persistence (§9.3).
    fn begin_body(&mut self, head: Head) -> Result<AnswerHead, Broken> {
        let Head { status, mut headers, is_http10, .. } = head;
        let has_option = |what: &str| {
            list_items(&headers, header::CONNECTION).any(|item| item.eq_ignore_ascii_case(what))
        };
        self.persists = if is_http10 { has_option("keep-alive") } else { !has_option("close") };
        let length = content_length(&headers)?;
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let coding = (codings.next(), codings.next());
        self.incoming = match coding {
            _ if self.is_head
                || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) =>
            {
                Incoming::Length(0)
            }
            (Some(coding), None)
                if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") =>
            {
                headers.remove(header::CONTENT_LENGTH);
                // HTTP/1.0 has no chunks (§6.1).
                self.persists &= !is_http10;
                Incoming::Chunks(Box::default())
            }
            (Some(coding), second) if second.is_some() || names_chunks(coding) => {
                return Err("the answer has transfer codings that were not asked for".into());
            }
            // For an unknown coding too, a length or the connection's end ends the body (§6.3).
            (coding, _) => {
                self.persists &= coding.is_none() && length.is_some();
                length.map_or(Incoming::UntilClosed, Incoming::Length)
            }
        };
        Ok((status, headers))
    }
}

struct Head {
    status: StatusCode,
    headers: HeaderMap,
    bytes: usize,
    is_http10: bool,
}

/// Parses `Content-Length`. Equal repetitions count once (RFC 9110 §8.6); contradictory ones are an
/// error, because the end of the body is unclear.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Broken> {
    let unclear = "the answer's length is not clear";
    // Chunks override any length.
    if headers.get_all(header::TRANSFER_ENCODING).iter().any(names_chunks) {
        return Ok(None);
    }
    let mut length = None;
    for line in headers.get_all(header::CONTENT_LENGTH) {
        for text in line.to_str().map_err(|_| unclear)?.split(',').map(str::trim) {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let stated: u64 = text.parse().ok().filter(|_| is_plain).ok_or(unclear)?;
            if length.is_some_and(|length| length != stated) {
                return Err(unclear.into());
            }
            length = Some(stated);
        }
    }
    Ok(length)
}

fn names_chunks(coding: &HeaderValue) -> bool {
    coding.as_bytes().to_ascii_lowercase().windows(7).any(|word| word == b"chunked")
}

/// Joins a folded value: each fold becomes a space (RFC 9112 §5.2).
fn unfolded(value: &[u8]) -> Vec<u8> {
    let lines = value
        .split(|byte| matches!(byte, b'\r' | b'\n'))
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(&b' ')
}

fn name_of(text: &str) -> Option<HeaderName> {
    let usual =
        || USUAL_NAMES.iter().find(|name| text.eq_ignore_ascii_case(name.as_str())).cloned();
    let begins =
        text.as_bytes().first_chunk::<2>().is_some_and(|begin| begin.eq_ignore_ascii_case(b"x-"));
    begins.then(usual).flatten().or_else(|| HeaderName::from_bytes(text.as_bytes()).ok())
}

#[cfg(test)]
mod tests;
