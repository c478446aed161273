//! The two writers of answers: to a session of the framework, and into a buffer.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::date::get_cached_date;
use tokio::time::timeout;

use crate::gateway::cache::shared_body::Lost;
use crate::gateway::http::head_writer::{Fields as _, MapHead, OnWire, push_status};
use crate::gateway::response::reply::ReplyBody;

/// Size of one write; the write timeout counts for each.
const SLICE_BYTES: usize = 64 * 1024;

/// The answer could not be written completely; the connection is unusable.
pub struct Broken;

/// Writes an answer to a session. Returns the bytes of its body.
pub async fn write(
    session: &mut ServerSession,
    method: &Method,
    head: MapHead,
    body: ReplyBody,
    pause_max: Duration,
) -> Result<u64, Broken> {
    let MapHead { status, fields } = head;
    let (_, sends_body) = body_of(method, status);
    let has_length = fields.contains_key(header::CONTENT_LENGTH);
    let mut head = head_of(status, fields);
    let mut writer = Writer { session, pause_max, written: 0 };
    match body {
        ReplyBody::Whole(body) => {
            writer.head(head).await?;
            writer.last(if sends_body { body } else { Bytes::new() }).await?;
        }
        ReplyBody::Streamed { mut rewriting, mut reader } => {
            // HTTP/1.0 has no chunks: the end of the connection ends the body.
            let has_chunks = !writer.session.is_http2()
                && writer.session.req_header().version == Version::HTTP_11;
            if has_chunks && !has_length {
                head.insert_header(header::TRANSFER_ENCODING, "chunked").map_err(|_| Broken)?;
            }
            writer.head(head).await?;
            // A body that breaks off upstream must break off here too, not end as if complete.
            while sends_body && let Some(mut piece) = reader.next().await.map_err(|Lost| Broken)? {
                if let Some(rewriting) = &mut rewriting {
                    piece = rewriting.push(&piece);
                }
                tokio::select! {
                    biased;
                    written = writer.slices(piece) => written?,
                    never = reader.read_ahead() => match never {},
                }
            }
            drop(reader);
            writer.last(rewriting.map_or_else(Bytes::new, |rewriting| rewriting.finish())).await?;
        }
    }
    Ok(writer.written)
}

/// Ends a head in a buffer as the framework would end it.
pub fn finish_head(into: &mut Vec<u8>) {
    let mut head = OnWire(into);
    head.set(header::DATE.as_str(), get_cached_date().as_bytes());
    head.set(header::CONNECTION.as_str(), b"keep-alive");
    into.extend_from_slice(b"\r\n");
}

pub async fn write_interim(
    session: &mut ServerSession,
    status: StatusCode,
    headers: HeaderMap,
    pause_max: Duration,
) -> Result<(), Broken> {
    in_time(pause_max, session.write_response_header(Box::new(head_of(status, headers)))).await
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

/// Builds a head from these headers without copying them.
fn head_of(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    ResponseHeader::from(parts)
}

struct Writer<'s> {
    session: &'s mut ServerSession,
    pause_max: Duration,
    written: u64,
}

impl Writer<'_> {
    async fn head(&mut self, head: ResponseHeader) -> Result<(), Broken> {
        in_time(self.pause_max, self.session.write_response_header(Box::new(head))).await
    }

    /// Writes in slices, so that the timeout bounds a pause and not the whole body.
    async fn slices(&mut self, mut body: Bytes) -> Result<(), Broken> {
        while !body.is_empty() {
            let slice = body.split_to(body.len().min(SLICE_BYTES));
            self.written += slice.len() as u64;
            in_time(self.pause_max, self.session.write_response_body(slice, false)).await?;
        }
        Ok(())
    }

    async fn last(&mut self, mut body: Bytes) -> Result<(), Broken> {
        let slice = body.split_off(body.len() - body.len() % SLICE_BYTES);
        self.slices(body).await?;
        self.written += slice.len() as u64;
        in_time(self.pause_max, self.session.write_response_body(slice, true)).await
    }
}

/// The framework sets no timeout for heads and flushes.
async fn in_time(
    limit: Duration,
    write: impl Future<Output = pingora::Result<()>>,
) -> Result<(), Broken> {
    match timeout(limit, write).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Broken),
    }
}
