//! The form in which a client asks for an answer, and what its conditions make of a stored one.

use crate::decision::cache::conditional::{Outcome as Conditional, evaluate};
use crate::gateway::cache::store::Entry;
use crate::gateway::url_rewrite::map::Origin;
use http::Method;
use http::header::{self, HeaderMap, HeaderValue};

/// The parts of a request that the form of its answer depends on.
pub struct Form<'r> {
    pub method: &'r Method,
    pub asked: &'r HeaderMap,
    /// The gateway's address as this client knows it.
    pub origin: &'r Origin,
}

pub fn is_not_modified(entry: &Entry, asked: &HeaderMap) -> bool {
    if !asked.contains_key(header::IF_NONE_MATCH) && !asked.contains_key(header::IF_MODIFIED_SINCE)
    {
        return false;
    }
    let own = entry.head.etag().into_iter().filter_map(|etag| HeaderValue::from_bytes(etag).ok());
    let last_modified =
        asked.contains_key(header::IF_MODIFIED_SINCE).then(|| entry.stored.exact_date()).flatten();
    evaluate(asked, entry.status(), own.chain(entry.stored.etags()), last_modified.as_ref())
        == Conditional::NotModified
}

pub fn has_precondition(asked: &HeaderMap) -> bool {
    asked.contains_key(header::IF_MATCH) || asked.contains_key(header::IF_UNMODIFIED_SINCE)
}
