//! This replica among the others: its home, its id, and what is known of both.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::config;
use crate::decision::fleet::ReplicaId;

use super::redis::RedisHome;
use super::{Away, Home};
use crate::state::message::{Content, Message};

/// This replica.
pub struct Replica {
    home: Arc<dyn Home>,
    id: ReplicaId,
    since: Timestamp,
}

impl Replica {
    /// A replica with this Redis, which begins to connect; `number` is random. Must run on a tokio
    /// runtime.
    pub fn begin(settings: &config::Redis, number: u64, now: Timestamp) -> Arc<Self> {
        let home = Arc::new(RedisHome::begin(settings));
        Arc::new(Self { home, id: ReplicaId(number), since: now })
    }

    /// What it shares with the others.
    pub fn home(&self) -> &Arc<dyn Home> {
        &self.home
    }

    /// Differs from that of every other replica.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Begin of this replica.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Sends a message to the others.
    pub async fn tell(&self, content: Content) -> Result<(), Away> {
        self.home.publish(&Message { from: self.id, content }).await
    }
}
