//! The one renderer of answers: a head and a body for a client, on the fast path as in a session.
//! The answer is chosen before; `write` writes it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};

use crate::api::headers::RATE_LIMIT;
use crate::clock::Timestamp;
use crate::decision::cache::conditional::fails;
use crate::decision::cache::freshness::Mode;
use crate::gateway::cache::store::Entry;
use crate::gateway::http::content_coding::ContentCodings;
use crate::gateway::http::head_writer::{Head, MapHead, OnWire};
use crate::gateway::http::headers::VIA_WEIR;
use crate::gateway::http::media_type::is_json;
use crate::gateway::http::range::{Part, part_of, plain_range};
use crate::gateway::response::compression::{Sent, is_negotiated};
use crate::gateway::response::content::NOT_OF_A_304;
use crate::gateway::response::form::{Form, is_not_modified};
use crate::gateway::response::gateway_headers::{GatewayHeaders, add_gateway_headers};
use crate::gateway::response::long_texts::SHORT_BYTES_MAX;
use crate::gateway::response::reply::{BodySource, Reply, ReplyBody};
use crate::gateway::response::responder::Responder;
use crate::gateway::response::write::{body_of, finish_head};
use crate::gateway::spool::kept::FileReader;
use crate::gateway::url_rewrite::json_stream::JsonStream;
use crate::gateway::url_rewrite::rendering::Rendering;
use crate::telemetry::{CacheOutcome, Fetch};

/// Buffer space for the head of an ordinary answer.
const HEAD_BYTES_USUAL: usize = 2 * 1024;
/// Longer bodies are rendered piece by piece. Chosen here: nearly all answers are one write.
pub const BUFFERED_BYTES_MAX: usize = SHORT_BYTES_MAX;

/// An answer to render: a stored one with its selection, or a finished reply.
pub enum Content {
    Stored(Arc<Entry>, Selection),
    Made(Reply),
}

/// The part of a stored answer that a client gets.
pub enum Selection {
    PreconditionFailed,
    NotModified,
    Whole,
    Gzip(Bytes),
    /// A part, in bytes of the rendered body, and its `Content-Range`.
    Part(RangeInclusive<usize>, String),
    Unsatisfiable,
}

/// The compressed form of a stored answer, where the client accepts one.
pub enum Compression {
    /// Made at once, unless it takes too long for that.
    AtOnce,
    Done(Option<Bytes>),
}

/// A body before it is rendered: that of a stored answer may go into a buffer without a copy.
enum Source {
    Stored(Arc<Entry>),
    Ready(ReplyBody),
}

/// The body of an answer whose head is in a buffer.
pub struct Buffered {
    pub body_bytes: u64,
    /// The part of the body that is not in the buffer.
    pub rest: Option<Box<Rendering>>,
}

impl Responder {
    /// Selects the part and form of a stored answer for a client; `None`: it must be compressed
    /// first, off the serving threads.
    pub fn select(
        &self,
        entry: &Entry,
        form: &Form<'_>,
        compression: Compression,
    ) -> Option<Selection> {
        let has_precondition = form.headers.contains_key(header::IF_MATCH)
            || form.headers.contains_key(header::IF_UNMODIFIED_SINCE);
        if has_precondition {
            let (etag, date) = (entry.head.etag(), entry.stored.last_modified());
            let etag = etag.as_ref().map(HeaderValue::as_bytes);
            if fails(form.headers, entry.status(), etag, date.as_ref()) {
                return Some(Selection::PreconditionFailed);
            }
        }
        if is_not_modified(entry, form.headers) {
            return Some(Selection::NotModified);
        }
        if entry.status() == StatusCode::PARTIAL_CONTENT {
            return Some(piece_of(entry, form));
        }
        let has_range = form.headers.contains_key(header::RANGE);
        let sent = match compression {
            Compression::Done(gzip) => gzip.map_or(Sent::Identity, Sent::Gzip),
            Compression::AtOnce if has_range || has_precondition => Sent::Identity,
            Compression::AtOnce => self.compressed_forms.sent(&self.env, entry, form),
        };
        match sent {
            Sent::Identity => {}
            Sent::Gzip(gzip) => return Some(Selection::Gzip(gzip)),
            Sent::Later => return None,
        }
        let has_parts = *form.method == Method::GET && entry.status() == StatusCode::OK;
        if !has_range || !has_parts || is_rewritten_as_sent(entry) {
            return Some(Selection::Whole);
        }
        let etag = entry.head.etag();
        let length = self.env.urls.rendered_bytes(&entry.body, form.origin);
        Some(match part_of(form.headers, length, etag.as_ref()) {
            Part::Whole => Selection::Whole,
            Part::Bytes(range) => {
                let content_range = format!("bytes {}-{}/{length}", range.start(), range.end());
                Selection::Part(range, content_range)
            }
            Part::Unsatisfiable => Selection::Unsatisfiable,
        })
    }

