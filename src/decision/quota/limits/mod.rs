//! The limits of one account: the primary budget of each resource, the secondary limits, and the
//! cooldown after an upstream limit.

pub(super) mod block;
pub(in crate::decision) mod cooldown;
pub(super) mod elapsed;
pub(in crate::decision) mod primary;
pub(super) mod secondary;
