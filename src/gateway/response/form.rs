//! The requested form of an answer, and the evaluation of conditions against a stored one.

use http::Method;
use http::header::{self, HeaderMap};

use crate::decision::cache::conditional::{Outcome as Conditional, evaluate};
use crate::gateway::cache::store::Entry;
use crate::gateway::url_rewrite::map::Origin;

/// The parts of a request that the form of its answer depends on.
pub struct Form<'r> {
    pub method: &'r Method,
    pub headers: &'r HeaderMap,
    pub origin: &'r Origin,
}

pub fn is_not_modified(entry: &Entry, request_headers: &HeaderMap) -> bool {
    let has_date = request_headers.contains_key(header::IF_MODIFIED_SINCE);
    if !has_date && !request_headers.contains_key(header::IF_NONE_MATCH) {
        return false;
    }
    let etags = entry.head.etag().into_iter().chain(entry.stored.etags());
    let last_modified = if has_date { entry.stored.exact_date() } else { None };
    evaluate(request_headers, entry.status(), etags, last_modified.as_ref())
        == Conditional::NotModified
}
