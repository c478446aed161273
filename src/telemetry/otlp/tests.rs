//! Export to a collector that listens, to an absent one, and to one that never answers.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use crate::telemetry::init::{TelemetrySettings, subscriber};
use crate::telemetry::spans::{self, ClientCall};

/// A request as the collector received it.
struct Received {
    path: String,
    body: Bytes,
}

/// A collector on a free port that accepts everything.
async fn collector() -> (SocketAddr, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let answer = service_fn(move |request: http::Request<Incoming>| {
                let sender = sender.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request
                        .into_body()
                        .collect()
                        .await
                        .map(Collected::to_bytes)
                        .unwrap_or_default();
                    let _ = sender.send(Received { path, body }).await;
                    Ok::<_, Infallible>(accepted())
                }
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), answer),
            );
        }
    });
    (address, receiver)
}

/// A successful gRPC answer with an empty message: a length prefix of zero, then the status as a
/// trailer.
fn accepted() -> Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>> {
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from_static("0"),
    )]);
    let body = Full::new(Bytes::from_static(&[0; 5]))
        .with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
    response
}

fn finish_spans(exporter: &Exporter, spans: usize) {
    tracing::subscriber::with_default(
        subscriber(&TelemetrySettings::default(), Some(exporter), std::io::sink),
        || {
            for _ in 0..spans {
                drop(spans::server_span(&ClientCall {
                    headers: &HeaderMap::new(),
                    method: (&http::Method::GET).into(),
                    scheme: "http",
                    server_address: "weir.internal",
                    query: None,
                }));
            }
        },
    );
}

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn spans_reach_the_collector_before_the_process_ends() {
    let (address, mut received) = collector().await;
    let exporter = Exporter::start(&format!("http://{address}"), "weir-under-test", 1.0).unwrap();
    finish_spans(&exporter, 1);
    tokio::task::spawn_blocking(move || exporter.shutdown()).await.unwrap();

    let export = received.recv().await.unwrap();
    assert_eq!(export.path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    for text in
        ["weir-under-test", "service.name", "request", "http.request.method", "weir.internal"]
    {
        assert!(contains(&export.body, text), "no `{text}` in the export");
    }
}

#[test]
fn an_absent_collector_neither_blocks_nor_fails_the_exporter() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap();
    let exporter = Exporter::start(&format!("http://{closed}"), "weir", 1.0).unwrap();
    finish_spans(&exporter, QUEUE_SPANS_MAX * 2);
    exporter.shutdown();
}

#[test]
fn a_silent_collector_delays_the_end_by_the_flush_at_most() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter =
        Exporter::start(&format!("http://{}", silent.local_addr().unwrap()), "weir", 1.0).unwrap();
    finish_spans(&exporter, QUEUE_SPANS_MAX * 2);
    let clock = crate::clock::Clock::system();
    let start = clock.now();
    exporter.shutdown();
    let took = clock.now().since(start);
    assert!(took <= FLUSH_MAX + Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn an_export_can_end_on_a_thread_of_the_gateways_runtime() {
    let (address, mut received) = collector().await;
    let exporter = Exporter::start(&format!("http://{address}"), "weir", 1.0).unwrap();
    finish_spans(&exporter, 1);
    let ended = std::thread::spawn(move || exporter.shutdown());
    assert!(received.recv().await.is_some());
    ended.join().unwrap();
    // Built and dropped inside a runtime: neither may panic.
    Exporter::start("http://127.0.0.1:9", "weir", 1.0).unwrap().shutdown();
}
