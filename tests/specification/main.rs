//! The upstream's specification, line by line. Tables map each row of its three documents to the
//! tests that exercise it. The audit fails on a row without tests, and on tests that do not
//! exercise their row.
//!
//! The tests treat the emulator from outside: [`weir::emulator::Emulator`] and the control plane
//! under `/_emulator` (SPECIFICATION, "Emulator"). The rules come from the documents, never from
//! the emulator's code: a misreading that both share would pass.
//!
//! # Writing the tests of a section
//!
//! 1. `document_N/SECTION.rs`: ordinary `#[test] pub fn`s, named as sentences of the document. They
//!    use [`kit::Upstream`] (`get`, `post`, …, `pass(seconds)`) and the world's tokens
//!    ([`callers`]: `classic("ada")`, `jwt()`, `installation_with("acme", …)`). The record fills
//!    itself: responses by the kit, fields by [`shape::assert_shape`], headers by `Answer::header`,
//!    states by [`recorder::observe`].
//! 2. `rows/document_N/SECTION.rs`: the section's tables as data ([`table`]), with every line of
//!    the document once and its tests by `tests!`. `lines` is the number of lines in the document's
//!    table.
//! 3. [`audit`] runs each row's tests under a fresh record and compares it with the row's
//!    [`evidence`].
//!
//! Left out: the emulator's implementation, speed and sockets (`src/emulator/tests`, `benches/`).

mod audit;
mod callers;
mod document_1;
mod document_2;
mod document_3;
mod evidence;
mod kit;
mod objects;
mod recorder;
mod routes;
mod rows;
mod shape;
mod table;
mod template;
