//! A stream of HTTP/2: the request that opened it, and its answer (RFC 9113 §8.1).
//!
//! The frames, their order and the windows are the codec's. The connection's task writes what a
//! stream has sent; a stream waits only for room in its window and in the codec's buffer.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use pingora::protocols::http::date::get_cached_date;

use super::types::{Head, Left};

pub struct StreamSession {
    method: Method,
    target: Uri,
    pub headers: Arc<HeaderMap>,
    body: RecvStream,
    answer: Answer,
    pub client_address: Option<IpAddr>,
}

/// The way back of a stream.
enum Answer {
    None(SendResponse<Bytes>),
    Begun(SendStream<Bytes>),
    Ended,
}

impl StreamSession {
    pub fn new(
        request: Request<RecvStream>,
        answer: SendResponse<Bytes>,
        client_address: Option<IpAddr>,
    ) -> Self {
        let (head, body) = request.into_parts();
        let http::request::Parts { method, uri: target, headers, .. } = head;
        let headers = Arc::new(headers);
        Self { method, target, headers, body, answer: Answer::None(answer), client_address }
    }

    pub fn head(&self) -> Head<'_> {
        let (method, target) = (&self.method, &self.target);
        Head { method, target, version: Version::HTTP_2, headers: &self.headers }
    }

    /// True if the request has no body and no trailers.
    pub fn ended_with_head(&self) -> bool {
        self.body.is_end_stream()
    }

    pub async fn read_body(&mut self) -> Result<Option<Bytes>, Left> {
        let Some(piece) = self.body.data().await.transpose().map_err(|_| Left)? else {
            return Ok(None);
        };
        // The window opens as the body is read, so that a client sends no more than that ahead.
        let _ = self.body.flow_control().release_capacity(piece.len());
        Ok(Some(piece))
    }

    /// Reads the rest of a body that was answered without it, up to so many bytes. The stream would
    /// be reset otherwise (RFC 9113 §8.1), and some clients drop a whole answer then.
    pub async fn skip_body(&mut self, mut bytes_max: usize) {
        let declared = self.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let declared = declared.and_then(|length| length.parse::<usize>().ok());
        if declared.is_some_and(|declared| declared > bytes_max)
            || !matches!(self.answer, Answer::Ended)
        {
            return;
        }
        while let Ok(Some(piece)) = self.read_body().await {
            let Some(left) = bytes_max.checked_sub(piece.len()) else { return };
            bytes_max = left;
        }
    }

    /// Waits until the client resets the stream or leaves.
    pub async fn left(&mut self) {
        let reset = poll_fn(|context| match &mut self.answer {
            Answer::None(answer) => answer.poll_reset(context).map(drop),
            Answer::Begun(stream) => stream.poll_reset(context).map(drop),
            Answer::Ended => std::task::Poll::Pending,
        });
        reset.await;
    }

    /// Writes the head; `is_last`: no body follows. Interim answers are left out.
    pub fn write_head(
        &mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        is_last: bool,
    ) -> Result<(), Left> {
        let Answer::None(answer) = &mut self.answer else { return Err(Left) };
        if status.is_informational() {
            return Ok(());
        }
        if !headers.contains_key(DATE) {
            headers.insert(DATE, get_cached_date());
        }
        let mut head = Response::new(());
        (*head.status_mut(), *head.headers_mut()) = (status, headers);
        let stream = answer.send_response(head, is_last).map_err(|_| Left)?;
        self.answer = if is_last { Answer::Ended } else { Answer::Begun(stream) };
        Ok(())
    }

    /// Writes a piece of the body as far as the window and the codec's buffer have room, and waits
    /// for more.
    pub async fn write_body(&mut self, mut piece: Bytes, is_last: bool) -> Result<(), Left> {
        let Answer::Begun(stream) = &mut self.answer else {
            return if piece.is_empty() { Ok(()) } else { Err(Left) };
        };
        while !piece.is_empty() {
            stream.reserve_capacity(piece.len());
            let room = poll_fn(|context| stream.poll_capacity(context)).await;
            let room = room.transpose().map_err(|_| Left)?.ok_or(Left)?;
            let part = piece.split_to(room.min(piece.len()));
            let ends = is_last && piece.is_empty();
            stream.send_data(part, ends).map_err(|_| Left)?;
            if ends {
                self.answer = Answer::Ended;
                return Ok(());
            }
        }
        if is_last {
            stream.send_data(Bytes::new(), true).map_err(|_| Left)?;
            self.answer = Answer::Ended;
        }
        Ok(())
    }

    /// Writes a whole body if there is room for it now. Returns it otherwise.
    pub fn try_write_all(&mut self, body: Bytes) -> Result<(), Bytes> {
        let Answer::Begun(stream) = &mut self.answer else { return Err(body) };
        stream.reserve_capacity(body.len());
        if stream.capacity() < body.len() {
            return Err(body);
        }
        // It fails only where the client has reset the stream, and there the answer is over.
        let _ = stream.send_data(body, true);
        self.answer = Answer::Ended;
        Ok(())
    }

    /// Drops what is buffered of the answer, and says so to the client.
    pub fn reset(&mut self) {
        match &mut self.answer {
            Answer::None(answer) => answer.send_reset(Reason::INTERNAL_ERROR),
            Answer::Begun(stream) => stream.send_reset(Reason::INTERNAL_ERROR),
            Answer::Ended => {}
        }
    }
}
