//! The client side of the gateway: its public address, and the space for request bodies.

use std::sync::Arc;

use crate::config::Config;
use crate::gateway::address::{Root, Service};
use crate::gateway::request::{body::BodyMemory, validate::ValidRequest};
use crate::gateway::shared_space::SharedSpace;
use crate::gateway::url_rewrite::map::Origin;

/// Unit of the space for uploads.
const UPLOAD_UNIT_BYTES: u64 = 64 * 1024;

pub struct Downstream {
    public_base: Option<String>,
    server_address: String,
    bodies: BodyMemory,
    uploads: Arc<SharedSpace>,
}

impl Downstream {
    /// Builds the client side of one config; the space for bodies is that of `before`.
    pub fn new(config: &Config, before: Option<&Self>) -> Self {
        let (listen, upload_space) = (&config.listen, config.writes.upload_space);
        let server_address = match (&listen.public_url, listen.http.first()) {
            (Some(url), _) => url.host().to_owned(),
            (None, Some(address)) => address.ip().to_string(),
            (None, None) => "weir".into(),
        };
        Self {
            public_base: listen.public_url.as_ref().map(|url| url.as_str().to_owned()),
            server_address,
            bodies: before.map_or_else(
                || BodyMemory::new(listen.body_memory),
                |before| before.bodies.resized(listen.body_memory),
            ),
            uploads: before.map_or_else(
                || SharedSpace::new(upload_space, UPLOAD_UNIT_BYTES),
                |before| SharedSpace::resized(&before.uploads, upload_space),
            ),
        }
    }

    pub fn unknown_origin(&self) -> Origin {
        Origin { base: self.public_base.clone().unwrap_or_default(), root: Root::Plain }
    }

    /// The address as the client used it; `scheme` is that of the listener.
    pub fn origin(&self, scheme: &str, valid: &ValidRequest) -> Origin {
        let scheme = if valid.is_https { "https" } else { scheme };
        let base =
            self.public_base.clone().unwrap_or_else(|| [scheme, "://", &valid.host].concat());
        // Uploads and GraphQL each have one address outside /api/v3. Their answers keep the address
        // shape that the client uses elsewhere.
        let root = if valid.service == Service::Uploads { Root::V3 } else { valid.root };
        Origin { base, root }
    }

    /// This gateway's address for spans.
    pub fn server_address(&self) -> &str {
        &self.server_address
    }

    /// Space for the bodies of uploads, in temporary files.
    pub fn uploads(&self) -> &Arc<SharedSpace> {
        &self.uploads
    }

    /// Memory for the bodies of waiting writes.
    pub fn bodies(&self) -> &BodyMemory {
        &self.bodies
    }
}
