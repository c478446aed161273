//! The delivery queue: the webhooks' turns and the results of their deliveries.
//!
//! The emulator sends nothing itself. The server takes the due deliveries
//! (`Emulator::take_outgoing`), sends them and reports the results. Each webhook has at most one
//! delivery under way, which keeps the order and isolates slow receivers. The bounded records of
//! the webhooks hold the deliveries; this queue holds only their ids.

use std::time::Duration;

use bytes::Bytes;
use http::Request;

use super::envelope;
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::world::{
    Certificate, Failure, HookKey, OutgoingId, QueueStatus, Receipt, World,
};

/// The most bytes waiting at all webhooks; beyond that, the webhook with the most loses its oldest.
const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A delivery that is due.
#[derive(Debug)]
pub struct Outgoing {
    /// Returned with the receipt.
    pub id: OutgoingId,
    /// Without the headers that every HTTP client adds (`Host`, `Content-Length`).
    pub request: Request<Bytes>,
    /// The certificates of the receiver that are accepted.
    pub certificate: Certificate,
}

/// Queues a webhook with a new delivery, unless it is queued already.
pub fn queue(world: &mut World, hook_key: HookKey) {
    let Some(hook) = world.hook_mut(hook_key) else { return };
    let bytes = hook.deliveries.waiting_bytes();
    world.delivery_queue.note_waiting(hook_key, bytes);
    bound(world, WAITING_BYTES_MAX);
    let Some(hook) = world.hook_mut(hook_key) else { return };
    if hook.deliveries.status == QueueStatus::Idle && hook.deliveries.waiting() > 0 {
        hook.deliveries.status = QueueStatus::Queued;
        world.delivery_queue.queued.push_back(hook_key);
    }
}

/// Drops waiting deliveries until at most `bytes_max` remain.
fn bound(world: &mut World, bytes_max: usize) {
    while world.delivery_queue.waiting_bytes > bytes_max {
        let waiting = world.delivery_queue.waiting.iter();
        let Some((most, _)) = waiting.max_by_key(|(_, bytes)| **bytes) else { return };
        let most = *most;
        let hook = world.hook_mut(most).filter(|hook| hook.deliveries.waiting() > 0);
        let left = hook.map_or(0, |hook| {
            hook.deliveries.forget_waiting();
            hook.deliveries.waiting_bytes()
        });
        world.delivery_queue.note_waiting(most, left);
    }
}

/// Takes each webhook's next delivery, up to the limit of deliveries under way.
pub fn take(world: &mut World, dialect: Dialect, now: Timestamp) -> Vec<Outgoing> {
    let mut taken = Vec::new();
    while world.delivery_queue.has_outgoing() {
        let Some(hook_key) = world.delivery_queue.queued.pop_front() else { break };
        taken.extend(take_next(world, dialect, now, hook_key));
    }
    taken
}

fn take_next(
    world: &mut World,
    dialect: Dialect,
    now: Timestamp,
    hook_key: HookKey,
) -> Option<Outgoing> {
    let hook = world.hook_mut(hook_key)?;
    hook.deliveries.status = QueueStatus::Idle;
    let config = hook.config.clone();
    let delivery = hook.deliveries.take_waiting()?;
    // The current configuration applies, not the one at the time of the event.
    let posted = envelope::posted(&config, delivery);
    delivery.at = now;
    delivery.posted = Some(posted.clone());
    let delivery = delivery.clone();
    let left = hook.deliveries.waiting_bytes();
    let Some(request) = envelope::request(dialect, hook, &delivery, &posted) else {
        let (failure, duration) = (Failure::Unreachable, Duration::ZERO);
        hook.deliveries.settle(delivery.id, Receipt::Failed { failure, duration });
        queue(world, hook_key);
        return None;
    };
    hook.deliveries.status = QueueStatus::UnderWay;
    world.delivery_queue.note_waiting(hook_key, left);
    world.delivery_queue.issued += 1;
    let id = OutgoingId(world.delivery_queue.issued);
    world.delivery_queue.under_way.insert(id, (hook_key, delivery.id));
    Some(Outgoing { id, request, certificate: config.certificate })
}

/// Queues the webhook's next delivery. Unknown ids belong to a world before a reset.
pub fn settle(world: &mut World, id: OutgoingId, receipt: Receipt) {
    let Some((hook_key, delivery)) = world.delivery_queue.under_way.remove(&id) else { return };
    let Some(hook) = world.hook_mut(hook_key) else { return };
    hook.deliveries.settle(delivery, receipt);
    hook.deliveries.status = QueueStatus::Idle;
    queue(world, hook_key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::events::webhooks::{self, EventPayload, WebhookEvent};
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;
    use crate::emulator::world::Target;

    #[test]
    fn a_full_queue_drops_deliveries_of_the_longest_backlog() {
        let now = Timestamp::from_secs(1_800_000_000);
        let mut world = seed::world(&Options::default(), now);
        let of_organizations =
            world.organizations.values().flat_map(|organization| organization.hooks.values());
        let hooks: Vec<HookKey> = of_organizations
            .chain(world.app_hooks.values())
            .map(crate::emulator::world::Hook::hook_key)
            .take(2)
            .collect();
        let [much, little] = hooks[..] else { panic!("the seed has two webhooks: {hooks:?}") };
        assert!(matches!(much.target, Target::Organization(_)));
        for (hook_key, count) in [(much, 5), (little, 2)] {
            for _ in 0..count {
                let payload = EventPayload {
                    repository: None,
                    installation: None,
                    payload: "x".repeat(100).into(),
                };
                webhooks::deliver(
                    &mut world,
                    now,
                    hook_key,
                    WebhookEvent { name: "ping", action: None },
                    payload,
                );
            }
        }
        assert_eq!(world.delivery_queue.waiting_bytes, 700);
        bound(&mut world, 450);
        assert_eq!(
            [much, little].map(|hook_key| world
                .hook_mut(hook_key)
                .map_or(0, |hook| hook.deliveries.waiting())),
            [2, 2]
        );
        assert_eq!(world.delivery_queue.waiting_bytes, 400);
        assert_eq!(take(&mut world, Dialect::Github, now).len(), 2);
        assert_eq!(world.delivery_queue.waiting_bytes, 200);
        world.delivery_queue.forget(much);
        assert_eq!(world.delivery_queue.waiting_bytes, 100);
    }
}
