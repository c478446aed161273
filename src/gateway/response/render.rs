//! From an answer to the bytes a client gets: addresses rewritten for it, conditions weighed,
//! headers of the gateway's own, the body written.
//!
//! What the answer is has been decided before; here is only its form (CONTRACT §3; CLIENTS.md).

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::date::get_cached_date;
use tokio::time::timeout;

use crate::clock::Timestamp;
use crate::decision::cache::conditional::{Outcome as Conditional, evaluate, fails, is_exact};
use crate::decision::cache::freshness::Mode;
use crate::telemetry::{CacheOutcome, Fetch};

use crate::writes::record::Response;

use crate::gateway::cache::shared_body::{Head, Lost};
use crate::gateway::cache::shared_body_reader::Reader;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::http::content_coding::ContentCodings;
use crate::gateway::http::head_writer::{Head as _, OnWire};
use crate::gateway::http::headers::declared_length;
use crate::gateway::http::headers::{remove_digests, to_client};
use crate::gateway::http::interim::Interim;
use crate::gateway::http::media_type::is_json;
use crate::gateway::http::range::{Part, part_of};
use crate::gateway::response::compression::Sent;
use crate::gateway::response::compression::is_chosen;
use crate::gateway::response::form::{Form, has_precondition, is_not_modified};
use crate::gateway::response::gateway_headers::GatewayHeaders;
use crate::gateway::response::gateway_headers::add_gateway_headers;
use crate::gateway::response::reply::{Reply, ReplyBody};
use crate::gateway::response::responder::Responder;
use crate::gateway::url_rewrite::json_stream::JsonStream;
use crate::gateway::url_rewrite::map::{Origin, blank_secrets};

/// What is written at once; the time allowed for a pause is counted for each.
const SLICE_BYTES: usize = 64 * 1024;

/// What a 304 does not say, because it describes a body (CLIENTS.md, 10).
const NOT_OF_A_304: [HeaderName; 3] = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::LINK];
/// Room for the head of an ordinary answer.
const HEAD_BYTES_USUAL: usize = 2 * 1024;

/// What became of an answer that was to be put on the wire at once.
pub enum Put {
    /// It is there.
    Written {
        /// Its status.
        status: StatusCode,
        /// The bytes of its body.
        body_bytes: u64,
    },
    /// It may be a part of one, or refused, which is not for here.
    Part,
    /// Its body has to be compressed first, elsewhere.
    Later,
}

/// The answer could not be written to its end: the connection is of no more use.
pub struct Broken;

impl Responder {
    /// Its headers as the client gets them: nothing in them that an answer would not say, and no
    /// length, for there is no body.
    pub fn headers_of_interim(&self, interim: &Interim, origin: &Origin) -> HeaderMap {
        let mut headers = to_client(&interim.headers, self.env.mode);
        self.rewrite_addresses(&mut headers, origin);
        headers
    }

