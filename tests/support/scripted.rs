//! An upstream that a test plays byte by byte. The test receives each connection of the gateway,
//! reads the request and writes the response when it chooses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

    /// Accepts the next connection and reads its first request head.
    pub async fn next(&self) -> ScriptedConnection {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut connection = ScriptedConnection { stream, request: String::new() };
        connection.read_request().await;
        connection
    }
}

impl ScriptedConnection {
    /// Reads the head of another request on the connection.
    pub async fn read_request(&mut self) {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            assert!(self.stream.read_buf(&mut head).await.unwrap() > 0, "the gateway has left");
        }
        self.request = String::from_utf8(head).unwrap();
    }

    /// Reads the rest of a request body of this length.
    pub async fn read_body(&mut self, length: usize) {
        let came = self.request.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
        let mut rest = vec![0; length - came];
        self.stream.read_exact(&mut rest).await.unwrap();
    }

    /// Reads this many bytes of a request body.
    pub async fn read_bytes(&mut self, count: usize) {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).await.unwrap();
    }

    /// Closes the sending side only.
    pub async fn half_closes(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends as much as the gateway accepts. Returns true if it accepted everything.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Waits until the gateway has closed the connection.
    pub async fn left(mut self) {
        let mut rest = Vec::new();
        // A reset counts as a close.
        let _ = self.stream.read_to_end(&mut rest).await;
    }
}
