//! Fuzz targets: properties of everything that reads bytes of strangers. A target panics on an
//! input for which its property does not hold.
//!
//! The same targets run in a plain test (`tests.rs`) and, guided by coverage, in `tests/fuzz/`.
//! Their seeds are the files below `tests/fuzz/seeds/`.

mod cache_control;
mod chunked_body;
mod config;
mod graphql;
mod http2_frames;
mod pieces;
mod request_head;
mod rewriting;
#[cfg(test)]
mod tests;
mod upstream_head;
mod webhook;

pub use cache_control::cache_control;
pub use chunked_body::chunked_body;
pub use config::config;
pub use graphql::graphql;
pub use http2_frames::http2_frames;
pub use request_head::request_head;
pub use rewriting::rewriting;
pub use upstream_head::upstream_head;
pub use webhook::webhook;

/// A property, which panics unless it holds for the input.
pub type Target = fn(&[u8]);

/// All targets, by the names of their folders of seeds.
pub const TARGETS: [(&str, Target); 9] = [
    ("cache_control", cache_control),
    ("chunked_body", chunked_body),
    ("config", config),
    ("graphql", graphql),
    ("http2_frames", http2_frames),
    ("request_head", request_head),
    ("rewriting", rewriting),
    ("upstream_head", upstream_head),
    ("webhook", webhook),
];
