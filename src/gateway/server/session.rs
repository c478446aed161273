//! The sessions between pingora's listener and the stages of a request: deadlines of the head,
//! HTTP/1.1 or HTTP/2, keep-alive.
//!
//! pingora's `ProxyHttp` is not used: its phases begin after the head, and it sets no total
//! deadline for reading the head. This is an application on pingora's listener and sessions;
//! `stages.rs` has the stages of a request.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Method};
use pingora::ErrorType;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::protocols::{Peek as _, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock::timer_now;
use crate::gateway::error::{GatewayError, Malformed};
use crate::gateway::request::validate::HEAD_BYTES_MAX;
use crate::gateway::response::{error::render_error, form::Form, render::Content, write};
use crate::gateway::server::connection::{Connection, Watch};
use crate::gateway::server::fast_path::{Age, Next};
use crate::gateway::server::handler::{Frontend, Handler};
use crate::gateway::server::request::Known;

/// The time for which an unread request body is drained so that its connection can be reused.
const DRAIN_BODY: Duration = Duration::from_secs(5);

const PREFACE_BYTES: usize = 24;

/// The HTTP/2 side of a listener.
struct Http2Frontend {
    front: Arc<Frontend>,
    options: HttpServerOptions,
}

#[async_trait]
impl ServerApp for Frontend {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let mut connection = Box::new(Connection::new(stream));
        let mut watch = Watch::new(shutdown);
        let mut age = Age::New;
        let mut handler = self.handler();
        loop {
            match self.reads(&mut handler, &mut connection, &mut watch, age, shutdown).await {
                Next::Over => return None,
                Next::Unreadable(error) => {
                    handler.reject_unread(&mut ServerSession::new_http1(connection), error).await;
                    return None;
                }
                Next::Preface => {
                    let listen = &handler.gateway.env.config.listen;
                    timeout(listen.header_timeout, connection.try_peek(&mut [0; PREFACE_BYTES]))
                        .await
                        .ok()?
                        .ok()?;
                    let _connection = handler.gateway.env.active.connect();
                    let mut options = HttpServerOptions::default();
                    options.h2c = true;
                    options.h2_idle_timeout = Some(listen.idle_timeout);
                    return Arc::new(Http2Frontend { front: Arc::clone(self), options })
                        .process_new(connection, shutdown)
                        .await;
                }
                Next::Session { known, deadline } => {
                    let session = ServerSession::new_http1(connection);
                    let served = handler.one(session, known, deadline, age, shutdown);
                    let stream = Box::pin(served).await?;
                    (connection, age) = (Connection::of(stream)?, Age::Used);
                }
            }
        }
    }
}

#[async_trait]
impl HttpServerApp for Http2Frontend {
    /// The framework calls this for HTTP/2, with one session per request.
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let handler = self.front.handler();
        let deadline = timer_now() + handler.gateway.env.config.listen.header_timeout;
        let stream = handler.one(session, None, deadline, Age::New, shutdown).await?;
        Some(ReusedHttpStream::new(stream, None))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }

    fn h2_options(&self) -> Option<H2Options> {
        let mut options = H2Options::default();
        options.max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
        options.max_concurrent_streams(250);
        Some(options)
    }
}

impl Handler {
    /// Serves one request of a session, whose head arrives by `deadline` or never. Returns the
    /// connection if it can carry another request.
    async fn one(
        &self,
        mut session: ServerSession,
        known: Option<Box<Known>>,
        deadline: Instant,
        age: Age,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let listen = &self.gateway.env.config.listen;
        session.set_pipelining_enabled(false);
        session.set_read_timeout(Some(listen.body_timeout));
        session.set_write_timeout(Some(listen.body_timeout));
        session.set_total_drain_timeout(Some(DRAIN_BODY));
        let keepalive = listen.idle_timeout.as_secs().max(1);
        session.set_keepalive((!*shutdown.borrow()).then_some(keepalive));
        let mut stopping = shutdown.clone();
        let read = tokio::select! {
            biased;
            read = timeout_at(deadline, session.read_request()) => read,
            _ = stopping.wait_for(|stopping| *stopping) => return None,
        };
        match read {
            Ok(Ok(true)) => {}
            Ok(Err(error)) if *error.etype() == ErrorType::InvalidHTTPHeader => {
                let fault = GatewayError::Malformed(fault_of_head(&error.to_string()));
                self.reject_unread(&mut session, fault).await;
                return None;
            }
            Err(_) if age == Age::New => {
                self.reject_unread(&mut session, GatewayError::HeadTimeout).await;
                return None;
            }
            Ok(Ok(false) | Err(_)) | Err(_) => return None,
        }
        let _active = self.gateway.env.active.enter();
        self.serve(&mut session, known.map(|known| *known)).await.ok()?;
        if *shutdown.borrow() {
            session.set_keepalive(None);
        }
        // A client that does not read must not delay the flush without end.
        let stream = timeout(listen.body_timeout, session.finish()).await.ok()?.ok().flatten()?;
        // No byte of a next request was read ahead; otherwise the framework returns no connection.
        Some(stream.into_parts().0)
    }

    /// Answers a connection without a readable head and closes it.
    async fn reject_unread(&self, session: &mut ServerSession, error: GatewayError) {
        session.set_keepalive(None);
        let origin = self.gateway.downstream.unknown_origin();
        let now = self.gateway.env.clock.now();
        let content = Content::Made(render_error(&error, &origin, now));
        let form = Form { method: &Method::GET, headers: &HeaderMap::new(), origin: &origin };
        let (head, body) = self.gateway.responder.render_for_session(content, &form, None, now);
        let reason = error.reason();
        self.gateway.env.metrics.refused(None, reason);
        tracing::info!(refusal = reason, "a connection without a readable request was closed");
        let pause_max = self.gateway.env.config.listen.body_timeout;
        // The connection closes in any case.
        let _ = write::write(session, &Method::GET, head, body, pause_max).await;
        session.shutdown().await;
    }
}

/// Classifies the framework's error about a head. The framework has its own, higher limits and
/// reports them only by their wording.
fn fault_of_head(error: &str) -> Malformed {
    if error.contains("too many headers") || error.contains("larger than") {
        return Malformed::HeadTooLarge;
    }
    Malformed::Bad("the head is not well-formed HTTP")
}
