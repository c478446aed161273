//! The delivery queue: webhooks with waiting deliveries, and deliveries under way.

use std::collections::{BTreeMap, VecDeque};

use super::hooks::HookKey;

/// As many deliveries are on their way at once.
const UNDER_WAY_MAX: usize = 200;

/// Names a delivery between its taking and its receipt. Never used twice, also after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutgoingId(pub u64);

/// The webhooks that have something to send, in the order of their turns, and what is on its way.
#[derive(Debug, Default)]
pub struct DeliveryQueue {
    pub queued: VecDeque<HookKey>,
    /// Which delivery of which webhook.
    pub under_way: BTreeMap<OutgoingId, (HookKey, u64)>,
    pub issued: u64,
    /// The size of what waits at each webhook, and of all of it.
    pub waiting: BTreeMap<HookKey, usize>,
    pub waiting_bytes: usize,
}

impl DeliveryQueue {
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
    pub fn has(&self, hook_key: HookKey) -> bool {
        self.queued.contains(&hook_key)
    }

    /// A webhook that no longer exists has no turn.
    pub fn forget(&mut self, hook_key: HookKey) {
        self.queued.retain(|queued| *queued != hook_key);
        self.note_waiting(hook_key, 0);
    }

    pub fn note_waiting(&mut self, hook_key: HookKey, bytes: usize) {
        let before = if bytes == 0 {
            self.waiting.remove(&hook_key)
        } else {
            self.waiting.insert(hook_key, bytes)
        };
        self.waiting_bytes = (self.waiting_bytes + bytes).saturating_sub(before.unwrap_or(0));
    }
}
