//! The parts that sessions of both protocols share: the head of a request, and the client's end.

use http::{HeaderMap, Method, Uri, Version};

/// A request's head, as it was parsed.
pub struct Head<'s> {
    pub method: &'s Method,
    pub target: &'s Uri,
    pub version: Version,
    pub headers: &'s HeaderMap,
}

/// The client has left, or its connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left;
