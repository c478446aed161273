//! An upstream whose responses a test computes from the head of each request. It records every
//! exchange.
//!
//! Request bodies are not read: this upstream is for reads.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// The running upstream.
pub struct Origin {
    url: String,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

/// A request and the status of its response.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub headers: HeaderMap,
    pub status: u16,
}

impl Exchange {
    /// The value of a header, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// The secret after `Bearer `, or an empty string.
    pub fn token(&self) -> &str {
        token(&self.headers)
    }
}

/// The value of a header, or an empty string.
pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// The secret after `Bearer `, or an empty string.
pub fn token(headers: &HeaderMap) -> &str {
    header(headers, "authorization").strip_prefix("Bearer ").unwrap_or_default()
}

impl Origin {
    /// Listens until the runtime ends.
    pub async fn start<F>(answer: impl Fn(Request<()>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Bytes>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (answer, exchanges) = (Arc::new(answer), Arc::<Mutex<Vec<Exchange>>>::default());
        let log = Arc::clone(&exchanges);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                    async move {
                        let request = request.map(drop);
                        let headers = request.headers().clone();
                        let response = answer(request).await;
                        log.lock().push(Exchange { headers, status: response.status().as_u16() });
                        Ok::<_, Infallible>(response.map(Full::new))
                    }
                });
                // The gateway may close a connection at any time.
                tokio::spawn(async move {
                    drop(
                        // The gateway's clock may be a manual one.
                        hyper::server::conn::http1::Builder::new()
                            .auto_date_header(false)
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        Self { url, exchanges }
    }

    /// The base URL.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// All exchanges so far, in the order of their responses.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.exchanges.lock().clone()
    }

    /// The last exchange.
    pub fn last(&self) -> Exchange {
        self.exchanges.lock().last().cloned().expect("nothing was asked")
    }
}
