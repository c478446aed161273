//! Limits: their settings, the primary budgets and the secondary limits.

pub mod meters;
pub mod primary;
pub mod request_id;
pub mod secondary;
pub mod settings;
pub mod sweeper;

pub use self::primary::{Primary, View};
pub use self::request_id::RequestId;
pub use self::secondary::{Content, Exceeded, TokenRequest};
pub use self::settings::{Limits, Resource};
