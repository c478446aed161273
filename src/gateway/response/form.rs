//! The form in which a client asks for an answer, and what its conditions make of a stored one.

use crate::decision::cache::conditional::{Outcome as Conditional, evaluate};
use crate::gateway::cache::store::Entry;
use crate::gateway::url_rewrite::map::Origin;
use http::Method;
use http::header::{self, HeaderMap, HeaderValue};

/// How the client asked, as far as the form of the answer depends on it.
pub struct Form<'r> {
    /// The method.
    pub method: &'r Method,
    /// The client's own headers.
    pub asked: &'r HeaderMap,
    /// The gateway's address as this client knows it.
    pub origin: &'r Origin,
}

/// Whether the client has what is stored already.
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

/// Whether a client says what must be so for it to be answered at all.
pub fn has_precondition(asked: &HeaderMap) -> bool {
    asked.contains_key(header::IF_MATCH) || asked.contains_key(header::IF_UNMODIFIED_SINCE)
}