    /// Renders an answer for a session. `added` holds the gateway headers; `None` if no request
    /// was read.
    pub fn render_for_session(
        &self,
        content: Content,
        form: &Form<'_>,
        added: Option<GatewayHeaders<'_>>,
        now: Timestamp,
    ) -> (MapHead, ReplyBody) {
        let mut head = MapHead::default();
        let body = match self.render(content, form, added, now, &mut head) {
            Source::Stored(entry) => match entry.body.file() {
                Some(file) => self.body_on_disk(&entry, file.reader(), form),
                None => {
                    ReplyBody::Rendered(Box::new(self.env.urls.rendering(&entry.body, form.origin)))
                }
            },
            Source::Ready(body) => body,
        };
        (head, body)
    }

    /// Renders a short stored answer in memory.
    pub fn render_short(
        &self,
        entry: Arc<Entry>,
        selection: Selection,
        form: &Form<'_>,
        added: GatewayHeaders<'_>,
        now: Timestamp,
    ) -> (MapHead, Bytes) {
        let mut head = MapHead::default();
        let content = Content::Stored(entry, selection);
        let source = self.render(content, form, Some(added), now, &mut head);
        let (_, sends_body) = body_of(form.method, head.status);
        let body = match source {
            _ if !sends_body => Bytes::new(),
            Source::Stored(entry) => {
                let urls = &self.env.urls;
                let bytes = urls.rendered_bytes(&entry.body, form.origin);
                let mut body = Vec::with_capacity(bytes);
                urls.render_into(&entry.body, form.origin, &mut body);
                body.into()
            }
            Source::Ready(mut body) => body.piece(usize::MAX),
        };
        (head, body)
    }

    /// The body of an answer on disk, or a part of it.
    fn body_on_disk(&self, entry: &Entry, reader: FileReader, form: &Form<'_>) -> ReplyBody {
        let rewriting = is_rewritten_as_sent(entry)
            .then(|| Box::new(JsonStream::new(self.env.urls.clone(), form.origin.clone())));
        ReplyBody::Streamed { rewriting, source: BodySource::File(Box::new(reader)) }
    }

    /// Renders a stored answer into a buffer: the head and the body, or the beginning of a long
    /// body.
    pub fn render_into(
        &self,
        entry: Arc<Entry>,
        selection: Selection,
        form: &Form<'_>,
        added: GatewayHeaders<'_>,
        now: Timestamp,
        into: &mut Vec<u8>,
    ) -> (StatusCode, Buffered) {
        let status = selection.status(&entry);
        let has_date = entry.head.has_date && selection.has_stored_fields();
        let content = Content::Stored(entry, selection);
        let source = self.render(content, form, Some(added), now, &mut OnWire(into));
        finish_head(into, has_date);
        let (_, sends_body) = body_of(form.method, status);
        let before = into.len();
        let rest = match source {
            _ if !sends_body => None,
            Source::Stored(entry) if entry.body.text().len() <= BUFFERED_BYTES_MAX => {
                self.env.urls.render_into(&entry.body, form.origin, into);
                None
            }
            Source::Stored(entry) => Some(self.env.urls.rendering(&entry.body, form.origin)),
            Source::Ready(ReplyBody::Whole(body)) if body.len() <= BUFFERED_BYTES_MAX => {
                into.extend_from_slice(&body);
                None
            }
            Source::Ready(ReplyBody::Whole(body)) => Some(Rendering::opaque(body)),
            Source::Ready(ReplyBody::Rendered(body)) => Some(*body),
            Source::Ready(ReplyBody::Enclosed(_) | ReplyBody::Streamed { .. }) => None,
        };
        let body_bytes = rest.as_ref().map_or(into.len() - before, Rendering::bytes_left);
        let mut rest = rest.map(Box::new);
        if let Some(rest) = &mut rest {
            rest.fill(into, BUFFERED_BYTES_MAX);
        }
        (status, Buffered { body_bytes: body_bytes as u64, rest })
    }

