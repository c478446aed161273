//! Routes that the gateway answers itself: kept writes and deliveries of webhooks.

use http::Method;

use crate::gateway::request::validate::ValidRequest;
use crate::writes::WriteId;

/// The status resource's name in metrics.
pub const OWN_WRITE: &str = "/_weir/writes/{id}";

pub const OWN_WRITES: &str = "/_weir/writes/";

/// Parses the write's identifier out of a request for a status resource.
pub fn own_write_id(valid: &ValidRequest) -> Option<WriteId> {
    let id = valid.path.strip_prefix(OWN_WRITES)?;
    matches!(valid.method, Method::GET | Method::HEAD | Method::DELETE)
        .then(|| id.parse().ok())
        .flatten()
}

pub const WEBHOOKS_PATH: &str = "/_weir/webhooks";

/// True for the delivery of a webhook.
pub fn is_delivery(valid: &ValidRequest) -> bool {
    valid.method == http::Method::POST && valid.path == WEBHOOKS_PATH
}