    /// An entry as this client gets it: whole, or 304 when it has it already.
    /// `gzip` is its body as [`Gateway::gzipped`] has it.
    pub fn reply_from_entry(
        &self,
        entry: &Entry,
        cache: CacheOutcome,
        form: &Form<'_>,
        gzip: Option<Bytes>,
        now: Timestamp,
    ) -> Reply {
        if has_precondition(form.asked)
            && fails(
                form.asked,
                entry.status(),
                entry.head.etag(),
                entry.stored.last_modified().as_ref(),
            )
        {
            return Reply::empty(StatusCode::PRECONDITION_FAILED);
        }
        let mut headers = entry.head.to_map();
        if is_chosen(entry) && entry.head.codings == ContentCodings::ChosenUnsaid {
            headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        self.rewrite_addresses(&mut headers, form.origin);
        if let Some(age) = self.age_told(entry, cache, now) {
            headers.say_number(header::AGE.as_str(), age.into());
        }
        if is_not_modified(entry, form.asked) {
            for name in NOT_OF_A_304 {
                headers.remove(name);
            }
            return Reply {
                status: StatusCode::NOT_MODIFIED,
                headers,
                body: ReplyBody::Whole(Bytes::new()),
            };
        }
        if let Some(gzip) = gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return Reply { status: entry.status(), headers, body: ReplyBody::Whole(gzip) };
        }
        let body = self.env.urls.render(&entry.body, form.origin);
        let part = if *form.method == Method::GET && entry.status() == StatusCode::OK {
            part_of(form.asked, body.len(), headers.get(header::ETAG))
        } else {
            Part::Whole
        };
        let (status, body) = match part {
            Part::Whole => (entry.status(), body),
            Part::Bytes(range) => {
                let place = format!("bytes {}-{}/{}", range.start(), range.end(), body.len());
                // RFC 9530, RFC 1864: the digest of a message's content is not that of a part.
                headers.remove("content-digest");
                headers.remove("content-md5");
                headers.remove(header::CONTENT_RANGE);
                headers.extend(
                    HeaderValue::try_from(place).map(|place| (header::CONTENT_RANGE, place)),
                );
                (StatusCode::PARTIAL_CONTENT, body.slice(range))
            }
            Part::Unsatisfiable => {
                let headers = [HeaderValue::try_from(format!("bytes */{}", body.len()))
                    .map(|place| (header::CONTENT_RANGE, place))];
                let headers = headers.into_iter().flatten().collect();
                return Reply {
                    status: StatusCode::RANGE_NOT_SATISFIABLE,
                    headers,
                    body: ReplyBody::Whole(Bytes::new()),
                };
            }
        };
        Reply { status, headers, body: ReplyBody::Whole(body) }
    }

    /// The same put on the wire at once with what the gateway adds.
    pub fn put_entry(
        &self,
        entry: &Entry,
        form: &Form<'_>,
        added: &GatewayHeaders<'_>,
        now: Timestamp,
        into: &mut Vec<u8>,
    ) -> Put {
        if form.asked.contains_key(header::RANGE) || has_precondition(form.asked) {
            return Put::Part;
        }
        let is_not_modified = is_not_modified(entry, form.asked);
        let gzip = match if is_not_modified {
            Sent::AsItIs
        } else {
            self.encodings.sent(&self.env, entry, form)
        } {
            Sent::AsItIs => None,
            Sent::Gzip(bytes) => Some(bytes),
            Sent::Later => return Put::Later,
        };
        let status = if is_not_modified { StatusCode::NOT_MODIFIED } else { entry.status() };
        let (has_no_body, sends_body) = body_of(form.method, status);
        let length = gzip
            .as_ref()
            .map_or_else(|| self.env.urls.rendered_bytes(&entry.body, form.origin), Bytes::len);
        into.reserve(HEAD_BYTES_USUAL + length);
        status_line(status, into);
        let lines =
            if is_not_modified { entry.head.wire_not_modified() } else { entry.head.wire() };
        for lines in lines {
            into.extend_from_slice(lines);
        }
        let head = &mut OnWire(into);
        if is_chosen(entry) && entry.head.codings == ContentCodings::ChosenUnsaid {
            head.say(header::VARY.as_str(), b"Accept-Encoding");
        }
        if gzip.is_some() {
            head.say(header::CONTENT_ENCODING.as_str(), b"gzip");
        }
        if entry.head.addresses().next().is_some() {
            let mut addresses = entry.head.addresses_map();
            self.rewrite_addresses(&mut addresses, form.origin);
            let said = addresses
                .iter()
                .filter(|(name, _)| !(is_not_modified && NOT_OF_A_304.contains(name)));
            said.for_each(|(name, value)| head.say(name.as_str(), value.as_bytes()));
        }
        if let Some(age) = self.age_told(entry, added.cache, now) {
            head.say_number(header::AGE.as_str(), age.into());
        }
        if !has_no_body {
            head.say_number(header::CONTENT_LENGTH.as_str(), length as u64);
        }
        add_gateway_headers(&self.env, head, added);
        // As the framework would say them.
        head.say(header::DATE.as_str(), get_cached_date().as_bytes());
        head.say(header::CONNECTION.as_str(), b"keep-alive");
        into.extend_from_slice(b"\r\n");
        match gzip {
            _ if !sends_body => {}
            Some(gzip) => into.extend_from_slice(&gzip),
            None => self.env.urls.render_into(&entry.body, form.origin, into),
        }
        Put::Written { status, body_bytes: if sends_body { length as u64 } else { 0 } }
    }

