//! What is to be sent: which webhook's turn it is, and what became of what was sent.
//!
//! The emulator sends nothing itself. A shell takes what is to go out ([`Emulator::take_outgoing`](super::Emulator::take_outgoing)), sends it,
//! and says what came back. Each webhook has at most one delivery on its way, so that its deliveries arrive in order and a slow receiver
//! holds up only itself. The deliveries themselves stay in the webhooks' records, which are bounded; here are only their names.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use http::Request;

use super::envelope;
use super::world::{Certificate, Failure, Mailbox, Receipt, Standing, World};
use crate::api::Dialect;
use crate::clock::Timestamp;

/// As many deliveries are on their way at once.
const UNDER_WAY_MAX: usize = 200;

/// Names a delivery between its taking and its receipt. Never used twice, also after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutgoingId(u64);

/// A delivery to be sent now.
#[derive(Debug)]
pub struct Outgoing {
    /// To be handed back with the receipt.
    pub id: OutgoingId,
    /// The request as it is to be sent, but for what every HTTP client adds (`Host`, `Content-Length`).
    pub request: Request<Bytes>,
    /// Which certificates of the receiver are accepted.
    pub certificate: Certificate,
}

/// The webhooks that have something to send, in the order of their turns, and what is on its way.
#[derive(Debug, Default)]
pub struct Outbox {
    queued: VecDeque<Mailbox>,
    /// Which delivery of which webhook.
    under_way: BTreeMap<OutgoingId, (Mailbox, u64)>,
    issued: u64,
}

impl Outbox {
    /// The outbox of a world that takes this one's place. What is on its way belongs to no webhook of that world.
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

    /// A webhook that no longer exists has no turn.
    pub fn forget(&mut self, mailbox: Mailbox) {
        self.queued.retain(|queued| *queued != mailbox);
    }
}

/// A webhook has a new delivery: it gets its turn unless it has one.
pub fn queue(world: &mut World, mailbox: Mailbox) {
    let Some(hook) = world.hook_mut(mailbox) else { return };
    if hook.deliveries.standing == Standing::Idle && hook.deliveries.waiting() > 0 {
        hook.deliveries.standing = Standing::Queued;
        world.outbox.queued.push_back(mailbox);
    }
}

/// As much as may be on its way now, each webhook's next delivery.
pub fn take(world: &mut World, dialect: Dialect, now: Timestamp) -> Vec<Outgoing> {
    let mut taken = Vec::new();
    while world.outbox.has_outgoing() {
        let Some(mailbox) = world.outbox.queued.pop_front() else { break };
        taken.extend(take_next(world, dialect, now, mailbox));
    }
    taken
}

fn take_next(world: &mut World, dialect: Dialect, now: Timestamp, mailbox: Mailbox) -> Option<Outgoing> {
    let hook = world.hook_mut(mailbox)?;
    hook.deliveries.standing = Standing::Idle;
    let config = hook.config.clone();
    let delivery = hook.deliveries.take_waiting()?;
    // What is sent is what the webhook's configuration says now, not when the event occurred.
    let posted = envelope::posted(&config, delivery);
    delivery.at = now;
    delivery.posted = Some(posted.clone());
    let delivery = delivery.clone();
    let Some(request) = envelope::request(dialect, hook, &delivery, &posted) else {
        hook.deliveries.settle(delivery.id, Receipt::Failed { failure: Failure::Unreachable, duration: Duration::ZERO });
        queue(world, mailbox);
        return None;
    };
    hook.deliveries.standing = Standing::UnderWay;
    world.outbox.issued += 1;
    let id = OutgoingId(world.outbox.issued);
    world.outbox.under_way.insert(id, (mailbox, delivery.id));
    Some(Outgoing { id, request, certificate: config.certificate })
}

/// Notes what became of a delivery; its webhook's next one gets its turn. Unknown ids are of a world that was reset.
pub fn settle(world: &mut World, id: OutgoingId, receipt: Receipt) {
    let Some((mailbox, delivery)) = world.outbox.under_way.remove(&id) else { return };
    let Some(hook) = world.hook_mut(mailbox) else { return };
    hook.deliveries.settle(delivery, receipt);
    hook.deliveries.standing = Standing::Idle;
    queue(world, mailbox);
}
