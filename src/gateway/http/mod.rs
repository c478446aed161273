//! Headers, chunks, ranges and interim answers.

pub mod chunks;
pub mod content_coding;
pub mod content_etag;
pub mod decoding;
pub mod head_writer;
pub mod headers;
pub mod interim;
pub mod media_type;
mod overriding;
pub mod range;
