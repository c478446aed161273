//! The admin listener: health, metrics and the books, for operators only (CONTRACT §5).
//!
//! The dashboard, the queue of writes and reloading will live here too. It is served by its own small server, so that a flood of clients on the
//! gateway's listeners does not blind the operator.

mod pages;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

use crate::gateway::Gateway;

/// The open admin listener, if there is one.
pub struct Admin {
    address: Option<SocketAddr>,
}

impl Admin {
    /// Opens the listener that the config names and serves it until the process ends: health must be answered while draining.
    pub async fn open(gateway: &Arc<Gateway>) -> io::Result<Self> {
        let Some(address) = gateway.config.listen.admin else { return Ok(Self { address: None }) };
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        tokio::spawn(accept(listener, Arc::clone(gateway)));
        Ok(Self { address: Some(address) })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

async fn accept(listener: TcpListener, gateway: Arc<Gateway>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: the next one may succeed.
            tokio::task::yield_now().await;
            continue;
        };
        let gateway = Arc::clone(&gateway);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&gateway, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(std::time::Duration::from_secs(10));
            // A client of this listener that breaks off is its own loss.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(gateway: &Gateway, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    // Health is for load balancers, which hold no secrets.
    match request.uri().path() {
        "/healthz" => return pages::text(StatusCode::OK, "ok"),
        "/readyz" => return pages::readiness(gateway),
        _ => {}
    }
    if let Some(token) = &gateway.config.listen.admin_token
        && !is_authorized(request, token)
    {
        let mut reply = pages::text(StatusCode::UNAUTHORIZED, "the admin token is needed: Authorization: Bearer TOKEN");
        reply.headers_mut().insert(header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer realm=\"weir admin\""));
        return reply;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return pages::text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here so far");
    }
    match request.uri().path() {
        "/metrics" => pages::metrics(gateway),
        "/api/budgets" => pages::budgets(gateway),
        _ => pages::text(StatusCode::NOT_FOUND, "there is /healthz, /readyz, /metrics and /api/budgets"),
    }
}

fn is_authorized(request: &Request<Incoming>, token: &SecretString) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    given.is_some_and(|given| given.ct_eq(token.expose_secret().as_bytes()).into())
}
