//! Replies to a client from fetched, stored and streamed answers.

use std::ops::RangeInclusive;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use crate::decision::cache::conditional::{Outcome as Conditional, evaluate, fails, is_exact};
use crate::decision::cache::freshness::Mode;
use crate::gateway::cache::shared_body::{Head, Reader};
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::http::decoding::weak;
use crate::gateway::http::headers::{remove_digests, to_client};
use crate::gateway::http::interim::Interim;
use crate::gateway::http::media_type::is_json;
use crate::gateway::http::range::{Part, part_of};
use crate::gateway::response::form::Form;
use crate::gateway::response::reply::{BodySource, Reply, ReplyBody};
use crate::gateway::response::responder::Responder;
use crate::gateway::url_rewrite::json_stream::JsonStream;
use crate::gateway::url_rewrite::map::{Body, Origin, blank_secrets};
use crate::writes::record::Response;

/// Headers that describe a body; a 304 omits them (SPECIFICATION, "Client libraries" 10).
pub const NOT_OF_A_304: [HeaderName; 3] =
    [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::LINK];

impl Responder {
    /// The headers of an interim answer, filtered like a final answer's and without a length.
    pub fn headers_of_interim(&self, interim: &Interim, origin: &Origin) -> HeaderMap {
        let mut headers = to_client(&interim.headers, self.env.mode);
        self.rewrite_addresses(&mut headers, origin);
        headers
    }

    /// Renders a shared body. A client with the current version gets a 304, and no body is read.
    pub fn reply_from_shared_body(&self, reader: Box<Reader>, form: &Form<'_>) -> Reply {
        let head = reader.head();
        let (etag, date) =
            (head.headers.get(header::ETAG).cloned(), head.headers.get(header::LAST_MODIFIED));
        let known_by = etag
            .as_ref()
            .map(|etag| if is_json(&head.headers) { weak(etag) } else { etag.clone() });
        if fails(form.headers, head.status, known_by.as_ref().map(HeaderValue::as_bytes), date) {
            return Reply::empty(StatusCode::PRECONDITION_FAILED);
        }
        let date = date.filter(|date| is_exact(&head.headers, Some(date), head.requested_at));
        let is_not_modified =
            evaluate(form.headers, head.status, etag.into_iter(), date) == Conditional::NotModified;
        let (part, length) =
            if is_not_modified { (Part::Whole, 0) } else { part_of_body(&reader, form) };
        match part {
            Part::Whole => {}
            Part::Bytes(range) => return self.reply_with_part(*reader, form.origin, range, length),
            Part::Unsatisfiable => {
                let reply = Reply::empty(StatusCode::RANGE_NOT_SATISFIABLE);
                return reply.with(header::CONTENT_RANGE, format!("bytes */{length}"));
            }
        }
        let mut reply = self.reply_from_reader(reader, form.origin);
        if is_not_modified {
            for name in NOT_OF_A_304 {
                reply.headers.remove(name);
            }
            reply.status = StatusCode::NOT_MODIFIED;
            reply.body = ReplyBody::Whole(Bytes::new());
        }
        reply
    }

