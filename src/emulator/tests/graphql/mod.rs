//! Tests of GraphQL queries and their limits.

pub mod clients;
pub mod limits;
pub mod mutations;
pub mod queries;
