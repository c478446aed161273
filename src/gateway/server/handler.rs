//! What answers requests: by the config in force for each connection, by one config for each request.

use crate::gateway::assembly::Gateway;
use crate::gateway::reload::Current;
use std::sync::Arc;

/// How HTTP/2's connection preface begins, and no request of HTTP/1.1 that is served here (RFC 9113
/// §3.4).
pub(super) const PREFACE_BEGINS: &[u8; 4] = b"PRI ";

/// A listener's application: bounds the time before the first bytes, tells HTTP/2 from HTTP/1.1,
/// answers hits (`hit.rs`), and hands everything else to a [`Handler`].
///
/// The framework would look for the whole preface without a deadline, and so never answer a request
/// shorter than that.
pub struct Frontend {
    current: Arc<Current>,
    scheme: &'static str,
}

/// The HTTP side of a listener, for requests by one config.
pub struct Handler {
    pub(super) gateway: Arc<Gateway>,
    pub(super) scheme: &'static str,
}

impl Frontend {
    /// For a listener of this scheme, `http` or `https`.
    pub fn new(current: &Arc<Current>, scheme: &'static str) -> Self {
        Self { current: Arc::clone(current), scheme }
    }

    /// For a request that begins now.
    pub(super) fn handler(&self) -> Handler {
        Handler { gateway: self.current.gateway(), scheme: self.scheme }
    }

    /// Has `door` go by the config in force; whether it did not.
    pub(super) fn renew(&self, handler: &mut Handler) -> bool {
        let is_old = !self.current.is(&handler.gateway);
        if is_old {
            *handler = self.handler();
        }
        is_old
    }
}
