//! Handlers of requests. A [`Frontend`] renews its handler when the config is reloaded; a handler
//! keeps one config for a whole request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::gateway::assembly::Gateway;
use crate::gateway::reload::Current;

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
}

/// The HTTP side of a listener, for requests under one config.
pub struct Handler {
    pub(super) gateway: Arc<Gateway>,
    pub(super) scheme: &'static str,
    /// Tells connections apart where they share something.
    pub(super) connection: u64,
}

impl Frontend {
    /// Creates the application of a listener with this scheme, `http` or `https`.
    pub fn new(current: &Arc<Current>, scheme: &'static str) -> Self {
        Self { current: Arc::clone(current), scheme }
    }

    /// A handler for a new connection.
    pub(super) fn handler(&self) -> Handler {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        self.handler_of(CONNECTIONS.fetch_add(1, Ordering::Relaxed))
    }

    /// A handler for the connection of this number, under the current config.
    pub(super) fn handler_of(&self, connection: u64) -> Handler {
        Handler { gateway: self.current.gateway(), scheme: self.scheme, connection }
    }

    /// Moves `handler` to the current config; returns true if it changed.
    pub(super) fn renew(&self, handler: &mut Handler) -> bool {
        let is_old = !self.current.is(&handler.gateway);
        if is_old {
            *handler = self.handler_of(handler.connection);
        }
        is_old
    }
}
