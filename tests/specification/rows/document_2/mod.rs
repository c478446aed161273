//! The tables of the second document in its order.

pub mod enterprise_teams;
pub mod issue_fields;
pub mod membership;
pub mod notifications;
pub mod properties;

use crate::table::Table;

pub fn tables() -> Vec<Table> {
    [
        membership::tables(),
        properties::tables(),
        enterprise_teams::tables(),
        issue_fields::tables(),
        notifications::tables(),
    ]
    .concat()
}
