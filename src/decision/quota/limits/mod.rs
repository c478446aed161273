//! The limits of one account: the primary budget of each resource, the secondary limits, and the
//! cooldown after a refusal.

pub(super) mod block;
pub(in crate::decision) mod cooldown;
pub(super) mod elapsed;
pub(in crate::decision) mod primary;
pub(super) mod secondary;