    fn render(
        &self,
        content: Content,
        form: &Form<'_>,
        mut added: Option<GatewayHeaders<'_>>,
        now: Timestamp,
        head: &mut impl Head,
    ) -> Source {
        let (status, source, length) = match content {
            Content::Stored(entry, selection) => {
                let cache = added.as_ref().map_or(CacheOutcome::None, |added| added.cache);
                self.begin_stored(entry, selection, form, cache, now, head)
            }
            Content::Made(Reply { status, headers, body }) => {
                // An error has the budget headers of its own limit.
                if let Some(added) = added.as_mut().filter(|_| headers.contains_key(RATE_LIMIT)) {
                    added.view = None;
                }
                let length = body.length();
                head.begin(status, HEAD_BYTES_USUAL);
                head.add_map(headers);
                (status, Source::Ready(body), length)
            }
        };
        let (has_no_body, _) = body_of(form.method, status);
        if let Some(length) = length.filter(|_| !has_no_body) {
            head.set_number(header::CONTENT_LENGTH.as_str(), length as u64);
        }
        if let Some(added) = added {
            if self.env.mode == Mode::Rfc9111 && added.cache != CacheOutcome::None {
                head.add(&header::VIA, &VIA_WEIR);
            }
            add_gateway_headers(&self.env, head, &added);
        }
        source
    }

    /// Begins the head of a stored answer. Returns its status, its body and its length.
    fn begin_stored(
        &self,
        entry: Arc<Entry>,
        selection: Selection,
        form: &Form<'_>,
        cache: CacheOutcome,
        now: Timestamp,
        head: &mut impl Head,
    ) -> (StatusCode, Source, Option<usize>) {
        let status = selection.status(&entry);
        let whole = |bytes| Source::Ready(ReplyBody::Whole(bytes));
        let rendered = || self.env.urls.rendered_bytes(&entry.body, form.origin);
        let body_bytes = match &selection {
            Selection::Whole => rendered(),
            Selection::Gzip(gzip) => gzip.len(),
            _ => 0,
        };
        head.begin(status, HEAD_BYTES_USUAL + body_bytes.min(BUFFERED_BYTES_MAX));
        match selection {
            Selection::PreconditionFailed => (status, whole(Bytes::new()), Some(0)),
            Selection::Unsatisfiable => {
                let content_range = format!("bytes */{}", rendered());
                head.set(header::CONTENT_RANGE.as_str(), content_range.as_bytes());
                (status, whole(Bytes::new()), Some(0))
            }
            Selection::NotModified => {
                // That of a stored part is about its content, which a 304 has not.
                let (lines, omitted) = (entry.head.wire_not_modified(), ["content-range"]);
                self.add_stored(&entry, lines, &omitted, status, form, head);
                self.add_age(&entry, cache, now, head);
                (status, whole(Bytes::new()), None)
            }
            Selection::Part(range, content_range) => {
                // RFC 9530, RFC 1864: the digest of the whole content does not fit a part.
                let omitted = ["content-digest", "content-md5", "content-range"];
                self.add_stored(&entry, entry.head.wire(), &omitted, status, form, head);
                self.add_age(&entry, cache, now, head);
                head.set(header::CONTENT_RANGE.as_str(), content_range.as_bytes());
                let length = range.end() - range.start() + 1;
                let part = if let Some(file) = entry.body.file() {
                    self.body_on_disk(&entry, file.reader().part(&range), form)
                } else {
                    let body = self.env.urls.rendering(&entry.body, form.origin);
                    ReplyBody::Rendered(Box::new(body.part(&range)))
                };
                (status, Source::Ready(part), Some(length))
            }
            Selection::Gzip(gzip) => {
                self.add_stored(&entry, entry.head.wire(), &[], status, form, head);
                head.set(header::CONTENT_ENCODING.as_str(), b"gzip");
                self.add_age(&entry, cache, now, head);
                (status, whole(gzip), Some(body_bytes))
            }
            Selection::Whole => {
                self.add_stored(&entry, entry.head.wire(), &[], status, form, head);
                self.add_age(&entry, cache, now, head);
                let length = (!is_rewritten_as_sent(&entry)).then_some(body_bytes);
                (status, Source::Stored(entry), length)
            }
        }
    }

