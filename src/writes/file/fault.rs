//! Reasons why a file of writes was not opened, for the operator. Left out: later failures
//! ([`StoreError`](crate::writes::StoreError)).

use std::path::Path;

/// A file that was not opened, and is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct OpenError {
    /// The file.
    pub path: String,
    /// The reason.
    pub fault: Fault,
}

/// Reason why a file of writes was not opened, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The directory does not exist.
    #[error(
        "there is no directory {0}; make it, or set `path` of [writes] store to a file in one that exists"
    )]
    NoDirectory(String),
    /// Another process has it open.
    #[error(
        "another process has this file of writes open; two gateways cannot share one: stop the other one, or give this one a file of its own"
    )]
    InUse,
    /// The file is not a store of writes.
    #[error(
        "this is not a file of writes, and it was not changed: {0}; set `path` of [writes] store to another file, or move this one away"
    )]
    Foreign(String),
    /// The file is a damaged store of writes.
    #[error(
        "this file of writes is damaged, and it was not changed: {0}; restore it, or move it away to start without the writes in it (what became of them is then to be looked up at the upstream)"
    )]
    Damaged(String),
    /// A later version wrote it.
    #[error(
        "this file of writes has format {found}, and this version reads up to {known}; it was not changed: run the version that wrote it, or move it away to start without the writes in it"
    )]
    Newer {
        /// Format of the file.
        found: u64,
        /// Newest known format.
        known: u64,
    },
    /// The system failed to read or write it.
    #[error("it cannot be read and written: {0}")]
    Io(String),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

impl Fault {
    pub(super) fn at(self, path: &Path) -> OpenError {
        OpenError { path: path.display().to_string(), fault: self }
    }
}
