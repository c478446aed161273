//! The receiving side of webhooks: signatures, duplicates, and memory for deliveries under way.

use std::net::IpAddr;
use std::sync::Arc;

use secrecy::ExposeSecret;

use crate::config::Config;
use crate::decision::scheduler::shared_capacity::Holder;
use crate::gateway::request::body::BodyMemory;
use crate::webhooks::{Keys, Receiver};

/// Memory of their bodies. Chosen here: one of the largest fits beside an address that has all that
/// it may have.
const HELD_BYTES_MAX: u64 = 128 * 1024 * 1024;

pub struct Webhooks {
    receiver: Option<Receiver>,
    /// An unsigned delivery must not take memory from a client.
    bodies: Arc<BodyMemory>,
}

impl Webhooks {
    /// Builds the webhooks of one config; deliveries received by `before` stay known.
    pub fn new(config: &Config, before: Option<&Self>) -> Arc<Self> {
        let earlier = before.and_then(|before| before.receiver.as_ref());
        let receiver = receiver(config)
            .map(|new| if let Some(before) = earlier { new.after(before) } else { new });
        let bodies = before.map_or_else(
            || Arc::new(BodyMemory::of_strangers(HELD_BYTES_MAX)),
            |before| Arc::clone(&before.bodies),
        );
        Arc::new(Self { receiver, bodies })
    }

    /// The receiver of deliveries; `None`: the config has no webhooks.
    pub fn receiver(&self) -> Option<&Receiver> {
        self.receiver.as_ref()
    }

    /// The memory of the deliveries that are being read.
    pub fn bodies(&self) -> &BodyMemory {
        &self.bodies
    }
}

/// The holder of a delivery's memory. Without a key, an address counts as a client: that of IPv4,
/// or the network of IPv6.
pub fn holder(address: Option<IpAddr>, connection: u64) -> Holder {
    let client = match address {
        Some(IpAddr::V4(address)) => address.to_bits(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments().map(u32::from);
            (a << 16 | b) ^ (c << 16 | d)
        }
        None => 0,
    };
    Holder { client, connection }
}

fn receiver(config: &Config) -> Option<Receiver> {
    let webhooks = config.webhooks.as_ref()?;
    let secrets = [Some(&webhooks.secret), webhooks.previous_secret.as_ref()];
    let keys =
        Keys::new(secrets.into_iter().flatten().map(|secret| secret.expose_secret().as_bytes()));
    Some(Receiver::new(keys, config.upstream.dialect))
}
