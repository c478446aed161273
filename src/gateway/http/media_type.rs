//! Media types that matter to a cache: JSON in its plain form.

use http::header::{self, HeaderMap, HeaderValue};

/// True if a body is unencoded JSON, which may hold URLs to rewrite.
pub fn is_json(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::CONTENT_ENCODING) && has_json_type(headers)
}

/// True if a body is JSON, encoded or not.
pub fn has_json_type(headers: &HeaderMap) -> bool {
    let essence =
        content_type(headers).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

pub fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::to_str);
    value.and_then(Result::ok).unwrap_or_default()
}