    /// The `Age` of an answer: of every one that was not fetched for this request as it is. RFC
    /// 9111 §1.2.2: what is older than can be said is as old as can be said.
    fn age_told(&self, entry: &Entry, cache: CacheOutcome, now: Timestamp) -> Option<u32> {
        let is_stored = matches!(
            cache,
            CacheOutcome::Hit | CacheOutcome::StaleIfLimited | CacheOutcome::StaleIfError
        ) || matches!(
            cache,
            CacheOutcome::Fetched(Fetch::Revalidated) | CacheOutcome::Collapsed(Fetch::Revalidated)
        ) || self.env.mode == Mode::Rfc9111 && entry.stored.came_aged();
        is_stored.then(|| {
            u32::try_from(entry.validated().age(now, self.env.mode).as_secs()).unwrap_or(1 << 31)
        })
    }

    /// The answer to a read that is too large to hold; a client that has it already is told so, and
    /// the rest of it is not read.
    pub fn reply_from_shared_body(&self, reader: Box<Reader>, form: &Form<'_>) -> Reply {
        let head = reader.head();
        let (etag, date) =
            (head.headers.get(header::ETAG).cloned(), head.headers.get(header::LAST_MODIFIED));
        let known_by = etag
            .as_ref()
            .map(|etag| if is_json(&head.headers) { weak(etag) } else { etag.clone() });
        if fails(form.asked, head.status, known_by.as_ref().map(HeaderValue::as_bytes), date) {
            return Reply::empty(StatusCode::PRECONDITION_FAILED);
        }
        let date = date.filter(|date| is_exact(&head.headers, Some(date), head.requested_at));
        let is_not_modified =
            evaluate(form.asked, head.status, etag.into_iter(), date) == Conditional::NotModified;
        let mut reply = self.reply_from_reader(reader, form.origin);
        if is_not_modified {
            for name in NOT_OF_A_304 {
                reply.headers.remove(name);
            }
            return Reply {
                status: StatusCode::NOT_MODIFIED,
                headers: reply.headers,
                body: ReplyBody::Whole(Bytes::new()),
            };
        }
        reply
    }

    /// An answer that is not kept: that of a write, or one too large to hold.
    pub fn reply_from_answer(&self, answer: Answer, origin: &Origin) -> Reply {
        let AnswerBody::Whole(bytes) = &answer.body else {
            return self.reply_from_reader(Box::new(Reader::alone(answer)), origin);
        };
        let mut headers = self.headers_of_answer(&answer.headers, origin);
        let body = if is_json(&answer.headers) {
            self.env.urls.render(&self.env.urls.with_url_offsets(blank_secrets(bytes)), origin)
        } else {
            bytes.clone()
        };
        if body != *bytes {
            remove_digests(&mut headers);
        }
        Reply { status: answer.status, headers, body: ReplyBody::Whole(body) }
    }

    fn reply_from_reader(&self, reader: Box<Reader>, origin: &Origin) -> Reply {
        let Head { status, headers: said, .. } = reader.head();
        let (status, mut headers) = (*status, self.headers_of_answer(said, origin));
        let rewriting =
            is_json(said).then(|| Box::new(JsonStream::new(self.env.urls.clone(), origin.clone())));
        if rewriting.is_some() {
            // RFC 9110 §8.8.1: each client's bytes are others.
            if let Some(etag) = headers.get_mut(header::ETAG) {
                *etag = weak(etag);
            }
            remove_digests(&mut headers);
        }
        // Rewriting changes the length.
        if let Some(length) = declared_length(said).filter(|_| rewriting.is_none()) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        Reply { status, headers, body: ReplyBody::Streamed { rewriting, reader } }
    }

