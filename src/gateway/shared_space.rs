//! The I/O shell of [`SharedCapacity`]: space that requests take as they need it, and give back on
//! drop.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::decision::scheduler::shared_capacity::{Holder, SharedCapacity};

/// Space in units that its user chooses.
pub struct SharedSpace {
    capacity: Mutex<SharedCapacity>,
    unit_bytes: u64,
}

/// Guard: the space that one request holds.
pub struct Share {
    space: Arc<SharedSpace>,
    holder: Holder,
    units: u64,
}

impl SharedSpace {
    /// Creates space of `bytes`, which is taken in units of `unit_bytes`.
    pub fn new(bytes: u64, unit_bytes: u64) -> Arc<Self> {
        let capacity = Mutex::new(SharedCapacity::new(bytes / unit_bytes));
        Arc::new(Self { capacity, unit_bytes })
    }

    /// The same for unauthenticated clients; see [`SharedCapacity::halved`].
    pub fn halved(bytes: u64, unit_bytes: u64) -> Arc<Self> {
        let capacity = Mutex::new(SharedCapacity::halved(bytes / unit_bytes));
        Arc::new(Self { capacity, unit_bytes })
    }

    /// The same space with another size.
    pub fn resized(before: &Arc<Self>, bytes: u64) -> Arc<Self> {
        before.capacity.lock().resize(bytes / before.unit_bytes);
        Arc::clone(before)
    }

    /// The units that all holders have.
    pub fn taken(&self) -> u64 {
        self.capacity.lock().taken()
    }

    /// A share without any space yet.
    pub fn share(self: &Arc<Self>, holder: Holder) -> Share {
        Share { space: Arc::clone(self), holder, units: 0 }
    }
}

impl Share {
    /// Grows to `bytes` in all; false if the holder may not have that much.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let wanted = bytes.div_ceil(self.space.unit_bytes).saturating_sub(self.units);
        let has_grown = wanted == 0 || self.space.capacity.lock().take(self.holder, wanted);
        if has_grown {
            self.units += wanted;
        }
        has_grown
    }

    /// Gives back what exceeds `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        let kept = bytes.div_ceil(self.space.unit_bytes).min(self.units);
        let left = std::mem::replace(&mut self.units, kept) - kept;
        if left > 0 {
            self.space.capacity.lock().give_back(self.holder, left);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}
