//! Media types that matter to a cache: JSON in its plain form.

use http::HeaderMap;
use http::header;

/// True if a body is unencoded JSON, which may hold URLs to rewrite.
pub fn is_json(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::CONTENT_ENCODING) && has_json_type(headers)
}

/// True if a body is JSON, encoded or not.
pub fn has_json_type(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}
