//! One request of a client, and the way back for its answer: over HTTP/1.1 by the framework's
//! session, over HTTP/2 by a stream.
//!
//! The stages of a request use nothing else of a client's connection. Left out: deadlines and floor
//! rates, which belong to those who read and write.

pub mod http2;
mod types;

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use pingora::ErrorType;
use pingora::http::ResponseHeader;
use pingora::protocols::http::v1::server::HttpSession;
use pingora::protocols::l4::socket::SocketAddr;

use self::http2::StreamSession;
pub use self::types::{Head, Left};

/// A request with its head read, until the last byte of its answer.
pub enum Session {
    Http1(Box<HttpSession>),
    Http2(Box<StreamSession>),
}

impl Session {
    pub const fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// The session of HTTP/1.1, which knows the bytes of its head and its connection.
    pub fn http1(&self) -> Option<&HttpSession> {
        match self {
            Self::Http1(session) => Some(session),
            Self::Http2(_) => None,
        }
    }

    pub fn head(&self) -> Head<'_> {
        match self {
            Self::Http1(session) => {
                let head = session.req_header();
                let (method, target) = (&head.method, &head.uri);
                Head { method, target, version: head.version, headers: &head.headers }
            }
            Self::Http2(stream) => stream.head(),
        }
    }

    /// True if the head of an HTTP/2 request was all of it.
    pub fn ended_with_head(&self) -> bool {
        matches!(self, Self::Http2(stream) if stream.ended_with_head())
    }

    /// The address of the other end; `None` on a Unix socket.
    pub fn client_address(&self) -> Option<IpAddr> {
        match self {
            Self::Http1(session) => session.client_addr().and_then(ip_of),
            Self::Http2(stream) => stream.client_address,
        }
    }

    /// Makes the answer the last one of an HTTP/1.1 connection, which it then says.
    pub fn close_after_answer(&mut self) {
        if let Self::Http1(session) = self {
            session.set_server_keepalive(None);
        }
    }

    /// Reads the body as `length` bytes, whatever its head says. HTTP/2 frames bodies itself.
    pub fn read_as_length(&mut self, length: usize) {
        if let Self::Http1(session) = self {
            let head = session.req_header_mut();
            head.remove_header(&TRANSFER_ENCODING);
            // A number is always valid as a header.
            let _ = head.insert_header(CONTENT_LENGTH, length);
        }
    }

    /// Returns the next piece of the body; `None` at its end.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, Left> {
        match self {
            Self::Http1(session) => session.read_body_bytes().await.map_err(|_| Left),
            Self::Http2(stream) => stream.read_body().await,
        }
    }

    /// Waits until the client leaves. On HTTP/1.1 this reads ahead, so call it only after the whole
    /// body was read.
    ///
    /// A client that pipelines its next request has not left, but the framework loses the byte that
    /// it read. The rest would be read as another request. Its connection therefore ends after this
    /// answer, as RFC 9112 §9.3.2 allows, and the client repeats the rest.
    pub async fn left(&mut self) {
        let session = match self {
            Self::Http1(session) => session,
            Self::Http2(stream) => return stream.left().await,
        };
        loop {
            match session.read_body_or_idle(true).await {
                Ok(_) => {}
                Err(error) if *error.etype() == ErrorType::ConnectError => {
                    session.set_server_keepalive(None);
                    std::future::pending::<()>().await;
                }
                Err(_) => return,
            }
        }
    }

    /// Asks for the body of a client that waits for that. HTTP/2 clients send it all the same.
    pub async fn write_continue(&mut self) {
        if let Self::Http1(session) = self {
            // A client that has left is noticed when its body is read.
            let _ = session.write_continue_response().await;
        }
    }

    /// Writes the head of an answer, or an interim answer over HTTP/1.1. Without a body, it may be
    /// all of the answer.
    pub async fn write_head(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        has_body: bool,
    ) -> Result<(), Left> {
        match self {
            Self::Http1(session) => {
                let (mut parts, ()) = http::Response::new(()).into_parts();
                (parts.status, parts.headers) = (status, headers);
                let head = Box::new(ResponseHeader::from(parts));
                session.write_response_header(head).await.map_err(|_| Left)
            }
            Self::Http2(stream) => stream.write_head(status, headers, !has_body),
        }
    }

    /// Writes a piece of the body after the head, and ends it with the last one.
    pub async fn write_body(&mut self, piece: Bytes, is_last: bool) -> Result<(), Left> {
        match self {
            Self::Http1(session) => {
                if !piece.is_empty() {
                    session.write_body(&piece).await.map_err(|_| Left)?;
                }
                if is_last {
                    session.finish_body().await.map_err(|_| Left)?;
                }
                Ok(())
            }
            Self::Http2(stream) => stream.write_body(piece, is_last).await,
        }
    }

    /// Gives up an answer that was begun. An HTTP/1.1 connection just closes.
    pub fn give_up(&mut self) {
        if let Self::Http2(stream) = self {
            stream.reset();
        }
    }
}

/// The IP address of a peer, if it has one.
pub fn ip_of(peer: &SocketAddr) -> Option<IpAddr> {
    peer.as_inet().map(|address| address.ip().to_canonical())
}
