//! The tables of the documents, each line with its tests. `table` defines a row, `audit` the
//! checks.

pub mod document_1;
pub mod document_2;
pub mod document_3;

use crate::table::Table;

/// The number of rows and of pieces of evidence by document. The tables fix the number of lines;
/// this finds a lost part of a line.
pub const SIZES: [(u8, usize, usize); 3] = [(1, 592, 961), (2, 279, 402), (3, 200, 238)];

/// Every table of the three documents.
pub fn tables() -> Vec<Table> {
    [document_1::tables(), document_2::tables(), document_3::tables()].concat()
}
