//! The connections of a listener: TLS, the choice between HTTP/1.1 and HTTP/2, keep-alive, and
//! answers to heads that are refused.
//!
//! pingora's `ProxyHttp` is not used: its phases begin after the head, and it sets no total
//! deadline for reading the head. This is an application on pingora's streams and sessions;
//! `stages.rs` has the stages of a request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use pingora::ErrorType;
use pingora::protocols::http::v1::server::HttpSession;
use pingora::protocols::l4::stream::Stream as Plain;
use pingora::protocols::{Shutdown as _, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::{sleep_until, timeout};

use crate::clock::timer_now;
use crate::gateway::connections::Place;
use crate::gateway::connections::slot::Turn;
use crate::gateway::error::{GatewayError, Malformed, TLS_HANDSHAKE};
use crate::gateway::request::certified::CertificateNames;
use crate::gateway::request::forwarded::is_trusted;
use crate::gateway::response::{error::render_error, form::Form, render::Content, write};
use crate::gateway::server::connection::proxy_header;
use crate::gateway::server::connection::{
    Connection, LAST_REQUEST_WAIT, Received, Watch, address_of, client_address,
};
use crate::gateway::server::fast_path::{Age, Next};
use crate::gateway::server::handler::{Frontend, Handler};
use crate::gateway::server::http2::Http2Connection;
use crate::gateway::server::request::Known;
use crate::gateway::server::tls::Tls;
use crate::gateway::session::Session;

/// The time for which the rest of a refused request is read. Chosen here: tens of megabytes from
/// nearby.
const LINGER: Duration = Duration::from_secs(5);
/// The same without a readable head. Chosen here: 1,000 such connections take turns.
const UNREADABLE_LINGER: Duration = Duration::from_secs(10);

impl Frontend {
    /// Serves a connection to its end.
    pub(super) async fn serve_connection(
        self: Arc<Self>,
        mut stream: Plain,
        mut place: Place,
        shutdown: &ShutdownWatch,
    ) {
        let handler = self.handler(place.slot());
        let peer = address_of(&stream);
        let listen = &handler.gateway.env.config.listen;
        let is_proxy = peer.is_some_and(|peer| is_trusted(peer, &listen.trusted_proxies));
        let mut is_client = !is_proxy;
        if is_proxy && listen.proxy_protocol {
            // Boxed, as below: ten thousand silent connections would have room for it.
            match Box::pin(handler.proxied(&mut stream, shutdown)).await {
                Some(is_named) => is_client = is_named,
                None => return,
            }
        }
        // A proxy has the connections of all its clients.
        let counted = address_of(&stream).filter(|_| is_client);
        if counted.is_none_or(|address| place.is_of(address)) {
            self.serve_stream(handler, Box::new(stream), shutdown).await;
        }
    }

    /// `None` in any case; it is for the operator `?`.
    async fn serve_stream(
        self: &Arc<Self>,
        mut handler: Handler,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Infallible> {
        let stream = match &self.tls {
            Some(tls) => {
                let secured = Box::pin(handler.secured(tls, stream, shutdown));
                let (stream, names) = secured.await?;
                if names.is_some() {
                    let Handler { connection, slot, awaited, .. } = &handler;
                    handler = self.handler_of(*connection, slot, awaited, names);
                }
                stream
            }
            None => stream,
        };
        let turn = Turn::new(Arc::clone(&handler.slot));
        let mut connection = Box::new(Connection::new(stream, turn));
        let until = timer_now() + handler.gateway.env.config.listen.header_timeout;
        let mut watch = Watch::new(shutdown, &handler.awaited, until);
        let mut age = Age::New;
        // Silent connections wait here, where they take the least memory.
        if connection.more(&mut watch, until).await != Received::Bytes {
            return None;
        }
        handler.slot.sends();
        loop {
            let reads = self.reads(&mut handler, &mut connection, &mut watch, age, shutdown);
            match Box::pin(reads).await {
                Next::Over => {
                    // Without the end of TLS, a client takes the close for an attack.
                    if self.tls.is_some() {
                        let _ = timeout(LAST_REQUEST_WAIT, connection.shutdown()).await;
                    }
                    return None;
                }
                Next::Unreadable(error) => {
                    Box::pin(handler.reject_unread(connection, &mut watch, error)).await;
                    return None;
                }
                Next::Preface => {
                    let http2 = Http2Connection::new(self, handler, connection, &mut watch);
                    Box::pin(http2.serve(shutdown)).await;
                    return None;
                }
                Next::Session(known) => {
                    let served = handler.serve_http1(connection, known, &mut watch);
                    (connection, age) = (Box::pin(served).await?, Age::Used);
                }
            }
        }
    }
}

impl Handler {
    /// Reads the header of the PROXY protocol. Returns true if it names the client, false if the
    /// proxy speaks for itself. `None`: the connection ends.
    async fn proxied(&self, stream: &mut Plain, shutdown: &ShutdownWatch) -> Option<bool> {
        let env = &self.gateway.env;
        let peer = address_of(stream);
        let header = timeout(env.config.listen.header_timeout, proxy_header::read(stream));
        let read = tokio::select! {
            read = header => read,
            () = self.given_up(shutdown) => return None,
        };
        if let Ok(Ok(is_named)) = read {
            return Some(is_named);
        }
        env.connections.without_proxy_header(peer);
        None
    }

    /// Makes the TLS handshake of a connection. Its failures are counted.
    async fn secured(
        &self,
        tls: &Tls,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<(Stream, Option<CertificateNames>)> {
        let env = &self.gateway.env;
        let (address, within) = (client_address(&stream), env.config.listen.header_timeout);
        let accepted = tokio::select! {
            accepted = tls.accept(stream, within, env.clock.now()) => accepted,
            () = self.given_up(shutdown) => return None,
        };
        let problem = match accepted {
            Ok(secured) => return Some(secured),
            Err(problem) => problem,
        };
        env.metrics.refused(None, TLS_HANDSHAKE);
        let client_address = address.map(tracing::field::display);
        tracing::info!(refusal = TLS_HANDSHAKE, client_address, problem, "a TLS handshake failed");
        None
    }

    /// Serves the request whose head the connection has. Returns the connection if it can carry
    /// another request.
    async fn serve_http1(
        &self,
        connection: Box<Connection>,
        known: Option<Box<Known>>,
        watch: &mut Watch,
    ) -> Option<Box<Connection>> {
        let listen = &self.gateway.env.config.listen;
        let mut session = HttpSession::new(connection);
        self.set_timeouts(&mut session);
        match session.read_request().await {
            Ok(Some(_)) => {}
            Err(error) if *error.etype() == ErrorType::InvalidHTTPHeader => {
                let fault = Malformed::Bad("the head is not well-formed HTTP");
                let connection = Connection::of(session.into_inner())?;
                self.reject_unread(connection, watch, GatewayError::Malformed(fault)).await;
                return None;
            }
            Ok(None) | Err(_) => return None,
        }
        // Decided when the answer begins (`stages.rs`).
        session.set_close_on_response_before_downstream_finish(false);
        let mut session = Session::Http1(Box::new(session));
        self.serve(&mut session, known.map(|known| *known)).await.ok()?;
        let Session::Http1(mut session) = session else { return None };
        // A client that does not read must not delay the flush without end.
        timeout(listen.body_timeout, session.finish_body()).await.ok()?.ok()?;
        // A drain that began after the head of the answer ends the connection later.
        let is_kept = session.will_keepalive();
        let mut connection = Connection::of(session.into_inner())?;
        if !is_kept {
            connection.shutdown().await;
        }
        // A close with unread bytes resets the connection, and the client may lose the answer.
        let is_whole = connection.discard(watch, timer_now() + LINGER).await;
        (is_kept && is_whole).then_some(connection)
    }

    fn set_timeouts(&self, session: &mut HttpSession) {
        let listen = &self.gateway.env.config.listen;
        session.set_read_timeout(Some(listen.body_timeout));
        // `response/pacing.rs` bounds each write, and tells a slow client from one that left.
        session.set_write_timeout(None);
        session.set_total_drain_timeout(Some(LINGER));
    }

    /// Answers a connection without a readable head and closes it.
    async fn reject_unread(
        &self,
        mut connection: Box<Connection>,
        watch: &mut Watch,
        error: GatewayError,
    ) {
        self.awaited.end();
        connection.forget();
        let address = connection.client_address();
        let mut session = Session::Http1(Box::new(HttpSession::new(connection)));
        session.close_after_answer();
        let origin = self.gateway.downstream.unknown_origin();
        let now = self.gateway.env.clock.now();
        let content = Content::Made(render_error(&error, &origin, now));
        let form = Form { method: &Method::GET, headers: &HeaderMap::new(), origin: &origin };
        let (head, body) = self.gateway.responder.render_for_session(content, &form, None, now);
        let reason = error.reason();
        self.gateway.env.metrics.refused(None, reason);
        let client_address = address.map(tracing::field::display);
        tracing::warn!(
            refusal = reason,
            client_address,
            "a connection without a readable request was closed"
        );
        let written =
            write::write(&mut session, &Method::GET, head, body, self.pacing(), &mut 0).await;
        // A client that takes no answer gets no time either.
        let Session::Http1(session) = session else { return };
        if let (Ok(()), Some(mut connection)) = (written, Connection::of(session.into_inner())) {
            connection.shutdown().await;
            // The client may still be sending; a reset would take the answer away from it.
            connection.discard(watch, timer_now() + UNREADABLE_LINGER).await;
        }
    }

    /// Waits until a connection that has sent no request is given up after the gateway's stop.
    async fn given_up(&self, shutdown: &ShutdownWatch) {
        // A closed channel means shutdown too.
        let _ = shutdown.clone().wait_for(|stopping| *stopping).await;
        sleep_until(self.awaited.wait_end(timer_now() + LAST_REQUEST_WAIT)).await;
    }
}
