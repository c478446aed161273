//! Waiting requests by client: the choice of the request that makes room in a full queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::decision::types::{ClientId, HashMap, Priority, Ticket};

/// Ours: below this, stale entries are not worth a pass over all.
const TIDY_FROM: usize = 64;
/// Tickets kept per waiting request of a client before stale ones are dropped. Ours.
const KEPT: usize = 4;

/// Oldest tickets of a client among which one that waits for a slot is looked for. Ours: it takes
/// microseconds.
const LOOKED_AT: usize = 256;

/// Clients with waiting requests. Stale entries are dropped when they are met, or when they are the
/// majority.
#[derive(Debug, Default)]
pub struct ByClient {
    clients: HashMap<ClientId, Waiting>,
    /// The least important and largest on top; a size other than the client's is stale.
    sizes: BinaryHeap<(Reverse<Priority>, usize, ClientId)>,
}

#[derive(Debug)]
struct Waiting {
    priority: Priority,
    count: usize,
    /// In the order of arrival; some are stale.
    tickets: VecDeque<Ticket>,
}

impl ByClient {
    pub fn add(&mut self, client: ClientId, priority: Priority, ticket: Ticket) {
        let waiting = self.clients.entry(client).or_insert_with(|| Waiting {
            priority,
            count: 0,
            tickets: VecDeque::new(),
        });
        waiting.count += 1;
        waiting.tickets.push_back(ticket);
        self.sizes.push((Reverse(waiting.priority), waiting.count, client));
        if self.sizes.len() > 4 * self.clients.len() + TIDY_FROM {
            self.sizes.clear();
            self.sizes.extend(
                self.clients
                    .iter()
                    .map(|(client, waiting)| (Reverse(waiting.priority), waiting.count, *client)),
            );
        }
    }

    pub fn remove(&mut self, client: ClientId, ticket: Ticket, waits: impl Fn(Ticket) -> bool) {
        let Some(waiting) = self.clients.get_mut(&client) else { return };
        waiting.count = waiting.count.saturating_sub(1);
        // A client's requests are mostly served in the order of arrival.
        waiting.tickets.pop_front_if(|first| *first == ticket);
        if waiting.count == 0 {
            self.clients.remove(&client);
        } else if waiting.tickets.len() > KEPT * waiting.count + TIDY_FROM {
            waiting.tickets.retain(|ticket| waits(*ticket));
        }
    }

    /// Newest request of the client with the most waiting requests of the lowest priority; `None`
    /// when the new request itself belongs there.
    pub fn displaced_by(
        &mut self,
        client: ClientId,
        priority: Priority,
        waits: impl Fn(Ticket) -> bool,
    ) -> Option<Ticket> {
        let (Reverse(lowest), most, largest) = self.largest()?;
        let own = self.clients.get(&client).map_or(0, |waiting| waiting.count);
        let makes_room = lowest < priority || lowest == priority && most > own + 1;
        let waiting = self.clients.get_mut(&largest).filter(|_| makes_room)?;
        while waiting.tickets.pop_back_if(|ticket| !waits(*ticket)).is_some() {}
        waiting.tickets.back().copied()
    }

    /// Requests of other clients, some of which wait no longer.
    pub fn of_others(&self, client: ClientId) -> impl Iterator<Item = Ticket> + '_ {
        let others = self.clients.iter().filter(move |(other, _)| **other != client);
        others.flat_map(|(_, waiting)| waiting.tickets.iter().copied().take(LOOKED_AT))
    }

    fn largest(&mut self) -> Option<(Reverse<Priority>, usize, ClientId)> {
        loop {
            let top = *self.sizes.peek()?;
            let (priority, size, client) = top;
            match self.clients.get(&client).map(|waiting| waiting.count) {
                Some(count) if count == size => return Some(top),
                now => {
                    self.sizes.pop();
                    // A shrunken size is entered again; a grown size is there already.
                    self.sizes.extend(
                        now.filter(|count| *count < size).map(|count| (priority, count, client)),
                    );
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.clients.values().map(|waiting| waiting.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_client(waiting: &[(u32, Priority, u64)]) -> ByClient {
        let mut by_client = ByClient::default();
        for (client, priority, ticket) in waiting {
            by_client.add(ClientId(*client), *priority, Ticket(*ticket));
        }
        by_client
    }

    #[test]
    fn the_newest_request_of_the_largest_client_makes_room() {
        let mut by_client = by_client(&[
            (0, Priority::Normal, 1),
            (1, Priority::Normal, 2),
            (0, Priority::Normal, 3),
            (0, Priority::Normal, 4),
        ]);
        assert_eq!(
            by_client.displaced_by(ClientId(2), Priority::Normal, |_| true),
            Some(Ticket(4))
        );
        assert_eq!(
            by_client.displaced_by(ClientId(1), Priority::Normal, |_| true),
            Some(Ticket(4))
        );
        assert_eq!(
            by_client.displaced_by(ClientId(0), Priority::Normal, |_| true),
            None,
            "it has the most itself"
        );
    }

    #[test]
    fn a_lower_priority_makes_room_for_a_higher_one() {
        let mut by_client = by_client(&[
            (0, Priority::Normal, 1),
            (0, Priority::Normal, 2),
            (1, Priority::Batch, 3),
        ]);
        assert_eq!(
            by_client.displaced_by(ClientId(0), Priority::Normal, |_| true),
            Some(Ticket(3))
        );
        assert_eq!(by_client.displaced_by(ClientId(2), Priority::Batch, |_| true), None);
    }

    #[test]
    fn a_client_that_has_left_is_forgotten() {
        let mut by_client = by_client(&[(0, Priority::Normal, 1)]);
        by_client.remove(ClientId(0), Ticket(1), |_| false);
        assert_eq!(
            (by_client.len(), by_client.displaced_by(ClientId(1), Priority::Interactive, |_| true)),
            (0, None)
        );
    }
}
