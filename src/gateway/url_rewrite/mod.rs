//! Rewriting of upstream URLs into addresses of this gateway.

pub mod json_stream;
pub mod map;
pub mod offsets;
pub mod reference;
pub mod rendering;
