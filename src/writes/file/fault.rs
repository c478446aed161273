//! Why a file of writes was not opened, for whoever has to mend it. Left out: what fails later
//! ([`StoreError`](crate::writes::StoreError)).

use std::path::Path;

/// A file that was not opened. It is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct OpenError {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a file of writes, and what can be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Where it should be is no directory.
    #[error(
        "there is no directory {0}; make it, or set `path` of [writes] store to a file in one that exists"
    )]
    NoDirectory(String),
    /// Somebody has it open.
    #[error(
        "another process has this file of writes open; two gateways cannot share one: stop the other one, or give this one a file of its own"
    )]
    InUse,
    /// It is not what a gateway keeps its writes in.
    #[error(
        "this is not a file of writes, and it was not changed: {0}; set `path` of [writes] store to another file, or move this one away"
    )]
    Foreign(String),
    /// It was one, and is not whole.
    #[error(
        "this file of writes is damaged, and it was not changed: {0}; restore it, or move it away to start without the writes in it (what became of them is then to be looked up at the upstream)"
    )]
    Damaged(String),
    /// A later version made it.
    #[error(
        "this file of writes has format {found}, and this version reads up to {known}; it was not changed: run the version that wrote it, or move it away to start without the writes in it"
    )]
    Newer {
        /// What the file says.
        found: u64,
        /// The newest that is known here.
        known: u64,
    },
    /// The system did not let it be read or written.
    #[error("it cannot be read and written: {0}")]
    Io(String),
}

impl Fault {
    pub(super) fn at(self, path: &Path) -> OpenError {
        OpenError { path: path.display().to_string(), fault: self }
    }
}
