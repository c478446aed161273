//! The specification, line by line: a table from each row of the three documents to the tests that
//! exercise it, and a test that fails when a row has none or when its tests do not really do what
//! it says.
//!
//! The emulator is tested from outside: [`weir::emulator::Emulator`] and the control plane under
//! `/_emulator` (CONTRACT, Emulator). The rules are read from the documents, never from the
//! emulator's code: a misreading that both share would pass.
//!
//! # Writing the tests of a section
//!
//! 1. `document_N/SECTION.rs`: ordinary `#[test] pub fn`s, named as sentences of the document, over
//!    [`kit::Upstream`] (`get`, `post`, …, `pass(seconds)`) and the world's tokens ([`callers`]:
//!    `classic("ada")`, `jwt()`, `installation_with("acme", …)`). What a test does is recorded:
//!    answers by the kit, fields by [`shape::assert_shape`], headers by `Answer::header`, states by
//!    [`recorder::observe`].
//! 2. `rows/document_N/SECTION.rs`: the section's tables as data ([`table`]), every line of the
//!    document once, each with its tests by `tests!`. `lines` is the number of lines that the
//!    document's table has.
//! 3. [`audit`] runs each row's tests under a fresh record and compares it with the row's
//!    [`evidence`].
//!
//! What is left out: how the emulator does it, its speed, its sockets (`src/emulator/tests`,
//! `benches/`).

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
