//! The documents' tables: each line with the tests that exercise it. `table` says how a row is written, `audit` what is checked.

pub mod document_1;
pub mod document_2;
pub mod document_3;

use crate::table::Table;

/// Every table of the three documents.
pub fn tables() -> Vec<Table> {
    [document_1::tables(), document_2::tables(), document_3::tables()].concat()
}
