//! Bytes on a connection: for requests that no client library would send, and for clients that go away.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection to the gateway.
pub struct Connection(TcpStream);

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Sends until the other side has not taken anything for a while; false then, or when it has closed.
    pub async fn send_unless_full(&mut self, bytes: &[u8]) -> bool {
        matches!(tokio::time::timeout(std::time::Duration::from_millis(200), self.0.write_all(bytes)).await, Ok(Ok(())))
    }

    /// Everything until the other side closes.
    pub async fn read_to_close(&mut self) -> String {
        let mut text = Vec::new();
        // A reset after the answer is as good as a close.
        let _ = self.0.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    }

    /// One answer with a Content-Length, leaving the connection open.
    pub async fn read_answer(&mut self) -> String {
        let text = self.read_head().await;
        if text.starts_with("HTTP/1.1 304") {
            return text;
        }
        let head = text.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        text + &String::from_utf8_lossy(&body)
    }

    /// The head of one answer.
    pub async fn read_head(&mut self) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if self.0.read(&mut byte).await.unwrap_or(0) == 0 {
                break;
            }
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}