    fn headers_of_answer(&self, said: &HeaderMap, origin: &Origin) -> HeaderMap {
        let mut headers = to_client(said, self.env.mode);
        if let (Mode::Rfc9111, Some(age)) = (self.env.mode, said.get(header::AGE)) {
            headers.insert(header::AGE, age.clone());
        }
        self.rewrite_addresses(&mut headers, origin);
        headers
    }

    /// A kept answer as this client gets it.
    pub fn reply_from_kept(&self, kept: Response, origin: &Origin) -> Reply {
        let Response { status, mut headers, body } = kept;
        let body = body.unwrap_or_default();
        let body = if is_json(&headers) {
            let marked = self.env.urls.with_url_offsets(body);
            if !marked.is_alike_for_all() {
                remove_digests(&mut headers);
            }
            self.env.urls.render(&marked, origin)
        } else {
            body
        };
        self.rewrite_addresses(&mut headers, origin);
        Reply { status, headers, body: ReplyBody::Whole(body) }
    }

    pub fn rewrite_addresses(&self, headers: &mut HeaderMap, origin: &Origin) {
        let links: Result<Vec<&str>, _> =
            headers.get_all(header::LINK).iter().map(HeaderValue::to_str).collect();
        // One line, whatever the upstream sent (CLIENTS.md, 1). What cannot be read could lead a
        // client's key elsewhere.
        let link = links.map(|links| {
            (!links.is_empty()).then(|| self.env.urls.rewrite_link(&links.join(", "), origin))
        });
        headers.remove(header::LINK);
        if let Ok(Some(Ok(link))) = link.map(|link| link.map(HeaderValue::try_from)) {
            headers.insert(header::LINK, link);
        }
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let url = headers.get(&name).and_then(|value| value.to_str().ok());
            // A path that is the same here is passed on as it is by a plain HTTP cache; it leads
            // where it should.
            let is_same_here = |url: &&str| {
                url.starts_with('/') && !url.starts_with("//") && self.env.urls.keeps_paths(origin)
            };
            let url = url.filter(|url| self.env.mode == Mode::Revalidate || !is_same_here(url));
            if let Some(Ok(url)) = url
                .and_then(|url| self.env.urls.rewrite_reference(url, origin))
                .map(HeaderValue::try_from)
            {
                headers.insert(name, url);
            }
        }
    }
}

/// The weak form of an `ETag`.
fn weak(etag: &HeaderValue) -> HeaderValue {
    if etag.as_bytes().starts_with(b"W/") {
        return etag.clone();
    }
    // It was a header's value before.
    HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat()).unwrap_or_else(|_| etag.clone())
}

fn status_line(status: StatusCode, into: &mut Vec<u8>) {
    for part in
        ["HTTP/1.1 ", status.as_str(), " ", status.canonical_reason().unwrap_or_default(), "\r\n"]
    {
        into.extend_from_slice(part.as_bytes());
    }
}

/// Writes an answer; returns the bytes of its body. A client that reads nothing for `pause_max` is
/// given up.
pub async fn write(
    session: &mut ServerSession,
    method: &Method,
    reply: Reply,
    pause_max: Duration,
) -> Result<u64, Broken> {
    let (has_no_body, sends_body) = body_of(method, reply.status);
    let has_length = reply.headers.contains_key(header::CONTENT_LENGTH);
    let mut head = head_of(reply.status, reply.headers);
    let mut writer = Writer { session, pause_max, written: 0 };
    match reply.body {
        ReplyBody::Whole(body) => {
            if !has_no_body {
                head.insert_header(header::CONTENT_LENGTH, body.len()).map_err(|_| Broken)?;
            }
            writer.head(head).await?;
            writer.last(if sends_body { body } else { Bytes::new() }).await?;
        }
        ReplyBody::Streamed { mut rewriting, mut reader } => {
            // HTTP/1.0 has no chunks: there the end of the connection is the end of the body.
            let has_chunks = !writer.session.is_http2()
                && writer.session.req_header().version == Version::HTTP_11;
            if has_chunks && !has_length {
                head.insert_header(header::TRANSFER_ENCODING, "chunked").map_err(|_| Broken)?;
            }
            writer.head(head).await?;
            // A body that breaks off upstream must break off here too: ended properly it would pass
            // for a whole one.
            while sends_body && let Some(piece) = reader.next().await.map_err(|Lost| Broken)? {
                writer
                    .slices(
                        rewriting
                            .as_mut()
                            .map_or_else(|| piece.clone(), |rewriting| rewriting.push(&piece)),
                    )
                    .await?;
            }
            drop(reader);
            writer.last(rewriting.map_or_else(Bytes::new, |rewriting| rewriting.finish())).await?;
        }
    }
    Ok(writer.written)
}

