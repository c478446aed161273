//! The keys of queues and groups (what blocks one request blocks all with its key), and the order
//! of service.

use super::shares::Tag;
use crate::api::{EndpointId, ResourceName};
use crate::decision::quota::ListId;
use crate::decision::types::{ClientId, Demand, Priority, Ticket, WriteSpacing};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueKey {
    pub list: ListId,
    pub priority: Priority,
    pub resource: ResourceName,
    price: Price,
    graphql: bool,
    content: bool,
    token_request: bool,
    pub write: WriteSpacing,
    /// Client of all its requests, once its share of the slots has blocked one of them.
    pub client: Option<ClientId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Price {
    Free,
    Counted,
}

impl QueueId {
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub fn of(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl GroupId {
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub fn of(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl QueueKey {
    pub fn new(demand: &Demand, list: ListId, priority: Priority, resource: ResourceName) -> Self {
        let Demand { cost, graphql, content, token_request, write, .. } = *demand;
        let price = if cost == 0 { Price::Free } else { Price::Counted };
        let client = None;
        Self { list, priority, resource, price, graphql, content, token_request, write, client }
    }
}

impl QueueKey {
    pub fn of_client(self, client: ClientId) -> Self {
        Self { client: Some(client), ..self }
    }

    pub fn against(self, resource: ResourceName) -> Self {
        Self { resource, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKey {
    pub queue: QueueId,
    pub endpoint: EndpointId,
    cost: u32,
    is_unproven: bool,
    points: u32,
}

impl GroupKey {
    pub fn new(queue: QueueId, demand: &Demand) -> Self {
        let Demand { endpoint, cost, unproven, points, .. } = *demand;
        Self { queue, endpoint, cost, is_unproven: unproven > 0, points }
    }

    /// The key as one number, for faster lookups.
    pub fn packed(self) -> u128 {
        let Self { queue, endpoint, cost, is_unproven, points } = self;
        u128::from(queue.0) << 96
            // Endpoints are counted from 0, so the highest bit is free.
            | u128::from(is_unproven) << 95
            | (endpoint.index() as u128) << 64
            | u128::from(cost) << 32
            | u128::from(points)
    }
}

/// Order of service: priority, share, age. Packed into one number, because ranks are compared more
/// often than anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u128);

/// Tickets are counted from 0: this many bits outlast any process.
const TICKET_BITS: u32 = 56;

impl Rank {
    pub fn new(priority: Priority, tag: Tag, Ticket(ticket): Ticket) -> Self {
        let behind = Priority::Interactive as u128 - priority as u128;
        Self(((behind << u64::BITS | u128::from(tag.0)) << TICKET_BITS) | u128::from(ticket))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the middle is meant")]
    pub const fn tag(self) -> Tag {
        Tag((self.0 >> TICKET_BITS) as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lowest part is meant")]
    pub const fn ticket(self) -> Ticket {
        Ticket(self.0 as u64 & ((1 << TICKET_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_goes_before_share_and_share_before_age() {
        let rank = |priority, tag, ticket| Rank::new(priority, Tag(tag), Ticket(ticket));
        let ranks = [
            rank(Priority::Interactive, u64::MAX, 9),
            rank(Priority::Normal, 0, 9),
            rank(Priority::Normal, 1, 2),
            rank(Priority::Normal, 1, 3),
            rank(Priority::Normal, u64::MAX, 0),
            rank(Priority::Batch, 0, 0),
        ];
        assert!(ranks.is_sorted_by(|one, other| one < other), "{ranks:?}");
        assert_eq!((ranks[0].tag(), ranks[0].ticket()), (Tag(u64::MAX), Ticket(9)));
    }
}
