//! What is to be sent: which webhook's turn it is, and what became of what was sent.
//!
//! The emulator sends nothing itself. A shell takes what is to go out
//! ([`Emulator::take_outgoing`](super::Emulator::take_outgoing)), sends it, and says what came
//! back. Each webhook has at most one delivery on its way, so that its deliveries arrive in order
//! and a slow receiver holds up only itself. The deliveries themselves stay in the webhooks'
//! records, which are bounded; here are only their names.

use std::time::Duration;

use bytes::Bytes;
use http::Request;

use super::envelope;
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::world::webhooks::queue::OutgoingId;
use crate::emulator::world::{Certificate, Failure, Mailbox, Receipt, Standing, World};

/// What waits at all webhooks together; beyond that the oldest of the one with the most is
/// forgotten.
const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A delivery to be sent now.
#[derive(Debug)]
pub struct Outgoing {
    /// To be handed back with the receipt.
    pub id: OutgoingId,
    /// The request as it is to be sent, but for what every HTTP client adds (`Host`,
    /// `Content-Length`).
    pub request: Request<Bytes>,
    /// Which certificates of the receiver are accepted.
    pub certificate: Certificate,
}

/// A webhook has a new delivery: it gets its turn unless it has one.
pub fn queue(world: &mut World, mailbox: Mailbox) {
    let Some(hook) = world.hook_mut(mailbox) else { return };
    let bytes = hook.deliveries.waiting_bytes();
    world.outbox.note_waiting(mailbox, bytes);
    bound(world, WAITING_BYTES_MAX);
    let Some(hook) = world.hook_mut(mailbox) else { return };
    if hook.deliveries.standing == Standing::Idle && hook.deliveries.waiting() > 0 {
        hook.deliveries.standing = Standing::Queued;
        world.outbox.queued.push_back(mailbox);
    }
}

/// Forgets what waits until no more than this is left.
fn bound(world: &mut World, bytes_max: usize) {
    while world.outbox.waiting_bytes > bytes_max {
        let Some(most) = world
            .outbox
            .waiting
            .iter()
            .max_by_key(|(_, bytes)| **bytes)
            .map(|(mailbox, _)| *mailbox)
        else {
            return;
        };
        let left =
            world.hook_mut(most).filter(|hook| hook.deliveries.waiting() > 0).map_or(0, |hook| {
                hook.deliveries.forget_waiting();
                hook.deliveries.waiting_bytes()
            });
        world.outbox.note_waiting(most, left);
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

fn take_next(
    world: &mut World,
    dialect: Dialect,
    now: Timestamp,
    mailbox: Mailbox,
) -> Option<Outgoing> {
    let hook = world.hook_mut(mailbox)?;
    hook.deliveries.standing = Standing::Idle;
    let config = hook.config.clone();
    let delivery = hook.deliveries.take_waiting()?;
    // What is sent is what the webhook's configuration says now, not when the event occurred.
    let posted = envelope::posted(&config, delivery);
    delivery.at = now;
    delivery.posted = Some(posted.clone());
    let delivery = delivery.clone();
    let left = hook.deliveries.waiting_bytes();
    let Some(request) = envelope::request(dialect, hook, &delivery, &posted) else {
        hook.deliveries.settle(
            delivery.id,
            Receipt::Failed { failure: Failure::Unreachable, duration: Duration::ZERO },
        );
        queue(world, mailbox);
        return None;
    };
    hook.deliveries.standing = Standing::UnderWay;
    world.outbox.note_waiting(mailbox, left);
    world.outbox.issued += 1;
    let id = OutgoingId(world.outbox.issued);
    world.outbox.under_way.insert(id, (mailbox, delivery.id));
    Some(Outgoing { id, request, certificate: config.certificate })
}

/// Notes what became of a delivery; its webhook's next one gets its turn. Unknown ids are of a
/// world that was reset.
pub fn settle(world: &mut World, id: OutgoingId, receipt: Receipt) {
    let Some((mailbox, delivery)) = world.outbox.under_way.remove(&id) else { return };
    let Some(hook) = world.hook_mut(mailbox) else { return };
    hook.deliveries.settle(delivery, receipt);
    hook.deliveries.standing = Standing::Idle;
    queue(world, mailbox);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::events::webhooks::{self, Happening, Letter};
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;
    use crate::emulator::world::Target;

    #[test]
    fn what_waits_at_all_webhooks_is_bounded_and_the_one_with_the_most_loses_its_oldest() {
        let now = Timestamp::from_secs(1_800_000_000);
        let mut world = seed::world(&Options::default(), now);
        let of_organizations =
            world.organizations.values().flat_map(|organization| organization.hooks.values());
        let hooks: Vec<Mailbox> = of_organizations
            .chain(world.app_hooks.values())
            .map(crate::emulator::world::Hook::mailbox)
            .take(2)
            .collect();
        let [much, little] = hooks[..] else { panic!("the seed has two webhooks: {hooks:?}") };
        assert!(matches!(much.target, Target::Organization(_)));
        for (mailbox, count) in [(much, 5), (little, 2)] {
            for _ in 0..count {
                let letter = Letter {
                    repository: None,
                    installation: None,
                    payload: "x".repeat(100).into(),
                };
                webhooks::deliver(
                    &mut world,
                    now,
                    mailbox,
                    Happening { event: "ping", action: None },
                    letter,
                );
            }
        }
        assert_eq!(world.outbox.waiting_bytes, 700);
        bound(&mut world, 450);
        assert_eq!(
            [much, little]
                .map(|mailbox| world.hook_mut(mailbox).map_or(0, |hook| hook.deliveries.waiting())),
            [2, 2]
        );
        assert_eq!(world.outbox.waiting_bytes, 400);
        assert_eq!(take(&mut world, Dialect::Github, now).len(), 2);
        assert_eq!(world.outbox.waiting_bytes, 200);
        world.outbox.forget(much);
        assert_eq!(world.outbox.waiting_bytes, 100);
    }
}
