//! Between pingora's listener and the path of a request: deadlines of the head, HTTP/1.1 or HTTP/2, keep-alive.
//!
//! pingora's `ProxyHttp` is not used: its phases begin after the head was read without a total deadline, and every request here is answered by the
//! gateway itself. This is an application on pingora's listener and sessions instead; what happens to a request is in `service.rs`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use pingora::ErrorType;
use pingora::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use tokio::time::timeout;

use super::Gateway;
use super::intake::{HEAD_BYTES_MAX, Malformed, Root};
use super::refuse::Refused;
use super::respond;
use super::rewrite::Origin;

/// How long an unread request body is drained so that its connection can be used again.
const DRAIN_BODY: Duration = Duration::from_secs(5);
/// How HTTP/2's connection preface begins, and no request of HTTP/1.1 that is served here (RFC 9113 §3.4).
const PREFACE_BEGINS: &[u8; 4] = b"PRI ";
/// The length of the whole preface.
const PREFACE_BYTES: usize = 24;

/// A listener's application: bounds the time before the first bytes, tells HTTP/2 from HTTP/1.1, and hands the connection to a [`Door`].
///
/// The framework would look for the whole preface without a deadline, and so never answer a request shorter than that.
pub struct FrontDoor {
    http1: Arc<Door>,
    http2: Arc<Door>,
    header_timeout: Duration,
}

/// The HTTP side of a listener.
pub struct Door {
    pub(super) gateway: Arc<Gateway>,
    pub(super) scheme: &'static str,
    options: HttpServerOptions,
}

impl FrontDoor {
    /// For a listener of this scheme, `http` or `https`.
    pub fn new(gateway: &Arc<Gateway>, scheme: &'static str) -> Self {
        let header_timeout = gateway.config.listen.header_timeout;
        let door = |h2c| {
            let mut options = HttpServerOptions::default();
            options.h2c = h2c;
            options.h2_idle_timeout = Some(gateway.config.listen.idle_timeout);
            Arc::new(Door { gateway: Arc::clone(gateway), scheme, options })
        };
        Self { http1: door(false), http2: door(true), header_timeout }
    }
}

#[async_trait]
impl ServerApp for FrontDoor {
    async fn process_new(self: &Arc<Self>, mut session: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let mut beginning = [0; PREFACE_BEGINS.len()];
        timeout(self.header_timeout, session.try_peek(&mut beginning)).await.ok()?.ok()?;
        if beginning != *PREFACE_BEGINS {
            return self.http1.process_new(session, shutdown).await;
        }
        timeout(self.header_timeout, session.try_peek(&mut [0; PREFACE_BYTES])).await.ok()?.ok()?;
        let _connection = self.http2.gateway.active.connect();
        self.http2.process_new(session, shutdown).await
    }
}

#[async_trait]
impl HttpServerApp for Door {
    async fn process_new_http(self: &Arc<Self>, mut session: ServerSession, shutdown: &ShutdownWatch) -> Option<ReusedHttpStream> {
        let listen = &self.gateway.config.listen;
        let is_reused = session.take_connection_user_context().is_some();
        session.set_pipelining_enabled(false);
        session.set_read_timeout(Some(listen.body_timeout));
        session.set_write_timeout(Some(listen.body_timeout));
        session.set_total_drain_timeout(Some(DRAIN_BODY));
        session.set_keepalive(if *shutdown.borrow() { None } else { Some(listen.idle_timeout.as_secs().max(1)) });
        // pingora counts the pause before a reused connection's next request into the same read.
        let head_deadline = listen.header_timeout + if is_reused { listen.idle_timeout } else { Duration::ZERO };
        let mut stopping = shutdown.clone();
        let read = tokio::select! {
            biased;
            read = timeout(head_deadline, session.read_request()) => read,
            _ = stopping.wait_for(|stopping| *stopping) => return None,
        };
        match read {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return None,
            Ok(Err(error)) => {
                if *error.etype() == ErrorType::InvalidHTTPHeader {
                    self.refuse_unread(&mut session, Refused::Malformed(fault_of_head(&error.to_string()))).await;
                }
                return None;
            }
            Err(_) => {
                if !is_reused {
                    self.refuse_unread(&mut session, Refused::HeadTimeout).await;
                }
                return None;
            }
        }
        let _active = self.gateway.active.enter();
        self.serve(&mut session).await.ok()?;
        if *shutdown.borrow() {
            session.set_keepalive(None);
        }
        let mut settings = HttpPersistentSettings::for_session(&session);
        settings.set_user_context(Box::new(()));
        // Flushing what a client does not read must end some time.
        let stream = timeout(self.gateway.config.listen.body_timeout, session.finish()).await.ok()?.ok().flatten()?;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
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

impl Door {
    /// Refuses what has no readable head; the connection is closed afterwards.
    async fn refuse_unread(&self, session: &mut ServerSession, refused: Refused) {
        session.set_keepalive(None);
        let origin = Origin { base: self.gateway.public_base.clone().unwrap_or_default(), root: Root::Plain };
        let reply = refused.answer(&origin, self.gateway.clock.now());
        self.gateway.metrics.refused(None, refused.reason());
        tracing::info!(refusal = refused.reason(), "a connection without a readable request was closed");
        // It is being closed in any case.
        let _ = respond::write(session, &Method::GET, reply, self.gateway.config.listen.body_timeout).await;
        session.shutdown().await;
    }
}

/// What the framework found wrong with a head; it has its own, higher limits, which are only told by their wording.
fn fault_of_head(error: &str) -> Malformed {
    if error.contains("too many headers") || error.contains("larger than") {
        return Malformed::HeadTooLarge;
    }
    Malformed::Bad("the head is not well-formed HTTP")
}
