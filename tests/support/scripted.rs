//! An upstream that a test plays byte by byte. The test receives each connection of the gateway,
//! reads the request and writes the response when it chooses.

use std::io::Read as _;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::bounded;

/// The head of the gateway's own question about the state of an account.
const QUESTION: &str = "GET /rate_limit ";

/// Listens until it is dropped.
pub struct ScriptedUpstream {
    listener: TcpListener,
    url: String,
}

/// A connection of the gateway whose first request head has been read.
pub struct ScriptedConnection {
    stream: TcpStream,
    /// The head of the request and any bytes read with it.
    pub request: String,
}

impl ScriptedUpstream {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// The base URL.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Accepts the next connection and reads its first request head. Questions of the gateway's
    /// own, which it asks while an answer is late, are refused.
    pub async fn next(&self) -> ScriptedConnection {
        loop {
            if let Some(connection) = self.next_of_any().await.unless_question().await {
                return connection;
            }
        }
    }

    /// The same for a question of the gateway's own too.
    pub async fn next_of_any(&self) -> ScriptedConnection {
        ScriptedConnection::read_from(bounded(self.listener.accept()).await.unwrap().0).await
    }

    /// Reads the head of the next request, which comes on `connection` or on another that takes its
    /// place. A client may have its answer before the gateway has pooled the connection.
    pub async fn next_reusing(&self, connection: &mut ScriptedConnection) {
        loop {
            // Neither branch loses bytes or a connection when the other one is first.
            let other = tokio::select! {
                has_another = connection.has_another() => {
                    if has_another {
                        connection.read_request().await;
                    } else {
                        *connection = self.next().await;
                    }
                    return;
                }
                other = bounded(self.listener.accept()) => other.unwrap().0,
            };
            let other = ScriptedConnection::read_from(other).await;
            if let Some(other) = other.unless_question().await {
                *connection = other;
                return;
            }
        }
    }

    /// Checks that no further connection has a request.
    pub fn assert_not_asked_again(&self) {
        // The system is asked, because the runtime notices a connection late.
        while let Ok((stream, _)) = SockRef::from(&self.listener).accept() {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut head = [0; 1024];
            let length = (&stream).read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]);
            assert!(head.starts_with(QUESTION), "the upstream was asked again: {head}");
        }
    }
}

impl ScriptedConnection {
    /// Reads the head of another request on the connection.
    pub async fn read_request(&mut self) {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = bounded(self.stream.read_buf(&mut head)).await.unwrap();
            assert!(read > 0, "the gateway has left");
        }
        self.request = String::from_utf8(head).unwrap();
    }

    /// Waits for the begin of another request. False: the gateway has closed the connection.
    async fn has_another(&self) -> bool {
        // A connection is readable at its end too, and sometimes without a reason.
        bounded(self.stream.peek(&mut [0])).await.is_ok_and(|bytes| bytes > 0)
    }

    /// Reads the head of the first request.
    async fn read_from(stream: TcpStream) -> Self {
        let mut connection = Self { stream, request: String::new() };
        connection.read_request().await;
        connection
    }

    /// Refuses a question of the gateway's own.
    async fn unless_question(mut self) -> Option<Self> {
        if !self.request.starts_with(QUESTION) {
            return Some(self);
        }
        self.try_send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
        None
    }

    /// Reads the rest of a request body of this length.
    pub async fn read_body(&mut self, length: usize) {
        let came = self.request.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
        let mut rest = vec![0; length - came];
        bounded(self.stream.read_exact(&mut rest)).await.unwrap();
    }

    /// Reads this many bytes of a request body.
    pub async fn read_bytes(&mut self, count: usize) {
        let mut bytes = vec![0; count];
        bounded(self.stream.read_exact(&mut bytes)).await.unwrap();
    }

    /// Closes the sending side only.
    pub async fn half_closes(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        bounded(self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends as much as the gateway accepts. Returns true if it accepted everything.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        bounded(self.stream.write_all(bytes.as_ref())).await.is_ok()
    }

    /// Waits until the gateway has closed the connection.
    pub async fn left(mut self) {
        let mut rest = Vec::new();
        // A reset counts as a close.
        let _ = bounded(self.stream.read_to_end(&mut rest)).await;
    }
}
