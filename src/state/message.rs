//! Messages between replicas.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::changes::Change;
use super::finding::SharedFinding;
use crate::decision::fleet::ReplicaId;

/// A message to all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The replica that sends it.
    pub from: ReplicaId,
    /// Its content.
    pub content: Content,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// The sender is there. The number is that of such messages.
    Here(u64),
    /// The sender leaves.
    Gone,
    /// The upstream has refused a request of an account.
    Limited(Closed),
    /// Changes that invalidate stored answers, with the number of the message.
    Changed(u64, Vec<Change>),
    /// News of a queued write.
    Write(WriteNews),
    /// Findings of the sender.
    Learned(Vec<SharedFinding>),
    /// The sender has kept a newer copy of an answer, by this name.
    Copied(String),
    /// The sender has noted the changes of this message of that replica.
    Noted(ReplicaId, u64),
}

/// An account that the upstream has closed, as a whole or for some resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// Its name in the config.
    pub account: String,
    /// The rest of the wait of all its requests.
    pub whole_for: Duration,
    /// The rest of the wait of those that spend a resource.
    pub resources_for: Vec<(String, Duration)>,
}

/// News of a queued write, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteNews {
    /// Its turn in its lane has come.
    Turn(u64),
    /// It has ended.
    Ended(u64),
    /// A client of another replica waits for it, or has been promised it.
    Joined(u64),
    /// Redis has lost writes, and all replicas look for theirs.
    Forgotten,
}

/// News for a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message, also of this replica.
    Message(Message),
    /// Messages may have been lost before this one.
    Gap,
}

/// The messages that a replica hears, in order. The first is a [`Heard::Gap`], when it begins to
/// hear.
#[derive(Debug)]
pub struct News(pub(super) mpsc::Receiver<Heard>);

impl News {
    /// Waits for the next one; `None` when the home has ended.
    pub async fn next(&mut self) -> Option<Heard> {
        self.0.recv().await
    }
}
