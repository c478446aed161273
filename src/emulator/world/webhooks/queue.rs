//! The delivery queue: webhooks with waiting deliveries, and deliveries under way.

use std::collections::{BTreeMap, VecDeque};

use super::hooks::Mailbox;

/// As many deliveries are on their way at once.
const UNDER_WAY_MAX: usize = 200;

/// Names a delivery between its taking and its receipt. Never used twice, also after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutgoingId(pub u64);

/// The webhooks that have something to send, in the order of their turns, and what is on its way.
#[derive(Debug, Default)]
pub struct Outbox {
    pub queued: VecDeque<Mailbox>,
    /// Which delivery of which webhook.
    pub under_way: BTreeMap<OutgoingId, (Mailbox, u64)>,
    pub issued: u64,
    /// The size of what waits at each webhook, and of all of it.
    pub waiting: BTreeMap<Mailbox, usize>,
    pub waiting_bytes: usize,
}

impl Outbox {
    /// The outbox of a world that takes this one's place. What is on its way belongs to no webhook
    /// of that world.
    pub fn succeeding(&self) -> Self {
        Self { issued: self.issued, ..Self::default() }
    }

    /// Whether there is something to take.
    pub fn has_outgoing(&self) -> bool {
        !self.queued.is_empty() && self.under_way.len() < UNDER_WAY_MAX
    }

    /// Whether nothing waits and nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.under_way.is_empty()
    }

    #[cfg(test)]
    pub fn has(&self, mailbox: Mailbox) -> bool {
        self.queued.contains(&mailbox)
    }

    /// A webhook that no longer exists has no turn.
    pub fn forget(&mut self, mailbox: Mailbox) {
        self.queued.retain(|queued| *queued != mailbox);
        self.note_waiting(mailbox, 0);
    }

    pub fn note_waiting(&mut self, mailbox: Mailbox, bytes: usize) {
        let before = if bytes == 0 {
            self.waiting.remove(&mailbox)
        } else {
            self.waiting.insert(mailbox, bytes)
        };
        self.waiting_bytes = (self.waiting_bytes + bytes).saturating_sub(before.unwrap_or(0));
    }
}
