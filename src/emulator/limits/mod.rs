//! Limits: their settings, the primary budgets and the secondary limits.

mod meters;
pub mod primary;
pub mod secondary;
pub mod settings;
mod sliding_window;
mod sweeper;

pub use self::primary::{Primary, View};
pub use self::secondary::{Content, Exceeded, TokenRequest};
pub use self::settings::{Limits, Resource};

/// Identifies a request until its completion; also its sequence number in the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
