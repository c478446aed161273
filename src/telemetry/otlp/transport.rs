//! One export to a collector: a gRPC call over HTTP/2, or a POST over HTTP/1.1 (OpenTelemetry
//! Protocol, "OTLP/gRPC" and "OTLP/HTTP").
//!
//! A connection stays open for the next export. Left out: repetition (`batches`).

use std::io;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Signal;
use super::settings::{OtlpProtocol, OtlpTarget};
use crate::telemetry::init::InitError;

/// Longest answer; it holds a sentence.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Flag and length before a message of gRPC.
const PREFIX_BYTES: usize = 5;
static GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Reason why a collector did not take an export. No text has a header of the request.
#[derive(Debug, Error)]
pub(super) enum ExportError {
    /// It may take the same export later.
    #[error("{0}")]
    Away(String),
    /// It will not take this export.
    #[error("{0}")]
    Refused(String),
}

/// Records of an export that the collector took which it rejected, and its reason.
pub(super) type Rejected = Option<(u64, String)>;

/// Exports one signal to one collector.
pub(super) struct Client {
    pub signal: Signal,
    target: OtlpTarget,
    /// Scheme, host and port, for log lines.
    collector: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    connection: Option<Connection>,
}

enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// Creates a client that connects with its first export.
    ///
    /// # Errors
    /// An address that is none of `http` or `https`, or has no host.
    pub fn new(signal: Signal, target: &OtlpTarget) -> Result<Self, InitError> {
        let (scheme, host) = (target.url.scheme_str(), target.url.host());
        let (Some(scheme), Some(host)) = (scheme, host) else { return Err(InitError::Endpoint) };
        let tls = match (scheme, &target.tls) {
            ("http", _) => None,
            ("https", Some(tls)) => {
                let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(|_| InitError::Endpoint)?;
                Some((connector(tls, target.protocol), name))
            }
            _ => return Err(InitError::Endpoint),
        };
        let collector = format!("{scheme}://{host}:{}", port(&target.url));
        Ok(Self { signal, target: target.clone(), collector, tls, connection: None })
    }

    /// Returns the scheme, the host and the port.
    pub fn collector(&self) -> &str {
        &self.collector
    }

    /// Sends an export message, and waits for the answer.
    pub async fn export(&mut self, message: &Bytes) -> Result<Rejected, ExportError> {
        let within = self.target.timeout;
        let message = if self.target.is_compressed { &gzip(message) } else { message };
        let result = timeout(within, self.attempt(message)).await.unwrap_or_else(|_| {
            let seconds = within.as_secs_f64();
            Err(ExportError::Away(format!("no answer within {seconds} s")))
        });
        if matches!(result, Err(ExportError::Away(_))) {
            self.connection = None;
        }
        result
    }

    async fn attempt(&mut self, message: &Bytes) -> Result<Rejected, ExportError> {
        if self.connection.as_ref().is_some_and(Connection::is_open) {
            match self.exchange(message).await {
                // A kept connection may have ended meanwhile.
                Err(ExportError::Away(_)) => {}
                result => return result,
            }
        }
        self.connection = Some(self.connect().await.map_err(ExportError::Away)?);
        self.exchange(message).await
    }

    async fn connect(&self) -> Result<Connection, String> {
        let host = self.target.url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port(&self.target.url))).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        // Only a matter of speed.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.handshake(stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                self.handshake(stream.map_err(|error| format!("no TLS: {error}"))?).await
            }
        }
    }

    async fn handshake<S>(&self, stream: S) -> Result<Connection, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (io, broken) = (TokioIo::new(stream), |error: hyper::Error| error_text(&error));
        match self.target.protocol {
            OtlpProtocol::Grpc => {
                let made = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = made.map_err(broken)?;
                // Its errors are those of its requests.
                tokio::spawn(async { drop(connection.await) });
                Ok(Connection::Http2(sender))
            }
            OtlpProtocol::Http => {
                let (sender, connection) = http1::handshake(io).await.map_err(broken)?;
                tokio::spawn(async { drop(connection.await) });
                Ok(Connection::Http1(sender))
            }
        }
    }

    async fn exchange(&mut self, message: &Bytes) -> Result<Rejected, ExportError> {
        let request = self.request(message);
        let away = |error: hyper::Error| ExportError::Away(error_text(&error));
        let answer = match self.connection.as_mut() {
            Some(Connection::Http1(sender)) => {
                sender.ready().await.map_err(away)?;
                sender.send_request(request).await
            }
            Some(Connection::Http2(sender)) => {
                sender.ready().await.map_err(away)?;
                sender.send_request(request).await
            }
            None => return Err(ExportError::Away("no connection".to_owned())),
        };
        let (head, body) = answer.map_err(away)?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| ExportError::Away("its answer broke off".to_owned()))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let bytes = body.to_bytes();
        match self.target.protocol {
            OtlpProtocol::Grpc => grpc_result(&head, &trailers, &bytes),
            OtlpProtocol::Http => http_result(&head, &bytes),
        }
    }

    /// Makes a request with a message, which is compressed if the target says so.
    fn request(&self, message: &Bytes) -> Request<Full<Bytes>> {
        let authority = self.target.url.authority().map_or("", http::uri::Authority::as_str);
        let own = |text: &str| HeaderValue::try_from(text).ok();
        let mut headers = self.target.headers.clone();
        let agent = concat!("weir/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        let (uri, body, content_type) = match self.target.protocol {
            OtlpProtocol::Grpc => {
                headers.insert(TE, HeaderValue::from_static("trailers"));
                let scheme = if self.tls.is_some() { "https" } else { "http" };
                let uri = format!("{scheme}://{authority}{}", grpc_path(self.signal));
                (uri, framed(message, self.target.is_compressed), "application/grpc")
            }
            OtlpProtocol::Http => {
                headers.extend(own(authority).map(|host| (HOST, host)));
                let path = self.target.url.path().to_owned();
                (path, message.clone(), "application/x-protobuf")
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if self.target.is_compressed {
            let name = match self.target.protocol {
                OtlpProtocol::Grpc => &GRPC_ENCODING,
                OtlpProtocol::Http => &CONTENT_ENCODING,
            };
            headers.insert(name, HeaderValue::from_static("gzip"));
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        request
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        match self {
            Self::Http1(sender) => !sender.is_closed(),
            Self::Http2(sender) => !sender.is_closed(),
        }
    }
}

fn connector(tls: &ClientConfig, protocol: OtlpProtocol) -> TlsConnector {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![match protocol {
        OtlpProtocol::Grpc => b"h2".to_vec(),
        OtlpProtocol::Http => b"http/1.1".to_vec(),
    }];
    TlsConnector::from(Arc::new(tls))
}

fn port(url: &Uri) -> u16 {
    let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
    url.port_u16().unwrap_or(default)
}

const fn grpc_path(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    }
}

fn gzip(message: &Bytes) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = io::Write::write_all(&mut encoder, message).and_then(|()| encoder.finish());
    // Writing to memory cannot fail.
    written.unwrap_or_default().into()
}