    /// Adds the stored fields: those equal for all clients, then the URLs, rewritten for this one.
    fn add_stored(
        &self,
        entry: &Entry,
        lines: [&[u8]; 2],
        omitted: &[&str],
        status: StatusCode,
        form: &Form<'_>,
        head: &mut impl Head,
    ) {
        head.add_lines(lines, omitted);
        if let Some(etag) = entry.head.content_etag() {
            head.set(header::ETAG.as_str(), &etag.text());
        }
        if let Some(date) = entry.head.modified() {
            head.set_varying(header::LAST_MODIFIED.as_str(), &date);
        }
        if is_negotiated(entry) && entry.head.codings == ContentCodings::NegotiatedWithoutVary {
            head.add(&header::VARY, &HeaderValue::from_static("Accept-Encoding"));
        }
        if entry.head.addresses().next().is_some() {
            let mut addresses = entry.head.addresses_map();
            self.rewrite_addresses(&mut addresses, form.origin);
            let is_not_modified = status == StatusCode::NOT_MODIFIED;
            for (name, value) in &addresses {
                if !is_not_modified || !NOT_OF_A_304.contains(name) {
                    head.add(name, value);
                }
            }
        }
    }

    /// Adds the `Age` of an answer that was not fetched for this request.
    fn add_age(&self, entry: &Entry, cache: CacheOutcome, now: Timestamp, head: &mut impl Head) {
        let is_stored = matches!(
            cache,
            CacheOutcome::Hit
                | CacheOutcome::StaleIfLimited
                | CacheOutcome::StaleIfError
                | CacheOutcome::StaleWhileRevalidate
                | CacheOutcome::Fetched(Fetch::Revalidated | Fetch::Requested { status: 304 })
                | CacheOutcome::Collapsed(Fetch::Revalidated | Fetch::Requested { status: 304 })
        );
        if is_stored || self.env.mode == Mode::Rfc9111 && entry.stored.came_aged() {
            let secs = entry.validated().age(now, self.env.mode).as_secs();
            // RFC 9111 §1.2.2: an age beyond the range is sent as the greatest value.
            let age = u32::try_from(secs).unwrap_or(1 << 31);
            head.set_number(header::AGE.as_str(), age.into());
        }
    }
}

/// True if the body is on disk and its URLs are rewritten as it is sent, so that its length is not
/// known before.
fn is_rewritten_as_sent(entry: &Entry) -> bool {
    entry.body.file().is_some() && is_json(&entry.head.to_map())
}

/// Selects the requested piece of a stored part. An answer to this very request may have another
/// part than it names, and says so.
fn piece_of(entry: &Entry, form: &Form<'_>) -> Selection {
    let (bytes, held) = (entry.body.text().len(), entry.content_range());
    let piece = held.zip(plain_range(form.headers)).and_then(|(held, (_, range))| {
        let piece = held.piece(bytes as u64, range)?;
        let begin = usize::try_from(piece.bytes.start).ok()?;
        let end = usize::try_from(piece.bytes.end).ok()?.checked_sub(1)?;
        (begin > 0 || end + 1 < bytes).then(|| Selection::Part(begin..=end, held.of_piece(&piece)))
    });
    piece.unwrap_or(Selection::Whole)
}

impl Selection {
    fn has_stored_fields(&self) -> bool {
        !matches!(self, Self::PreconditionFailed | Self::Unsatisfiable)
    }

    fn status(&self, entry: &Entry) -> StatusCode {
        match self {
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::NotModified => StatusCode::NOT_MODIFIED,
            Self::Part(..) => StatusCode::PARTIAL_CONTENT,
            Self::Unsatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Whole | Self::Gzip(_) => entry.status(),
        }
    }
}
