//! GraphQL.

pub mod limits;
pub mod queries;
