//! Spools: anonymous temporary files for bodies that are too large to hold. A shared body has one
//! for what its readers may still need (`cache/shared_body/mod.rs`), a stored answer on disk for
//! its whole body, and an upload for what its client sends. Left out: the bodies themselves.

pub mod file;
pub mod kept;
pub mod space;
