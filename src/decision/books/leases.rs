//! The open leases, by their names.
//!
//! Apart from their index: names are spread over it by chance, so each look goes somewhere else in memory, and an index of small entries is the part of it that a
//! core's cache can hold. The leases themselves lie where others have ended before, which is where the books were busy last.

use slab::Slab;

use super::Lease;
use crate::decision::HashMap;
use crate::decision::demand::LeaseId;

#[derive(Debug, Default)]
pub(super) struct Leases {
    places: HashMap<LeaseId, usize>,
    open: Slab<Lease>,
}

impl Leases {
    /// A name that is open already is another lease's from now on.
    pub(super) fn insert(&mut self, name: LeaseId, lease: Lease) {
        let place = self.open.insert(lease);
        if let Some(before) = self.places.insert(name, place) {
            self.open.try_remove(before);
        }
    }

    pub(super) fn remove(&mut self, name: LeaseId) -> Option<Lease> {
        self.open.try_remove(self.places.remove(&name)?)
    }

    pub(super) fn get(&self, name: LeaseId) -> Option<&Lease> {
        self.open.get(*self.places.get(&name)?)
    }

    pub(super) fn get_mut(&mut self, name: LeaseId) -> Option<&mut Lease> {
        self.open.get_mut(*self.places.get(&name)?)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Lease> {
        self.open.iter().map(|(_, lease)| lease)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
