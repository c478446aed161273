//! The shares of competing clients: start-time fair queueing (SPECIFICATION D10).
//!
//! Time is counted in service: a request of a client with weight `w` makes that client's next one
//! start `1/w` later. A waiting request is tagged at its arrival with the later of two times: the
//! end of its client's last request, and the time being served. The lowest tag goes first. So the
//! thousand requests of one bot stand behind one another, and another bot's first request overtakes
//! nearly all of them. An absent client saves up nothing.
//!
//! Only requests for competing accounts are compared ([`Component`]), and only within one priority.

use std::num::NonZeroU32;

use crate::decision::quota::{Component, Union};
use crate::decision::types::{ClientId, ClientSettings, HashMap, Priority};

/// Place in the order of service; the lower goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// One unit for a client of weight 1. Divisible by all small weights, with room for more requests
/// than there will be.
const UNIT: u64 = 720_720;

/// Number of clients from which those behind the served time are dropped. Ours: more than most
/// configs have.
const SWEEP_FROM: usize = 1_024;

#[derive(Debug, Default)]
struct Order {
    served: Tag,
    /// One client's turns are stored inline: where each account competes alone, as for writes,
    /// there is mostly no other.
    one: Turns,
    one_client: Option<ClientId>,
    others: Option<Box<Others>>,
}

#[derive(Debug, Default)]
struct Others {
    clients: HashMap<ClientId, Turns>,
    sweep_at: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    /// End of its last request, without those that left unserved.
    end: Tag,
    /// Last tag of a waiting request, and the number of waiting requests.
    latest: Tag,
    waiting: usize,
}

#[derive(Debug, Default)]
pub struct Shares {
    orders: Vec<[Order; 3]>,
}

impl Shares {
    /// Tags a client's next request, which waits; never before its waiting ones.
    pub fn take(
        &mut self,
        component: Component,
        client: ClientId,
        settings: ClientSettings,
    ) -> Tag {
        let (served, turns) = self.turns(component, client, settings.priority);
        let start =
            turns.end.max(*served).max(if turns.waiting > 0 { turns.latest } else { *served });
        turns.waiting += 1;
        turns.latest = start;
        turns.end = turns.end.max(*served).after(settings.weight);
        start
    }

    pub fn serve_at_once(
        &mut self,
        component: Component,
        client: ClientId,
        settings: ClientSettings,
    ) {
        let (served, turns) = self.turns(component, client, settings.priority);
        *served = turns.end.max(*served);
        turns.end = served.after(settings.weight);
    }

    pub fn serve(&mut self, component: Component, client: ClientId, priority: Priority, tag: Tag) {
        let (served, turns) = self.turns(component, client, priority);
        *served = tag.max(*served);
        turns.waiting = turns.waiting.saturating_sub(1);
    }

    /// Removes an unserved request with this tag, and gives its turn back. Otherwise a client that
    /// floods the queue would fall behind with every request that it gives up. A past turn is not
    /// given back, else waiting in vain would be saved up.
    pub fn give_back(
        &mut self,
        component: Component,
        client: ClientId,
        settings: ClientSettings,
        tag: Tag,
    ) {
        let (served, turns) = self.turns(component, client, settings.priority);
        turns.waiting = turns.waiting.saturating_sub(1);
        if tag >= *served {
            turns.end = turns.end.before(settings.weight);
        }
    }

    fn turns(
        &mut self,
        component: Component,
        client: ClientId,
        priority: Priority,
    ) -> (&mut Tag, &mut Turns) {
        let order = &mut self.orders_of(component)[priority as usize];
        if order.one_client != Some(client)
            && !order.one.still_matter(order.served)
            && !order.others.as_ref().is_some_and(|others| others.clients.contains_key(&client))
        {
            (order.one, order.one_client) = (Turns::default(), Some(client));
        }
        let Order { served, one, one_client, others } = order;
        if *one_client == Some(client) {
            return (served, one);
        }
        let Others { clients, sweep_at } = &mut **others.get_or_insert_default();
        if clients.len() >= (*sweep_at).max(SWEEP_FROM) {
            clients.retain(|_, turns| turns.still_matter(*served));
            *sweep_at = clients.len() * 2;
        }
        (served, clients.entry(client).or_default())
    }

    fn orders_of(&mut self, component: Component) -> &mut [Order; 3] {
        if self.orders.len() <= component.index() {
            self.orders.resize_with(component.index() + 1, Default::default);
        }
        &mut self.orders[component.index()]
    }

    pub fn unite(&mut self, union: Union) {
        let Some(from) = self.orders.get_mut(union.from.index()).map(std::mem::take) else {
            return;
        };
        for (priority, from) in
            [Priority::Batch, Priority::Normal, Priority::Interactive].into_iter().zip(from)
        {
            let served = &mut self.orders_of(union.into)[priority as usize].served;
            *served = from.served.max(*served);
            let others = from.others.map(|others| others.clients).into_iter().flatten();
            for (client, turns) in
                from.one_client.map(|one| (one, from.one)).into_iter().chain(others)
            {
                let (_, own) = self.turns(union.into, client, priority);
                (own.end, own.latest) = (turns.end.max(own.end), turns.latest.max(own.latest));
                own.waiting += turns.waiting;
            }
        }
    }
}