/// Writes a whole answer into a buffer, as the framework would write it to an HTTP/1.1 connection
/// that goes on; returns the bytes of its body. `None` for a body that is not in memory.
pub fn encode(method: &Method, reply: Reply, into: &mut Vec<u8>) -> Option<u64> {
    let ReplyBody::Whole(body) = reply.body else { return None };
    let (has_no_body, sends_body) = body_of(method, reply.status);
    let mut head = head_of(reply.status, reply.headers);
    if !has_no_body {
        head.insert_header(header::CONTENT_LENGTH, body.len()).ok()?;
    }
    head.insert_header(header::DATE, get_cached_date()).ok()?;
    head.insert_header(header::CONNECTION, HeaderValue::from_static("keep-alive")).ok()?;
    let body = if sends_body { body } else { Bytes::new() };
    into.reserve(HEAD_BYTES_USUAL + body.len());
    status_line(head.status, into);
    head.header_to_h1_wire(into);
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(&body);
    Some(body.len() as u64)
}

/// Writes an informational answer before the final one.
pub async fn write_interim(
    session: &mut ServerSession,
    status: StatusCode,
    headers: HeaderMap,
    pause_max: Duration,
) -> Result<(), Broken> {
    in_time(pause_max, session.write_response_header(Box::new(head_of(status, headers)))).await
}

/// Writes one into a buffer, in HTTP/1.1.
pub fn encode_interim(status: StatusCode, headers: &HeaderMap, into: &mut Vec<u8>) {
    status_line(status, into);
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            into.extend_from_slice(part);
        }
    }
    into.extend_from_slice(b"\r\n");
}

/// Whether an answer has no body by its status, and whether it is sent with one.
fn body_of(method: &Method, status: StatusCode) -> (bool, bool) {
    let has_no_body = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || status.is_informational();
    (has_no_body, !has_no_body && *method != Method::HEAD)
}

/// A head made of these headers as they are, none of them copied.
fn head_of(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    ResponseHeader::from(parts)
}

/// The client's side of an answer.
struct Writer<'s> {
    session: &'s mut ServerSession,
    pause_max: Duration,
    written: u64,
}

impl Writer<'_> {
    async fn head(&mut self, head: ResponseHeader) -> Result<(), Broken> {
        in_time(self.pause_max, self.session.write_response_header(Box::new(head))).await
    }

    /// In slices, so that the time allowed is that of a pause and not of the whole body.
    async fn slices(&mut self, mut body: Bytes) -> Result<(), Broken> {
        while !body.is_empty() {
            let slice = body.split_to(body.len().min(SLICE_BYTES));
            self.written += slice.len() as u64;
            in_time(self.pause_max, self.session.write_response_body(slice, false)).await?;
        }
        Ok(())
    }

    /// What is left, and the end of the body.
    async fn last(&mut self, mut body: Bytes) -> Result<(), Broken> {
        let slice = body.split_off(body.len() - body.len() % SLICE_BYTES);
        self.slices(body).await?;
        self.written += slice.len() as u64;
        in_time(self.pause_max, self.session.write_response_body(slice, true)).await
    }
}

/// The framework bounds the writing of bodies, but neither heads nor flushes.
async fn in_time(
    limit: Duration,
    write: impl Future<Output = pingora::Result<()>>,
) -> Result<(), Broken> {
    match timeout(limit, write).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Broken),
    }
}