    /// Renders a part of a shared body with this length.
    fn reply_with_part(
        &self,
        reader: Reader,
        origin: &Origin,
        range: RangeInclusive<usize>,
        length: u64,
    ) -> Reply {
        let (first, last) = (*range.start() as u64, *range.end() as u64);
        let mut reply = self.reply_from_reader(Box::new(reader.part(first..last + 1)), origin);
        reply.status = StatusCode::PARTIAL_CONTENT;
        // RFC 9530, RFC 1864: the digest of the whole content does not fit a part.
        for name in ["content-digest", "content-md5"] {
            reply.headers.remove(name);
        }
        reply.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(last - first + 1));
        reply.with(header::CONTENT_RANGE, format!("bytes {first}-{last}/{length}"))
    }

    /// Renders an answer that is not stored: that of a write, or a shared body.
    pub fn reply_from_answer(&self, answer: UpstreamAnswer, origin: &Origin) -> Reply {
        let AnswerBody::Whole(bytes) = &answer.body else {
            return self
                .reply_from_reader(Box::new(Reader::alone(answer, &self.env.spool_space)), origin);
        };
        let mut headers = self.headers_of_answer(&answer.headers, origin);
        if !is_json(&answer.headers) {
            return Reply { status: answer.status, headers, body: ReplyBody::Whole(bytes.clone()) };
        }
        let body = self.env.urls.with_url_offsets(blank_secrets(bytes.clone()));
        if !body.is_alike_for_all() || body.text() != &bytes[..] {
            remove_digests(&mut headers);
        }
        let body = ReplyBody::Rendered(Box::new(self.env.urls.rendering(&body, origin)));
        Reply { status: answer.status, headers, body }
    }

    /// Renders a shared body as it comes.
    pub fn reply_from_reader(&self, reader: Box<Reader>, origin: &Origin) -> Reply {
        let Head { status, headers: received, .. } = reader.head();
        let (status, mut headers) = (*status, self.headers_of_answer(received, origin));
        let rewriting = is_json(received)
            .then(|| Box::new(JsonStream::new(self.env.urls.clone(), origin.clone())));
        if rewriting.is_some() {
            // RFC 9110 §8.8.1: rewritten bytes differ from client to client.
            if let Some(etag) = headers.get_mut(header::ETAG) {
                *etag = weak(etag);
            }
            remove_digests(&mut headers);
        }
        // Rewriting changes the length.
        if let Some(length) = reader.length().filter(|_| rewriting.is_none()) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        if let Some(age) = reader.age.map(|age| age.as_secs()).filter(|age| *age > 0) {
            let before = headers.get(header::AGE).and_then(|age| age.to_str().ok()?.parse().ok());
            headers.insert(header::AGE, HeaderValue::from(age.saturating_add(before.unwrap_or(0))));
        }
        let source = BodySource::Shared(reader);
        Reply { status, headers, body: ReplyBody::Streamed { rewriting, source } }
    }

    fn headers_of_answer(&self, received: &HeaderMap, origin: &Origin) -> HeaderMap {
        let mut headers = to_client(received, self.env.mode);
        if let (Mode::Rfc9111, Some(age)) = (self.env.mode, received.get(header::AGE)) {
            headers.insert(header::AGE, age.clone());
        }
        self.rewrite_addresses(&mut headers, origin);
        headers
    }

    /// Renders a stored answer of a queued write for this client.
    pub fn reply_from_kept(&self, kept: Response, origin: &Origin) -> Reply {
        let Response { status, mut headers, body } = kept;
        let body = self.body_of_kept(&mut headers, body.unwrap_or_default());
        self.rewrite_addresses(&mut headers, origin);
        let body = ReplyBody::Rendered(Box::new(self.env.urls.rendering(&body, origin)));
        Reply { status, headers, body }
    }

    /// Locates the URLs in the body of a stored answer, whose headers lose what that changes.
    pub fn body_of_kept(&self, headers: &mut HeaderMap, bytes: Bytes) -> Body {
        if !is_json(headers) {
            return Body::opaque(bytes);
        }
        let body = self.env.urls.with_url_offsets(bytes);
        if !body.is_alike_for_all() {
            remove_digests(headers);
        }
        body
    }

    pub fn rewrite_addresses(&self, headers: &mut HeaderMap, origin: &Origin) {
        let links: Result<Vec<&str>, _> =
            headers.get_all(header::LINK).iter().map(HeaderValue::to_str).collect();
        // One line for any number of upstream lines (SPECIFICATION, "Client libraries" 1). An
        // unreadable value is dropped: it could lead a client's key to another host.
        let link = links.map(|links| {
            (!links.is_empty()).then(|| self.env.urls.rewrite_link(&links.join(", "), origin))
        });
        headers.remove(header::LINK);
        if let Ok(Some(Ok(link))) = link.map(|link| link.map(HeaderValue::try_from)) {
            headers.insert(header::LINK, link);
        }
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let url = headers.get(&name).and_then(|value| value.to_str().ok());
            // A plain HTTP cache passes on a path that is valid here too.
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

/// Returns the part of a shared body that a request names, and the length of the whole. The part of
/// a body whose length or bytes are not known yet is the whole.
fn part_of_body(reader: &Reader, form: &Form<'_>) -> (Part, u64) {
    let has_parts = *form.method == Method::GET
        && reader.head().status == StatusCode::OK
        && form.headers.contains_key(header::RANGE);
    let Some(length) = reader.length().filter(|_| has_parts) else { return (Part::Whole, 0) };
    let etag = reader.head().headers.get(header::ETAG);
    (part_of(form.headers, usize::try_from(length).unwrap_or(usize::MAX), etag), length)
}
