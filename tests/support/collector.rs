//! A collector for OTLP by gRPC and by HTTP, on one port, that decodes all that it receives. Unit
//! tests in `telemetry::otlp` use it too.

use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// A test that waits for longer has found a bug.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// See the module. It ends with its runtime.
pub struct Collector {
    pub address: SocketAddr,
    received: Arc<Mutex<Received>>,
    changed: watch::Receiver<()>,
    status: Arc<AtomicU16>,
}

/// All that was received so far.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub spans: Vec<Span>,
    pub metrics: Vec<Metric>,
    pub records: Vec<LogRecord>,
    pub resources: Vec<Resource>,
    /// Path and headers of each request.
    pub heads: Vec<(String, HeaderMap)>,
}

#[derive(Clone)]
struct Receiving {
    received: Arc<Mutex<Received>>,
    changed: Arc<watch::Sender<()>>,
    status: Arc<AtomicU16>,
}

impl Collector {
    /// Listens on a free port.
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), None).await
    }

    /// Listens at an address, by TLS with an acceptor.
    pub async fn start_at(address: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, changed) = watch::channel(());
        let receiving = Receiving {
            received: Arc::default(),
            changed: Arc::new(sender),
            status: Arc::new(AtomicU16::new(200)),
        };
        let (received, status) = (Arc::clone(&receiving.received), Arc::clone(&receiving.status));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (receiving, tls) = (receiving.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => receiving.serve(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                receiving.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, received, changed, status }
    }

    /// Answers with this status of HTTP from now on.
    pub fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Waits until what was received has what a test looks for.
    pub async fn until<T>(&self, find: impl Fn(&Received) -> Option<T>) -> T {
        let mut changed = self.changed.clone();
        let found = async {
            loop {
                changed.borrow_and_update();
                if let Some(found) = find(&self.received.lock()) {
                    return found;
                }
                changed.changed().await.expect("the collector has ended");
            }
        };
        let found = timeout(LONGEST_WAIT, found).await;
        found.unwrap_or_else(|_| panic!("not received: {:?}", self.received.lock()))
    }
}

impl Receiving {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let answer = service_fn(move |request| {
            let receiving = self.clone();
            async move { Ok::<_, Infallible>(receiving.take(request).await) }
        });
        let builder = Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn take(&self, request: Request<Incoming>) -> Response<BoxBody<Bytes, Infallible>> {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return Response::default() };
        let body = body.to_bytes();
        let path = head.uri.path().to_owned();
        let is_grpc = path.starts_with("/opentelemetry.proto.collector.");
        let status = self.status.load(Ordering::Relaxed);
        let message = message(&head.headers, is_grpc, &body);
        {
            let mut received = self.received.lock();
            received.heads.push((path.clone(), head.headers));
            if status == 200 {
                received.add(&path, &message);
            }
        }
        self.changed.send_replace(());
        let mut response = if is_grpc { accepted_by_grpc() } else { accepted_by_http() };
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        if status != 200 {
            *response.body_mut() = Full::default().boxed();
        }
        response
    }
}

/// The message in a body, decompressed as its headers say.
fn message(headers: &HeaderMap, is_grpc: bool, body: &[u8]) -> Vec<u8> {
    let (name, is_compressed, sent) = if is_grpc {
        ("grpc-encoding", body[0] == 1, &body[5..])
    } else {
        ("content-encoding", headers.contains_key("content-encoding"), body)
    };
    if !is_compressed {
        return sent.to_vec();
    }
    assert_eq!(headers[name], "gzip");
    let mut message = Vec::new();
    flate2::read::GzDecoder::new(sent).read_to_end(&mut message).unwrap();
    message
}

/// An empty message of gRPC, then the status as a trailer.
fn accepted_by_grpc() -> Response<BoxBody<Bytes, Infallible>> {
    let name = HeaderName::from_static("grpc-status");
    let trailers = HeaderMap::from_iter([(name, HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from_static(&[0; 5]));
    let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body.boxed());
    let content_type = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", content_type);
    response
}

fn accepted_by_http() -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::default().boxed());
    let content_type = HeaderValue::from_static("application/x-protobuf");
    response.headers_mut().insert("content-type", content_type);
    response
}

impl Received {
    fn add(&mut self, path: &str, message: &[u8]) {
        if path.contains("race") {
            let request = ExportTraceServiceRequest::decode(message).unwrap();
            for of_resource in request.resource_spans {
                self.resources.extend(of_resource.resource);
                let scopes = of_resource.scope_spans.into_iter();
                self.spans.extend(scopes.flat_map(|scope| scope.spans));
            }
        } else if path.contains("etrics") {
            let request = ExportMetricsServiceRequest::decode(message).unwrap();
            for of_resource in request.resource_metrics {
                self.resources.extend(of_resource.resource);
                let scopes = of_resource.scope_metrics.into_iter();
                self.metrics.extend(scopes.flat_map(|scope| scope.metrics));
            }
        } else {
            let request = ExportLogsServiceRequest::decode(message).unwrap();
            for of_resource in request.resource_logs {
                self.resources.extend(of_resource.resource);
                let scopes = of_resource.scope_logs.into_iter();
                self.records.extend(scopes.flat_map(|scope| scope.log_records));
            }
        }
    }
}

/// The value of an attribute as text.
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    Some(match found.value.clone()?.value? {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::DoubleValue(number) => number.to_string(),
        any_value::Value::BoolValue(value) => value.to_string(),
        other => format!("{other:?}"),
    })
}
