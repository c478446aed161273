//! Options of an emulator.

use std::ops::RangeInclusive;

use crate::api::Dialect;

/// What an emulator is made from; the same options and the same first `now` make the same world.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names it speaks.
    pub dialect: Dialect,
    /// Chooses the details of the seed world.
    pub seed: u64,
    /// How many repositories the seed world has, beside the few on the enterprise cloud; the first
    /// six always exist.
    pub repositories: u32,
    /// The address that `url` fields and `Link` name, such as `http://127.0.0.1:8090`; when empty,
    /// the request's own Host.
    pub base_url: String,
}

impl Options {
    /// How many repositories a seed world can have: those that always exist, and no more than a
    /// machine can hold.
    pub const REPOSITORIES: RangeInclusive<u32> = 6..=1_000_000;
}

impl Default for Options {
    fn default() -> Self {
        Self { dialect: Dialect::Service, seed: 1, repositories: 20, base_url: String::new() }
    }
}
