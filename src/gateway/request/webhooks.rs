//! The receiving side of webhooks: signatures, duplicates, and room for deliveries under way.

use std::sync::Arc;

use secrecy::ExposeSecret;

use crate::config::Config;
use crate::gateway::request::body::BodyMemory;
use crate::gateway::shared_space::SharedSpace;
use crate::webhooks::{Keys, Receiver};

/// The most concurrent deliveries. Chosen here: each takes milliseconds.
const DELIVERIES_MAX: u64 = 256;

/// Memory of their bodies. Chosen here: two of the largest, or thousands of ordinary ones.
const HELD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Capacity for deliveries. An unsigned delivery must not take capacity from a client.
pub struct Deliveries {
    /// A connection takes a fair share of the places, and of the memory.
    pub places: Arc<SharedSpace>,
    pub bodies: BodyMemory,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            places: SharedSpace::new(DELIVERIES_MAX, 1),
            bodies: BodyMemory::new(HELD_BYTES_MAX),
        }
    }
}

impl Deliveries {
    /// The number of deliveries that are being read.
    pub fn under_way(&self) -> usize {
        usize::try_from(self.places.taken()).unwrap_or(usize::MAX)
    }
}

pub struct Webhooks {
    receiver: Option<Receiver>,
    deliveries: Arc<Deliveries>,
}

impl Webhooks {
    /// Builds the webhooks of one config; deliveries received by `before` stay known.
    pub fn new(config: &Config, before: Option<&Self>) -> Arc<Self> {
        let earlier = before.and_then(|before| before.receiver.as_ref());
        let receiver = receiver(config)
            .map(|new| if let Some(before) = earlier { new.after(before) } else { new });
        let deliveries = before.map_or_else(Arc::default, |before| Arc::clone(&before.deliveries));
        Arc::new(Self { receiver, deliveries })
    }

    /// The receiver of deliveries; `None`: the config has no webhooks.
    pub fn receiver(&self) -> Option<&Receiver> {
        self.receiver.as_ref()
    }

    pub fn deliveries(&self) -> &Deliveries {
        &self.deliveries
    }
}

fn receiver(config: &Config) -> Option<Receiver> {
    let webhooks = config.webhooks.as_ref()?;
    let secrets = [Some(&webhooks.secret), webhooks.previous_secret.as_ref()];
    let keys =
        Keys::new(secrets.into_iter().flatten().map(|secret| secret.expose_secret().as_bytes()));
    Some(Receiver::new(keys, config.upstream.dialect))
}
