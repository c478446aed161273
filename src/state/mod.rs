//! State that several replicas of the gateway share: the records of limits, copies, and messages.
//!
//! A [`Home`] keeps it: [`memory`] for replicas in one process, [`redis`] for real ones. One suite
//! (`conformance`) holds both to the same behaviour. The records' policy is
//! [`decision::fleet`](crate::decision::fleet); a home only keeps what it decides.
//!
//! Each operation is short or fails: nothing here repeats one, apart from a record that another
//! replica has changed meanwhile. A failed operation may have had its effect.

mod changes;
#[cfg(test)]
pub(crate) mod conformance;
mod far_names;
pub mod finding;
pub mod memory;
pub mod message;
mod peers;
pub mod redis;
#[cfg(test)]
#[path = "../../tests/support/redis_server.rs"]
#[expect(dead_code, reason = "other tests need the rest of it")]
pub(crate) mod redis_server;
mod replica;
mod seal;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use crate::clock::Timestamp;
use crate::decision::fleet::{Answer, Record, ReplicaId, Report};

pub use changes::{Change, Changes, Delivered};
pub use far_names::FarCopies;
pub(crate) use far_names::FarNames;
pub use finding::SharedFinding;
pub use message::{Closed, Content, Heard, Message, News, WriteNews};
pub use peers::Peers;
pub use replica::{Reach, Replica, TOUCH};
pub use seal::{Seal, Unopened};

/// The shared state is out of reach, for this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Away(pub String);

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A thing, and its age by the clock of the home.
    Kept(Bytes, Duration),
    /// Nothing yet: another holder makes it.
    Busy,
    /// Nothing: the holder that asked is to make it.
    Claimed,
}

/// A place of what replicas share. Accounts and keys have the same names for all of them.
#[async_trait]
pub trait Home: Send + Sync {
    /// Enters a report into the record of an account, and returns the answer with the number of
    /// changes by others that it met. `None`: a later report of the replica has come before.
    async fn sync(
        &self,
        account: &str,
        id: ReplicaId,
        report: &Report,
    ) -> Result<(Option<Answer>, u32), Away>;

    /// Ends the parts of a replica that stops.
    async fn leave(&self, account: &str, id: ReplicaId) -> Result<(), Away>;

    /// Returns the record of an account with the time at the home.
    async fn record(&self, account: &str) -> Result<(Option<Record>, Timestamp), Away>;

    /// Sends a message to all replicas that listen, this one among them.
    async fn publish(&self, message: &Message) -> Result<(), Away>;

    /// Listens for messages for the life of the returned [`News`]. A gap, such as a lost
    /// connection, is news of its own.
    fn listen(&self) -> News;

    /// Returns a thing that is kept under a key, if it is not older than `age_max`. Without one,
    /// claims the right to make it for a time: the others find it busy until it is kept, or the
    /// claim is over. An older thing is there again if the claim ends without a new one.
    async fn find_or_claim(
        &self,
        key: &str,
        holder: &str,
        lifetime: Duration,
        age_max: Duration,
    ) -> Result<Found, Away>;

    /// Keeps a thing for a time, in place of any claim. It may be kept late, and counts as made at
    /// this moment all the same.
    async fn keep(
        &self,
        key: &str,
        thing: Bytes,
        made_at: Instant,
        lifetime: Duration,
    ) -> Result<(), Away>;

    /// Gives a claim back, if this holder has it.
    async fn give_up(&self, key: &str, holder: &str) -> Result<(), Away>;

    /// The reason for which the state is out of reach; `None`: it is in reach.
    fn away(&self) -> Option<String>;
}
