//! The delivery queue: webhooks with waiting deliveries, and deliveries under way.

use std::collections::{BTreeMap, VecDeque};

use super::hooks::HookKey;

const UNDER_WAY_MAX: usize = 200;

/// Identifies a delivery until its receipt. Ids are never reused, even after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutgoingId(pub u64);

/// The webhooks with deliveries to send, in the order of their turns, and the deliveries under way.
#[derive(Debug, Default)]
pub struct DeliveryQueue {
    pub queued: VecDeque<HookKey>,
    /// The webhook and its delivery.
    pub under_way: BTreeMap<OutgoingId, (HookKey, u64)>,
    pub issued: u64,
    /// Bytes waiting at each webhook, and in total.
    pub waiting: BTreeMap<HookKey, usize>,
    pub waiting_bytes: usize,
}

impl DeliveryQueue {
    /// Returns the queue of the next world. Deliveries under way belong to no webhook there.
    pub fn succeeding(&self) -> Self {
        Self { issued: self.issued, ..Self::default() }
    }

    pub fn has_outgoing(&self) -> bool {
        !self.queued.is_empty() && self.under_way.len() < UNDER_WAY_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.under_way.is_empty()
    }

    #[cfg(test)]
    pub fn has(&self, hook_key: HookKey) -> bool {
        self.queued.contains(&hook_key)
    }

    /// A deleted webhook has no turn.
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
