//! Limits: their settings, the primary budgets and the secondary limits.

pub mod meters;
pub mod primary;
pub mod request_id;
pub mod secondary;
pub mod settings;
pub mod sweeper;
