//! The upstream's answers: names of headers, rate headers, limits and denials.

pub(super) mod denial;
pub mod headers;
pub(super) mod rate;
pub(super) mod stated;
pub(super) mod upstream_limit;
