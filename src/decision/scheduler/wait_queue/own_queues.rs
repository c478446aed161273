//! The queues of single clients, whose slots or own budgets hold them up.

use std::collections::hash_map::Entry;

use smallvec::SmallVec;

use super::{GroupId, QueueId, QueueKey, WaitQueue};
use crate::decision::types::{ClientId, HashMap};

#[derive(Debug, Default)]
pub struct OwnQueues(HashMap<ClientId, SmallVec<[QueueId; 2]>>);

impl OwnQueues {
    pub fn add(&mut self, client: ClientId, queue: QueueId) {
        self.0.entry(client).or_default().push(queue);
    }

    pub fn remove(&mut self, client: ClientId, queue: QueueId) {
        if let Entry::Occupied(mut own) = self.0.entry(client) {
            own.get_mut().retain(|other| *other != queue);
            if own.get().is_empty() {
                own.remove();
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (ClientId, QueueId)> + '_ {
        self.0.iter().flat_map(|(client, own)| own.iter().map(|queue| (*client, *queue)))
    }
}

impl WaitQueue {
    /// The key of the queue that takes this request: that of its client alone, if there is one.
    pub fn key_for(&self, key: QueueKey, client: ClientId) -> QueueKey {
        if !self.own_queues.0.contains_key(&client) {
            return key;
        }
        let alone = key.clone().of_client(client);
        if self.find_queue(&alone).is_some() { alone } else { key }
    }

    /// Adds the queues of this client alone, and releases their held groups.
    pub fn release_of_client(&mut self, client: ClientId, queues: &mut Vec<QueueId>) {
        let Some(own) = self.own_queues.0.get(&client).cloned() else { return };
        for id in own {
            let Some(queue) = self.queues.get(id.index()) else { continue };
            let held = self.held.get(&queue.key.list).into_iter().flatten();
            let is_of_queue = |group: &GroupId| {
                self.groups.get(group.index()).is_some_and(|group| group.key.queue == id)
            };
            let held: Vec<GroupId> = held.map(|(_, group)| *group).filter(is_of_queue).collect();
            for group in held {
                self.release(group);
            }
            queues.push(id);
        }
    }
}
