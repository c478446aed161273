//! Options of an emulator.

use std::ops::RangeInclusive;

use crate::api::Dialect;

/// Options of an emulator; equal options and an equal first `now` make an equal world.
#[derive(Clone, Debug)]
pub struct Options {
    /// The header and media type names in use.
    pub dialect: Dialect,
    /// Chooses the details of the seed world.
    pub seed: u64,
    /// The number of repositories in the seed world, beside the few on the enterprise cloud; the
    /// first six always exist.
    pub repositories: u32,
    /// The origin in `url` fields and `Link`, such as `http://127.0.0.1:8090`; when empty, the
    /// request's own Host.
    pub base_url: String,
    /// A read of a thing that the world does not have is answered as if it had it, always with the
    /// same body.
    pub invents_reads: bool,
}

impl Options {
    /// The permitted number of repositories: the minimum always exists, the maximum bounds the
    /// memory.
    pub const REPOSITORIES: RangeInclusive<u32> = 6..=1_000_000;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialect: Dialect::Service,
            seed: 1,
            repositories: 20,
            base_url: String::new(),
            invents_reads: false,
        }
    }
}
