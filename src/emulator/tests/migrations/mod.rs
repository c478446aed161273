//! Tests of user migrations.

pub mod archives;
pub mod records;
pub mod states;
