//! Tests of GraphQL queries and their limits.

pub mod limits;
pub mod queries;
