//! Raw bytes on a connection, for requests that no client library sends and for clients that
//! disconnect.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};

use http::Method;
use serde_json::Value;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{KEY, bounded};

/// A connection to the gateway.
pub struct Connection(TcpStream);

/// Status line, header lines in any order with names in lower case, and body.
pub type Parts = (String, BTreeSet<String>, String);

impl From<std::net::TcpStream> for Connection {
    /// Takes over a connection in non-blocking mode.
    fn from(stream: std::net::TcpStream) -> Self {
        Self(TcpStream::from_std(stream).unwrap())
    }
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        Self::try_open(address).await.unwrap()
    }

    pub async fn try_open(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).await.map(Self)
    }

    /// Connects from another address of this machine.
    pub async fn open_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        Self(socket.connect(address).await.unwrap())
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        bounded(self.0.write_all(bytes)).await.unwrap();
    }

    /// Sends bytes. Returns false if the peer had closed before; a later reset is found by reading.
    /// The system is asked, because the runtime notices an end late.
    pub async fn send_unless_closed(&mut self, bytes: &[u8]) -> bool {
        let is_closed = matches!(SockRef::from(&self.0).peek(&mut [MaybeUninit::uninit()]), Ok(0));
        !is_closed && bounded(self.0.write_all(bytes)).await.is_ok()
    }

    /// Sends a complete write of the client `ci` with a JSON body.
    pub async fn send_write(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) {
        let body = body.to_string();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n");
        for (name, value) in headers {
            // Writing to a string cannot fail.
            let _ = write!(request, "{name}: {value}\r\n");
        }
        let _ = write!(request, "Content-Length: {}\r\n\r\n{body}", body.len());
        self.send(request.as_bytes()).await;
    }

    /// Sends bytes. Returns false if the peer accepts none for 200 ms or has closed.
    pub async fn send_unless_full(&mut self, bytes: &[u8]) -> bool {
        matches!(
            tokio::time::timeout(std::time::Duration::from_millis(200), self.0.write_all(bytes))
                .await,
            Ok(Ok(()))
        )
    }

    /// Reads until the peer closes.
    pub async fn read_to_close(&mut self) -> String {
        let mut text = Vec::new();
        // A reset after the response counts as a close.
        let _ = bounded(self.0.read_to_end(&mut text)).await;
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns what the peer sent before it closed; `None` if it stays open for 20 ms.
    pub async fn read_unless_open(&mut self) -> Option<String> {
        tokio::time::timeout(std::time::Duration::from_millis(20), self.0.readable())
            .await
            .ok()?
            .ok()?;
        Some(self.read_to_close().await)
    }

    /// Reads one response with a `Content-Length` and leaves the connection open.
    pub async fn read_answer(&mut self) -> String {
        let text = self.read_head().await;
        if text.starts_with("HTTP/1.1 304") {
            return text;
        }
        let head = text.to_ascii_lowercase();
        let length = head
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next()?.parse().ok())
            .unwrap_or(0);
        text + &String::from_utf8_lossy(&self.read_bytes_or_less(length).await)
    }

    /// Reads exactly `count` bytes.
    pub async fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        bounded(self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// Reads `count` bytes, or fewer if the peer closes before.
    pub async fn read_bytes_or_less(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        // A reset counts as a close.
        let _ = bounded((&mut self.0).take(count as u64).read_to_end(&mut bytes)).await;
        bytes
    }

    /// Reads the head of one response.
    pub async fn read_head(&mut self) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if bounded(self.0.read(&mut byte)).await.unwrap_or(0) == 0 {
                break;
            }
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Reads one response, or its head alone, in parts. Leaves out the lines that begin like one of
    /// `left_out`, because they differ between responses.
    pub async fn read_parts(&mut self, is_head: bool, left_out: &[&str]) -> Parts {
        let text = if is_head { self.read_head().await } else { self.read_answer().await };
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.split("\r\n").map(str::to_owned);
        let status = lines.next().unwrap_or_default();
        let lower = |line: String| {
            line.split_once(": ").map_or(line.clone(), |(name, value)| {
                format!("{}: {value}", name.to_ascii_lowercase())
            })
        };
        (
            status,
            lines
                .map(lower)
                .filter(|line| !left_out.iter().any(|begin| line.starts_with(begin)))
                .collect(),
            body.to_owned(),
        )
    }
}
