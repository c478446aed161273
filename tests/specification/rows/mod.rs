//! The documents' tables: each line with the tests that exercise it. `table` says how a row is
//! written, `audit` what is checked.

pub mod document_1;
pub mod document_2;
pub mod document_3;

use crate::table::Table;

/// How many rows and pieces of evidence each document has here. The tables fix the number of lines;
/// this sees a part of a line disappear.
pub const SIZES: [(u8, usize, usize); 3] = [(1, 592, 961), (2, 279, 402), (3, 200, 238)];

/// Every table of the three documents.
pub fn tables() -> Vec<Table> {
    [document_1::tables(), document_2::tables(), document_3::tables()].concat()
}
