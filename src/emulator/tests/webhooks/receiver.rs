//! A webhook receiver on a real socket, with scripted behaviour.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::emulator::tests::*;

/// The longest wait of a test for an immediate event.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Certificate and key for localhost, made for these tests: no authority knows them.
const PEM: &[u8] = include_bytes!("receiver.pem");

#[derive(Clone, Copy, Debug)]
pub enum Habit {
    /// Answers with this status and a body of this many bytes.
    Answers(u16, usize),
    /// Reads without an answer.
    Hangs,
    /// Closes the connection after some bytes.
    Closes,
    /// Answers with bytes that are not HTTP.
    Babbles,
    Redirects,
}

#[derive(Debug)]
pub struct Received {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON payload")
    }
}

pub struct Receiver {
    addr: SocketAddr,
    received: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    pub async fn start(habit: Habit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let (sender, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, habit, sender.clone()));
            }
        });
        Self { addr, received }
    }

    /// Starts a TLS receiver with a self-signed certificate, which answers 200.
    pub fn start_tls() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let (sender, received) = mpsc::unbounded_channel();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from_pem_slice(PEM).expect("a key");
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate()], key)
            })
            .expect("a configuration");
        let config = Arc::new(config);
        // Threads, because a blocking TLS server needs no further dependency.
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (config, sender) = (Arc::clone(&config), sender.clone());
                std::thread::spawn(move || serve_tls(stream, config, &sender));
            }
        });
        Self { addr, received }
    }

    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}/hook?x=1", self.addr)
    }

    pub async fn next(&mut self) -> Received {
        tokio::time::timeout(PATIENCE, self.received.recv())
            .await
            .expect("it arrives")
            .expect("the receiver runs")
    }

    pub fn is_idle(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

pub fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(PEM).expect("a certificate")
}

async fn serve(mut stream: TcpStream, habit: Habit, sender: mpsc::UnboundedSender<Received>) {
    if matches!(habit, Habit::Closes | Habit::Babbles) {
        let mut some = [0; 16];
        let _ = stream.read(&mut some).await;
        if matches!(habit, Habit::Babbles) {
            let _ = tokio::io::AsyncWriteExt::write_all(
                &mut stream,
                b"220 mail.example.com ESMTP\r\n\r\n",
            )
            .await;
        }
        return;
    }
    let service = service_fn(move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            // The test may have dropped its receiver.
            let _ = sender.send(Received {
                method: parts.method,
                path: parts.uri.to_string(),
                headers: parts.headers,
                body,
            });
            let response = Response::builder().header("x-receiver", "test");
            let (status, size) = match habit {
                Habit::Answers(status, size) => (status, size),
                Habit::Redirects => (302, 0),
                Habit::Hangs | Habit::Closes | Habit::Babbles => std::future::pending().await,
            };
            let response =
                if status == 302 { response.header("location", "/elsewhere") } else { response };
            Ok::<_, hyper::Error>(
                response
                    .status(status)
                    .body(Full::new(Bytes::from(vec![b'x'; size])))
                    .expect("well formed"),
            )
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Serves one request of a known form: hyper's own, with a length.
fn serve_tls(
    stream: std::net::TcpStream,
    config: Arc<rustls::ServerConfig>,
    sender: &mpsc::UnboundedSender<Received>,
) {
    use std::io::{BufRead, BufReader, Read, Write};
    let Ok(connection) = rustls::ServerConnection::new(config) else { return };
    let mut reader = BufReader::new(rustls::StreamOwned::new(connection, stream));
    let mut line = String::new();
    let mut headers = HeaderMap::new();
    if reader.read_line(&mut line).is_err() || line.is_empty() {
        return;
    }
    let first = line.clone();
    loop {
        line.clear();
        if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.trim().split_once(": ").expect("a header");
        headers.append(
            http::HeaderName::try_from(name).expect("a name"),
            value.parse().expect("a value"),
        );
    }
    let length = headers
        .get("content-length")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let path = first.split(' ').nth(1).unwrap_or("").to_owned();
    let _ = sender.send(Received { method: Method::POST, path, headers, body: body.into() });
    let _ = reader
        .get_mut()
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    let _ = reader.get_mut().flush();
}
