//! Who has how many waiting: decides whose request makes room for a newcomer when the line is full.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::decision::types::HashMap;
use crate::decision::types::{ClientId, Priority, Ticket};

/// Ours: below this, what is out of date is not worth a pass over all.
const TIDY_FROM: usize = 64;
/// So many times as many tickets as a client has waiting are kept before those that have left are
/// looked for. Ours.
const KEPT: usize = 4;

/// The clients that have requests waiting. What has left is dropped when it is met, or when it is
/// the most.
#[derive(Debug, Default)]
pub(super) struct ByClient {
    clients: HashMap<ClientId, Waiting>,
    /// The least important and largest on top; a size that is not the client's any more says
    /// nothing.
    sizes: BinaryHeap<(Reverse<Priority>, usize, ClientId)>,
}

#[derive(Debug)]
struct Waiting {
    priority: Priority,
    count: usize,
    /// In the order of arrival; some have left.
    tickets: VecDeque<Ticket>,
}

impl ByClient {
    pub(super) fn add(&mut self, client: ClientId, priority: Priority, ticket: Ticket) {
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

    /// One of a client's requests has left; `waits` tells of any whether it has.
    pub(super) fn remove(
        &mut self,
        client: ClientId,
        ticket: Ticket,
        waits: impl Fn(Ticket) -> bool,
    ) {
        let Some(waiting) = self.clients.get_mut(&client) else { return };
        waiting.count = waiting.count.saturating_sub(1);
        // A client's requests are mostly served in the order of their arrival.
        waiting.tickets.pop_front_if(|first| *first == ticket);
        if waiting.count == 0 {
            self.clients.remove(&client);
        } else if waiting.tickets.len() > KEPT * waiting.count + TIDY_FROM {
            waiting.tickets.retain(|ticket| waits(*ticket));
        }
    }

    /// The newest request of the client that has the most waiting among those of the lowest
    /// priority; `None` when the newcomer itself is of that kind.
    pub(super) fn displaced_by(
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

    fn largest(&mut self) -> Option<(Reverse<Priority>, usize, ClientId)> {
        loop {
            let top = *self.sizes.peek()?;
            let (priority, size, client) = top;
            match self.clients.get(&client).map(|waiting| waiting.count) {
                Some(count) if count == size => return Some(top),
                now => {
                    self.sizes.pop();
                    // What has shrunk since then is entered as it is; what has grown is there
                    // already.
                    self.sizes.extend(
                        now.filter(|count| *count < size).map(|count| (priority, count, client)),
                    );
                }
            }
        }
    }

    pub(super) fn len(&self) -> usize {
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
    fn the_newest_of_whoever_has_the_most_waiting_makes_room() {
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
    fn the_less_important_make_room_for_the_more_important_and_never_the_reverse() {
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
