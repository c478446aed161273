//! An upstream that a test plays itself, byte by byte: each connection of the gateway is handed to
//! the test, which reads the request and says what it wants, when it wants.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// It listens as long as it is there.
pub struct ScriptedUpstream {
    listener: TcpListener,
    url: String,
}

/// One connection of the gateway, of which a request's head was read.
pub struct ScriptedConnection {
    stream: TcpStream,
    /// The request's head, and what came with it.
    pub asked: String,
}

impl ScriptedUpstream {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The next connection, with its first request.
    pub async fn next(&self) -> ScriptedConnection {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut connection = ScriptedConnection { stream, asked: String::new() };
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
        self.asked = String::from_utf8(head).unwrap();
    }

    /// Reads so much of the request's body that all of it has come.
    pub async fn read_body(&mut self, length: usize) {
        let came = self.asked.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
        let mut rest = vec![0; length - came];
        self.stream.read_exact(&mut rest).await.unwrap();
    }

    /// Has no more to say, and does not leave.
    pub async fn falls_silent(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Says this.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Says this as far as the gateway takes it; whether it took all.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Until the gateway has hung up.
    pub async fn left(mut self) {
        let mut rest = Vec::new();
        // A reset is as good.
        let _ = self.stream.read_to_end(&mut rest).await;
    }
}
