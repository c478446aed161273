//! The commands that operators type against the admin listener of a running gateway.

mod api;
mod budgets;
mod cache;
mod table;
mod writes;

pub use budgets::Budgets;
pub use cache::Cache;
pub use writes::Writes;
