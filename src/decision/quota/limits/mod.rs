//! The limits of one account: the primary budget of each resource, the secondary limits, and the
//! cooldown after an upstream limit.

pub mod block;
pub mod cooldown;
pub mod elapsed;
pub mod primary;
pub mod secondary;
