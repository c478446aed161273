//! An answer or an error as the client sees it.

pub mod budget_headers;
pub mod compression;
pub mod content;
mod enclosed;
pub mod error;
pub mod form;
pub mod gateway_headers;
pub mod local_pages;
pub mod long_texts;
pub mod pacing;
pub mod render;
pub mod reply;
pub mod responder;
pub mod write;
pub mod write_status;
