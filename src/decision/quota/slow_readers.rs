//! The slots of one account that large answers hold for clients that read slowly.
//!
//! The upstream counts a request until it has sent the whole answer. An answer that no file may
//! hold comes at the pace of its client, so a client with enough slow readers would stop everybody
//! else. While others wait, each client keeps an even share.

use std::collections::hash_map::Entry;

use smallvec::SmallVec;

use super::limits::secondary::Secondary;
use super::{Lease, QuotaLedger, place};
use crate::decision::types::{AccountId, ClientId, LeaseId};

impl QuotaLedger {
    /// Notes that the answer of a lease waits for a slow reader. Returns its limits, account and
    /// client if such answers of the client exceed their share.
    pub(in crate::decision) fn slow_reader(
        &mut self,
        lease: LeaseId,
    ) -> Option<(&Secondary, AccountId, ClientId)> {
        let open = self.leases.get_mut(lease.0)?;
        let (id, client) = (open.account, open.weight.client);
        let readers = self.slow_readers.entry(id).or_default();
        if !std::mem::replace(&mut open.is_slow, true) {
            readers.add(client);
        }
        let limits = &self.accounts.get(place(id))?.secondary;
        let exceeds = readers.exceeds_share(client, limits.slots.max());
        exceeds.then_some((limits, id, client))
    }

    pub(super) fn forget_slow_reader(&mut self, ended: &Lease) {
        if ended.is_slow
            && let Entry::Occupied(mut readers) = self.slow_readers.entry(ended.account)
        {
            readers.get_mut().remove(ended.weight.client);
            if readers.get().is_empty() {
                readers.remove();
            }
        }
    }
}

/// The slots that slow readers hold, by client. Few clients have any.
#[derive(Debug, Default)]
pub struct SlowReaders {
    by_client: SmallVec<[(ClientId, u32); 2]>,
}

impl SlowReaders {
    pub fn add(&mut self, client: ClientId) {
        match self.by_client.iter_mut().find(|(other, _)| *other == client) {
            Some((_, held)) => *held += 1,
            None => self.by_client.push((client, 1)),
        }
    }

    pub fn remove(&mut self, client: ClientId) {
        self.by_client.retain(|(other, held)| {
            *held -= u32::from(*other == client);
            *held > 0
        });
    }

    pub fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// Returns true if this client's slow readers hold more than their share of the slots.
    pub fn exceeds_share(&self, client: ClientId, slots: u32) -> bool {
        let clients = u32::try_from(self.by_client.len()).unwrap_or(u32::MAX);
        let held = self.by_client.iter().find(|(other, _)| *other == client);
        held.is_some_and(|(_, held)| *held > share(slots, clients))
    }
}

/// The slots that the slow readers of one client may hold while others wait. One more share is
/// for those that wait, so slow readers together never hold the last slot.
const fn share(slots: u32, clients: u32) -> u32 {
    slots / clients.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_has_an_even_share_with_those_that_wait() {
        assert_eq!([1, 2, 4, 100].map(|slots| share(slots, 1)), [0, 1, 2, 50]);
        assert_eq!([1, 2, 3, 99, 100].map(|clients| share(100, clients)), [50, 33, 25, 1, 0]);
    }

    #[test]
    fn a_client_without_slow_readers_is_forgotten() {
        let mut readers = SlowReaders::default();
        for client in [1, 2, 1] {
            readers.add(ClientId(client));
        }
        assert!(readers.exceeds_share(ClientId(1), 5) && !readers.exceeds_share(ClientId(2), 5));
        readers.remove(ClientId(1));
        assert!(!readers.exceeds_share(ClientId(1), 5));
        readers.remove(ClientId(3));
        readers.remove(ClientId(1));
        readers.remove(ClientId(2));
        assert!(readers.is_empty());
    }

    proptest! {
        #[test]
        fn slow_readers_within_their_shares_leave_a_slot(slots in 1_u32..200, clients in prop::collection::vec(0_u32..20, 0..400)) {
            let mut readers = SlowReaders::default();
            for client in clients {
                readers.add(ClientId(client));
            }
            while let Some((client, _)) = readers.by_client.iter().find(|(client, _)| readers.exceeds_share(*client, slots)).copied() {
                readers.remove(client);
            }
            prop_assert!(readers.by_client.iter().map(|(_, held)| held).sum::<u32>() < slots);
        }

        #[test]
        fn a_client_keeps_its_share(slots in 2_u32..200, held in 1_u32..200) {
            let mut readers = SlowReaders::default();
            (0..held).for_each(|_| readers.add(ClientId(0)));
            prop_assert_eq!(readers.exceeds_share(ClientId(0), slots), held > slots / 2);
        }
    }
}
