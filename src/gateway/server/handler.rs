//! Handlers of requests. A [`Frontend`] renews its handler when the config is reloaded; a handler
//! keeps one config for a whole request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Timestamp;
use crate::decision::floor_rate::FloorRate;
use crate::gateway::active::{ActiveGuard, Awaited};
use crate::gateway::assembly::Gateway;
use crate::gateway::connections::slot::Slot;
use crate::gateway::reload::Current;
use crate::gateway::request::{certified::CertificateNames, clients::Client};
use crate::gateway::response::pacing::{Pacing, Streams};
use crate::gateway::server::tls::Tls;

/// HTTP/2's preface; no HTTP/1.1 request begins so (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A listener's application: bounds the time before the first bytes, tells HTTP/2 from HTTP/1.1,
/// answers hits (`fast_path.rs`), and hands everything else to a [`Handler`].
///
/// The framework would look for the whole preface without a deadline, and so never answer a request
/// shorter than that. It would also read heads of a megabyte (`head.rs`).
pub struct Frontend {
    current: Arc<Current>,
    scheme: &'static str,
    pub(super) tls: Option<Arc<Tls>>,
}

/// The HTTP side of a listener, for requests under one config.
pub struct Handler {
    pub(super) gateway: Arc<Gateway>,
    pub(super) scheme: &'static str,
    /// Tells connections apart where they share something.
    pub(super) connection: u64,
    /// The names in the certificate of the connection's client, if it presented one.
    pub(super) names: Option<CertificateNames>,
    /// The client that its certificate identifies.
    pub(super) certified: Option<Arc<Client>>,
    /// The state of the connection.
    pub(super) slot: Arc<Slot>,
    /// Its next request.
    pub(super) awaited: Arc<Awaited>,
    /// The streams of its HTTP/2 connection that are being written.
    pub(super) streams: Option<Arc<Streams>>,
}

impl Handler {
    /// The floor rate of a connection, for all its answers on the fast path.
    pub(super) fn floor_rate(&self) -> FloorRate {
        let listen = &self.gateway.env.config.listen;
        FloorRate::new(listen.answer_rate_min, listen.body_timeout)
    }

    /// The client that its certificate identifies at this time, and the end of the certificate.
    pub(super) fn certified_at(&self, now: Timestamp) -> Option<(&Arc<Client>, Timestamp)> {
        let until = self.names.as_ref()?.until();
        self.certified.as_ref().filter(|_| now < until).map(|client| (client, until))
    }

    /// The pacing of one answer.
    pub(super) fn pacing(&self) -> Pacing {
        Pacing::new(self.floor_rate(), Arc::clone(&self.slot), self.streams.clone())
    }
}

impl Frontend {
    /// The application of a listener for plain HTTP.
    pub fn plain(current: &Arc<Current>) -> Self {
        Self { current: Arc::clone(current), scheme: "http", tls: None }
    }

    /// The application of a listener for TLS.
    pub fn tls(current: &Arc<Current>, tls: Arc<Tls>) -> Self {
        Self { current: Arc::clone(current), scheme: "https", tls: Some(tls) }
    }

    /// The current gateway.
    pub(super) fn gateway(&self) -> Arc<Gateway> {
        self.current.gateway()
    }

    /// Delays the end of a drain, for a connection.
    pub(super) fn hold(&self) -> ActiveGuard {
        self.gateway().env.active.hold()
    }

    /// A handler for a new connection.
    pub(super) fn handler(&self, slot: &Arc<Slot>) -> Handler {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        let awaited = Awaited::new(&self.gateway().env.active);
        self.handler_of(CONNECTIONS.fetch_add(1, Ordering::Relaxed), slot, &awaited, None)
    }

    /// A handler for the connection of this number, whose client has a certificate with these
    /// names, under the current config.
    pub(super) fn handler_of(
        &self,
        connection: u64,
        slot: &Arc<Slot>,
        awaited: &Arc<Awaited>,
        names: Option<CertificateNames>,
    ) -> Handler {
        let (slot, awaited) = (Arc::clone(slot), Arc::clone(awaited));
        let gateway = self.current.gateway();
        let clients = gateway.router.clients();
        let certified = names.as_ref().and_then(|names| clients.certified(names)).map(Arc::clone);
        let scheme = self.scheme;
        Handler { gateway, scheme, connection, names, certified, slot, awaited, streams: None }
    }

    /// The same handler under the current config, if that is another one.
    pub(super) fn renewed(&self, handler: &Handler) -> Option<Handler> {
        if self.current.is(&handler.gateway) {
            return None;
        }
        let Handler { connection, slot, awaited, names, .. } = handler;
        let renewed = self.handler_of(*connection, slot, awaited, names.clone());
        Some(Handler { streams: handler.streams.clone(), ..renewed })
    }
}
