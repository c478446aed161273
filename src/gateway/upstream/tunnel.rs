//! A tunnel through an HTTP proxy to the upstream, by CONNECT (RFC 9110 §9.3.6).
//!
//! The framework's own CONNECT speaks to proxies on Unix sockets alone. Left out: connecting to the
//! proxy, and TLS inside of the tunnel (`connect`).

use bytes::{Buf, BytesMut};
use http::StatusCode;
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

use crate::config::{Proxy, UpstreamUrl};

/// The longest head of the proxy's answer, interim ones included. Chosen here: far above any that
/// only names itself.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most headers in it.
const HEADERS_MAX: usize = 64;

/// Opens a tunnel to the host and port of `url` on a connection to the proxy. An error says what
/// the proxy did; nothing in it is the proxy's own text.
pub async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    proxy: &Proxy,
    url: &UpstreamUrl,
) -> Result<(), String> {
    let host = url.host();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let to = format!("{host}:{}", url.port());
    let mut head = Zeroizing::new(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n").into_bytes());
    if let Some(value) = proxy.authorization() {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(value.expose_secret().as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await.map_err(|error| error.to_string())?;
    stream.flush().await.map_err(|error| error.to_string())?;
    let status = answer(stream).await?;
    if status.is_success() { Ok(()) } else { Err(refusal(status, proxy, &to)) }
}

fn refusal(status: StatusCode, proxy: &Proxy, to: &str) -> String {
    if status != StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        return format!("the proxy opens no tunnel to {to}: it answered {status}");
    }
    let has_credentials = proxy.authorization().is_some();
    let verb = if has_credentials { "rejects" } else { "demands" };
    format!("the proxy {verb} a user name and password: it answered {status}")
}

/// Reads the head of the final answer, and nothing beyond it.
async fn answer<S: AsyncRead + Unpin>(stream: &mut S) -> Result<StatusCode, String> {
    let (mut read, mut left) = (BytesMut::new(), HEAD_BYTES_MAX);
    loop {
        while !read.is_empty() {
            let Some((status, length)) = parsed(&read)? else { break };
            read.advance(length);
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                continue;
            }
            // The upstream speaks second, so these bytes are not its own.
            if status.is_success() && !read.is_empty() {
                return Err("the proxy sent bytes that nobody asked for".to_owned());
            }
            return Ok(status);
        }
        if left == 0 {
            return Err("the head of the proxy's answer is too large".to_owned());
        }
        let mut piece = [0; 1024];
        let most = left.min(piece.len());
        let room = piece.get_mut(..most).unwrap_or_default();
        let count = stream.read(room).await.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("the proxy closed the connection without an answer".to_owned());
        }
        read.extend_from_slice(room.get(..count).unwrap_or_default());
        left -= count;
    }
}

/// Status and length of a complete head; `None`: more is to come.
fn parsed(read: &[u8]) -> Result<Option<(StatusCode, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let bad = || "the proxy's answer is not HTTP/1.1".to_owned();
    match head.parse(read).map_err(|_| bad())? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(length) => {
            let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
            Ok(Some((status.ok_or_else(bad)?, length)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(mut bytes: &[u8]) -> Result<u16, String> {
        answer(&mut bytes).await.map(|status| status.as_u16())
    }

    #[tokio::test]
    async fn the_final_answer_counts_and_interim_ones_do_not() {
        let ok = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.0 200 Connected\r\n\r\n";
        assert_eq!(answered(ok).await, Ok(200));
        assert_eq!(answered(b"HTTP/1.1 403 Forbidden\r\n\r\n<html>").await, Ok(403));
        assert_eq!(answered(b"HTTP/1.1 101 Switching\r\n\r\n").await, Ok(101));
    }

    #[tokio::test]
    async fn an_answer_without_a_sound_head_is_an_error() {
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; HEAD_BYTES_MAX]].concat();
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(HEAD_BYTES_MAX / 25 + 1);
        for (answer, problem) in [
            (b"".as_slice(), "closed the connection without an answer"),
            (b"HTTP/1.1 200 OK\r\n", "closed the connection without an answer"),
            (b"SSH-2.0-OpenSSH_9.9\r\n", "is not HTTP/1.1"),
            (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n", "sent bytes that nobody asked for"),
            (&endless, "is too large"),
            (&interim, "is too large"),
        ] {
            let found = answered(answer).await.unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }
}
