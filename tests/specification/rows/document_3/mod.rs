//! The tables of the third document in its order.

pub mod deliveries;
pub mod migrations;
pub mod webhooks;

use crate::table::Table;

pub fn tables() -> Vec<Table> {
    [webhooks::tables(), deliveries::tables(), migrations::tables()].concat()
}
