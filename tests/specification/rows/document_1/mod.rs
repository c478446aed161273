//! The tables of the first document in its order.

pub mod authentication;
pub mod conventions;
pub mod errors;
pub mod inventory;
pub mod limits;
pub mod matrix;
pub mod versions;

use crate::table::Table;

pub fn tables() -> Vec<Table> {
    [
        conventions::tables(),
        inventory::tables(),
        authentication::tables(),
        matrix::tables(),
        errors::tables(),
        limits::tables(),
        versions::tables(),
    ]
    .concat()
}