/// Puts the prefix of gRPC before a message: its form, and its length.
fn framed(message: &Bytes, is_compressed: bool) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_u8(u8::from(is_compressed));
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(message);
    framed.freeze()
}

/// Reads the result of a gRPC call (gRPC over HTTP/2, "Responses").
fn grpc_result(
    head: &http::response::Parts,
    trailers: &HeaderMap,
    body: &[u8],
) -> Result<Rejected, ExportError> {
    let found = |name: &HeaderName| trailers.get(name).or_else(|| head.headers.get(name));
    let Some(status) = found(&GRPC_STATUS).and_then(|status| status.to_str().ok()) else {
        return http_result(head, &[])
            .and_then(|_| Err(ExportError::Refused("the answer is none of gRPC".to_owned())));
    };
    if status == "0" {
        return Ok(rejected(body.get(PREFIX_BYTES..).unwrap_or_default()));
    }
    let message = found(&GRPC_MESSAGE).map(|text| String::from_utf8_lossy(text.as_bytes()));
    let text = format!("gRPC status {status}: {}", message.unwrap_or_default());
    // The codes that OTLP calls retryable.
    match status {
        "1" | "4" | "8" | "10" | "11" | "14" | "15" => Err(ExportError::Away(text)),
        _ => Err(ExportError::Refused(text)),
    }
}

/// Reads the result of a POST (OTLP/HTTP, "OTLP/HTTP Response").
fn http_result(head: &http::response::Parts, body: &[u8]) -> Result<Rejected, ExportError> {
    let status = head.status;
    if status.is_success() {
        return Ok(rejected(body));
    }
    let text = format!("HTTP status {}", status.as_u16());
    match status.as_u16() {
        429 | 502 | 503 | 504 => Err(ExportError::Away(text)),
        _ => Err(ExportError::Refused(text)),
    }
}

/// Reads the records that the collector has rejected. The answers of all signals have one form.
fn rejected(answer: &[u8]) -> Rejected {
    let partial = ExportTraceServiceResponse::decode(answer).ok()?.partial_success?;
    let records = u64::try_from(partial.rejected_spans).ok().filter(|records| *records > 0)?;
    Some((records, partial.error_message))
}

/// Returns an error with its cause, which hyper leaves out.
fn error_text(error: &hyper::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