impl Turns {
    /// True when the turns still matter at this time of service.
    fn still_matter(&self, served: Tag) -> bool {
        self.waiting > 0 || self.end > served
    }
}

impl Tag {
    fn after(self, weight: NonZeroU32) -> Self {
        Self(self.0.saturating_add(turn(weight)))
    }

    fn before(self, weight: NonZeroU32) -> Self {
        Self(self.0.saturating_sub(turn(weight)))
    }
}

fn turn(weight: NonZeroU32) -> u64 {
    (UNIT / u64::from(weight.get())).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENT: Component = Component::ANY;

    fn client(weight: u32) -> ClientSettings {
        ClientSettings { weight: NonZeroU32::new(weight).unwrap(), ..ClientSettings::default() }
    }

    /// Serves `turns` requests of clients that always have another one waiting, and counts each
    /// client's.
    fn served(weights: &[u32], turns: usize) -> Vec<usize> {
        let mut shares = Shares::default();
        let mut waiting: Vec<(Tag, usize)> = Vec::new();
        let mut counts = vec![0; weights.len()];
        let take_turn = |shares: &mut Shares, index: usize| {
            shares.take(COMPONENT, ClientId(u32::try_from(index).unwrap()), client(weights[index]))
        };
        for index in 0..weights.len() {
            waiting.push((take_turn(&mut shares, index), index));
        }
        for _ in 0..turns {
            let first = waiting.iter().copied().min().unwrap();
            waiting.retain(|one| *one != first);
            shares.serve(
                COMPONENT,
                ClientId(u32::try_from(first.1).unwrap()),
                Priority::Normal,
                first.0,
            );
            counts[first.1] += 1;
            waiting.push((take_turn(&mut shares, first.1), first.1));
        }
        counts
    }

    #[test]
    fn clients_that_always_wait_are_served_by_their_weights() {
        assert_eq!(served(&[1, 1, 2, 4], 800), [100, 100, 200, 400]);
    }

    #[test]
    fn a_flood_of_one_client_does_not_delay_another() {
        let mut shares = Shares::default();
        let greedy: Vec<Tag> =
            (0..1_000).map(|_| shares.take(COMPONENT, ClientId(0), client(1))).collect();
        shares.serve(COMPONENT, ClientId(0), Priority::Normal, greedy[9]);
        let other = shares.take(COMPONENT, ClientId(1), client(1));
        assert!(other <= greedy[10], "at most one goes before it");
    }

    #[test]
    fn an_absent_client_saves_up_nothing() {
        let mut shares = Shares::default();
        for _ in 0..500 {
            let tag = shares.take(COMPONENT, ClientId(0), client(1));
            shares.serve(COMPONENT, ClientId(0), Priority::Normal, tag);
        }
        let back: Vec<Tag> =
            (0..10).map(|_| shares.take(COMPONENT, ClientId(1), client(1))).collect();
        let own = shares.take(COMPONENT, ClientId(0), client(1));
        assert!(own <= back[1], "the other one is not shut out until its saved turns are spent");
    }

    #[test]
    fn an_unused_turn_is_given_back() {
        let mut shares = Shares::default();
        let tag = shares.take(COMPONENT, ClientId(0), client(1));
        shares.give_back(COMPONENT, ClientId(0), client(1), tag);
        assert_eq!(shares.take(COMPONENT, ClientId(0), client(1)), tag);
    }

    #[test]
    fn returned_turns_keep_the_order_within_a_client() {
        let mut shares = Shares::default();
        let tags: Vec<Tag> =
            (0..10).map(|_| shares.take(COMPONENT, ClientId(0), client(1))).collect();
        tags[..5].iter().for_each(|tag| shares.give_back(COMPONENT, ClientId(0), client(1), *tag));
        assert_eq!(shares.take(COMPONENT, ClientId(0), client(1)), tags[9]);
        tags[5..]
            .iter()
            .chain([&tags[9]])
            .for_each(|tag| shares.give_back(COMPONENT, ClientId(0), client(1), *tag));
        assert_eq!(
            shares.take(COMPONENT, ClientId(0), client(1)),
            tags[0],
            "nothing is left of those that were never served"
        );
    }

    #[test]
    fn a_client_with_waiting_requests_is_not_forgotten() {
        let mut shares = Shares::default();
        let tags: Vec<Tag> =
            (0..5_000).map(|number| shares.take(COMPONENT, ClientId(number), client(1))).collect();
        assert!(tags.iter().all(|tag| *tag == tags[0]));
        assert!(shares.take(COMPONENT, ClientId(4_999), client(1)) > tags[0]);
    }

    #[test]
    fn served_clients_are_forgotten() {
        let mut shares = Shares::default();
        for number in 0..50_000 {
            let tag = shares.take(COMPONENT, ClientId(number), client(1));
            shares.serve(COMPONENT, ClientId(number), Priority::Normal, tag.after(NonZeroU32::MIN));
        }
        assert!(
            shares
                .orders
                .iter()
                .flatten()
                .filter_map(|order| order.others.as_ref())
                .map(|others| others.clients.len())
                .sum::<usize>()
                <= 2 * SWEEP_FROM
        );
    }
}
