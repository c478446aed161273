//! The stored paths that a write or a webhook event makes stale.

pub(super) mod aliases;
pub(super) mod events;
pub(super) mod path_pattern;
mod side_effects;
mod webhook_coverage;
pub(super) mod write_effects;
