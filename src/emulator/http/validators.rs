//! Validators and conditional requests as observed at the service (SPECIFICATION, "Conditional
//! requests in practice"; RFC 9110, section 13).

use http::header::{self, HeaderMap};
use ring::digest::{Context, SHA256};

use super::issued_dates::DateValidity;
use super::timestamps::{http_date, parse_http_date};
use crate::clock::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// Without quotes or a weakness mark.
    pub opaque: String,
    /// The whole second of the last change, if known.
    pub last_modified: Option<Timestamp>,
    /// The reliability of that date for comparison.
    pub date_validity: DateValidity,
}

/// SHA-256 in hexadecimal over those of Accept, Authorization and Cookie that are present, each
/// followed by a colon, then the body. Hence two tokens get different `ETag`s.
pub fn validators(
    request: &HeaderMap,
    body: &[u8],
    changed_at: Option<Timestamp>,
    date_validity: DateValidity,
) -> Validators {
    let mut digest = Context::new(&SHA256);
    for name in [header::ACCEPT, header::AUTHORIZATION, header::COOKIE] {
        if let Some(value) = request.get(name) {
            digest.update(value.as_bytes());
            digest.update(b":");
        }
    }
    digest.update(body);
    let last_modified = changed_at
        .map(|at| Timestamp::from_secs(at.as_secs()))
        .filter(|_| date_validity != DateValidity::None);
    Validators { opaque: hex(digest.finish().as_ref()), last_modified, date_validity }
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    Modified,
    NotModified,
}

impl Validators {
    /// `If-Modified-Since` counts only without `If-None-Match` (RFC 9110, section 13.1.3).
    pub fn evaluate(&self, request: &HeaderMap) -> Freshness {
        let mut tags = request.get_all(header::IF_NONE_MATCH).iter().peekable();
        if tags.peek().is_some() {
            let matched =
                tags.filter_map(|value| value.to_str().ok()).any(|list| lists(list, &self.opaque));
            return if matched { Freshness::NotModified } else { Freshness::Modified };
        }
        let since = request
            .get(header::IF_MODIFIED_SINCE)
            .and_then(|value| value.to_str().ok())
            .and_then(parse_http_date);
        match (self.last_modified, since) {
            (Some(changed), Some(since)) if changed < since => Freshness::NotModified,
            // An ambiguous date never validates.
            (Some(changed), Some(since))
                if changed == since && self.date_validity == DateValidity::Exact =>
            {
                Freshness::NotModified
            }
            _ => Freshness::Modified,
        }
    }

    /// Weak when the caller accepts compression, as if a proxy had compressed the body.
    pub fn etag(&self, request: &HeaderMap) -> String {
        let accepts =
            request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let weak = accepts.into_iter().any(|value| value.contains("gzip"));
        if weak { format!("W/\"{}\"", self.opaque) } else { self.strong_etag() }
    }

    pub fn strong_etag(&self) -> String {
        format!("\"{}\"", self.opaque)
    }

    pub fn last_modified_header(&self) -> Option<String> {
        self.last_modified.map(http_date)
    }
}

/// Compares weakly; a star matches any.
pub fn lists(list: &str, opaque: &str) -> bool {
    list.split(',').map(str::trim).any(|tag| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(opaque)
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const CHANGED: Timestamp = Timestamp::from_secs(1_700_000_000);
    const NOW: Timestamp = Timestamp::from_secs(1_700_000_100);

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (name.clone(), HeaderValue::from_str(value).expect("a header value"))
            })
            .collect()
    }

    fn of(request: &HeaderMap) -> Validators {
        validators(request, b"{}", Some(CHANGED), DateValidity::Exact)
    }

    #[test]
    fn the_etag_is_the_hash_of_the_named_headers_and_the_body() {
        // printf 'a/b:Bearer x:{}' | sha256sum
        let request = headers(&[(header::ACCEPT, "a/b"), (header::AUTHORIZATION, "Bearer x")]);
        assert_eq!(
            of(&request).opaque,
            "fb153f90a18522713abdeda64e2aef9b66e8ca98e6c67b34bef99b6ed1cc66c3"
        );
    }

    #[test]
    fn another_token_gets_another_etag_and_the_same_last_modified() {
        let one = of(&headers(&[(header::AUTHORIZATION, "Bearer one")]));
        let two = of(&headers(&[(header::AUTHORIZATION, "Bearer two")]));
        assert_ne!(one.opaque, two.opaque);
        assert_eq!(one.last_modified, two.last_modified);
    }

    #[test]
    fn if_none_match_takes_a_list_weak_tags_and_a_star() {
        let validators = of(&HeaderMap::new());
        for value in [
            validators.strong_etag(),
            format!("W/{}", validators.strong_etag()),
            format!("\"x\", {}", validators.strong_etag()),
            "*".to_owned(),
        ] {
            assert_eq!(
                validators.evaluate(&headers(&[(header::IF_NONE_MATCH, &value)])),
                Freshness::NotModified,
                "{value}"
            );
        }
        assert_eq!(
            validators.evaluate(&headers(&[(header::IF_NONE_MATCH, "\"x\"")])),
            Freshness::Modified
        );
    }

    #[test]
    fn if_none_match_takes_precedence_over_if_modified_since() {
        let request = headers(&[
            (header::IF_NONE_MATCH, "\"x\""),
            (header::IF_MODIFIED_SINCE, &http_date(NOW)),
        ]);
        assert_eq!(of(&HeaderMap::new()).evaluate(&request), Freshness::Modified);
    }

    #[test]
    fn if_modified_since_with_that_exact_value_yields_304() {
        let validators = of(&HeaderMap::new());
        assert_eq!(
            validators.evaluate(&headers(&[(header::IF_MODIFIED_SINCE, &http_date(CHANGED))])),
            Freshness::NotModified
        );
        let before = Timestamp::from_secs(CHANGED.as_secs() - 1);
        assert_eq!(
            validators.evaluate(&headers(&[(header::IF_MODIFIED_SINCE, &http_date(before))])),
            Freshness::Modified
        );
        assert_eq!(
            validators.evaluate(&headers(&[(header::IF_MODIFIED_SINCE, "soon")])),
            Freshness::Modified
        );
    }

    #[test]
    fn an_ambiguous_date_never_validates() {
        assert_eq!(
            validators(&HeaderMap::new(), b"{}", Some(CHANGED), DateValidity::None).last_modified,
            None
        );
        let ambiguous =
            validators(&HeaderMap::new(), b"{}", Some(CHANGED), DateValidity::Ambiguous);
        assert_eq!(
            ambiguous.evaluate(&headers(&[(header::IF_MODIFIED_SINCE, &http_date(CHANGED))])),
            Freshness::Modified
        );
    }

    #[test]
    fn a_caller_that_accepts_compression_gets_a_weak_etag() {
        let request = headers(&[(header::ACCEPT_ENCODING, "gzip, deflate")]);
        assert!(of(&request).etag(&request).starts_with("W/\""));
        assert!(of(&request).strong_etag().starts_with('"'));
    }
}
