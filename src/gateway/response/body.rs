//! The body of an answer that is ready to be written.

use crate::gateway::cache::shared_body_reader::Reader;
use crate::gateway::url_rewrite::json_stream::JsonStream;
use bytes::Bytes;

/// A body that belongs to a rendered head.
pub enum RenderedBody {
    Whole(Bytes),
    Streamed { rewriting: Option<Box<JsonStream>>, reader: Box<Reader> },
}
