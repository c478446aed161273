//! The two writers of answers: to a session, and into a buffer.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Version};
use pingora::protocols::http::date::get_cached_date;

use crate::gateway::cache::shared_body::{Lost, SlotNeeded};
use crate::gateway::http::head_writer::{Fields as _, MapHead, OnWire, push_status};
use crate::gateway::response::pacing::{Broken, Pacing};
use crate::gateway::response::reply::ReplyBody;
use crate::gateway::session::Session;

/// The longest piece for an HTTP/2 stream: one frame of the usual size (RFC 9113 §6.5.2).
pub const FRAME_BYTES: usize = 16 * 1024;

/// Writes an answer to a session, and counts the bytes of its body.
pub async fn write(
    session: &mut Session,
    method: &Method,
    mut head: MapHead,
    body: ReplyBody,
    pacing: Pacing,
    written: &mut u64,
) -> Result<(), Broken> {
    let (_, sends_body) = body_of(method, head.status);
    let frame_bytes = if session.is_http2() { FRAME_BYTES } else { usize::MAX };
    let piece_bytes = pacing.piece_bytes().min(frame_bytes);
    let mut writer = Writer { session, pacing, written };
    let mut body = match body {
        ReplyBody::Streamed { mut rewriting, mut source } => {
            // HTTP/1.0 has no chunks: the end of the connection ends the body.
            let has_chunks = writer.session.head().version == Version::HTTP_11;
            if has_chunks && !head.fields.contains_key(header::CONTENT_LENGTH) {
                let chunked = HeaderValue::from_static("chunked");
                head.fields.insert(header::TRANSFER_ENCODING, chunked);
            }
            writer.head(head, sends_body).await?;
            // A body that breaks off upstream must break off here too, not end as if complete.
            while sends_body
                && let Some(mut read) = source.next().await.map_err(|Lost| Broken::Lost)?
            {
                while !read.is_empty() {
                    let mut piece = read.split_to(read.len().min(piece_bytes));
                    if let Some(rewriting) = &mut rewriting {
                        piece = rewriting.push(&piece);
                    }
                    tokio::select! {
                        biased;
                        written = writer.piece(piece, false) => written?,
                        SlotNeeded = source.read_ahead() => return Err(Broken::SlotNeeded),
                    }
                }
            }
            drop(source);
            let rest = rewriting.map_or_else(Bytes::new, |rewriting| rewriting.finish());
            return writer.piece(rest, true).await;
        }
        body => body,
    };
    writer.head(head, sends_body && body.length() != Some(0)).await?;
    loop {
        let piece = if sends_body { body.piece(piece_bytes) } else { Bytes::new() };
        let is_last = !sends_body || body.length() == Some(0);
        writer.piece(piece, is_last).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Ends a head in a buffer as the framework would end it, which replaces any `Date`.
pub fn finish_head(into: &mut Vec<u8>, has_date: bool) {
    let mut head = OnWire(into);
    if !has_date {
        head.set(header::DATE.as_str(), get_cached_date().as_bytes());
    }
    head.set(header::CONNECTION.as_str(), b"keep-alive");
    into.extend_from_slice(b"\r\n");
}

pub async fn write_interim(
    session: &mut Session,
    status: StatusCode,
    headers: HeaderMap,
    mut pacing: Pacing,
) -> Result<(), Broken> {
    pacing.write(0, session.write_head(status, headers, true)).await
}

pub fn encode_interim(status: StatusCode, headers: &HeaderMap, into: &mut Vec<u8>) {
    push_status(into, status);
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            into.extend_from_slice(part);
        }
    }
    into.extend_from_slice(b"\r\n");
}

/// Returns two flags: the status forbids a body; a body is sent.
pub fn body_of(method: &Method, status: StatusCode) -> (bool, bool) {
    let has_no_body = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || status.is_informational();
    (has_no_body, !has_no_body && *method != Method::HEAD)
}

struct Writer<'s> {
    session: &'s mut Session,
    pacing: Pacing,
    written: &'s mut u64,
}

impl Writer<'_> {
    async fn head(&mut self, head: MapHead, has_body: bool) -> Result<(), Broken> {
        let MapHead { status, fields } = head;
        self.pacing.write(0, self.session.write_head(status, fields, has_body)).await
    }

    async fn piece(&mut self, piece: Bytes, is_last: bool) -> Result<(), Broken> {
        let bytes = piece.len();
        self.pacing.write(bytes, self.session.write_body(piece, is_last)).await?;
        *self.written += bytes as u64;
        Ok(())
    }
}
