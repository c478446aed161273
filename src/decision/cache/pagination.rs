//! Pages of lists with a 304 that may hide a next page. `Link` is outside the `ETag`
//! (SPECIFICATION, "Conditional requests in practice"), so a full last page stays valid while a
//! page is added after it. A page with an outdated `last` link stays valid too. Such pages are
//! fetched without conditions where that is likely (SPECIFICATION D3).
//!
//! The gateway remembers the changes of adjacent pages. Lists inside an object are left out: their
//! count of items changes with them.

use http::{HeaderMap, HeaderValue, header};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

use super::settling::Trust;

/// Query parameters that begin a page at an item instead of a page number.
const CURSORS: [&str; 2] = ["cursor", "after"];

/// Role of an answer as a page of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Page {
    /// No list, or a last page that is not full.
    #[default]
    Other,
    /// Names later pages, whose number may have changed.
    Followed,
    /// The last page, and full.
    FullAndLast,
}

/// Items on the pages of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSizes {
    /// Number without a parameter.
    pub default: u32,
    pub max: u32,
}

impl Page {
    /// Classifies an answer to `target`. The body is parsed only where no header names a later
    /// page.
    pub fn of(target: &str, sizes: PageSizes, headers: &HeaderMap, body: &[u8]) -> Self {
        if body.trim_ascii_start().first() != Some(&b'[') {
            return Self::Other;
        }
        if names_later_page(headers) {
            return Self::Followed;
        }
        let is_full = serde_json::from_slice::<Vec<IgnoredAny>>(body)
            .is_ok_and(|items| items.len() >= size_of_page(target, sizes));
        if is_full { Self::FullAndLast } else { Self::Other }
    }

    /// Returns true when a 304 proves nothing. The answer's request left at `requested_at` and has
    /// this `trust`. An adjacent page or the list last changed at `adjacent_changed_at`.
    ///
    /// A page that only names later pages is fetched anew once after each known change of its list:
    /// a full fetch costs budget, and most changes leave the number of pages alone.
    pub fn may_hide_next(
        self,
        requested_at: Timestamp,
        trust: Trust,
        adjacent_changed_at: impl FnOnce() -> Option<Timestamp>,
    ) -> bool {
        match self {
            Self::Other => false,
            Self::Followed => trust == Trust::Invalidated,
            Self::FullAndLast => {
                trust != Trust::Settled
                    || adjacent_changed_at().is_some_and(|changed_at| requested_at <= changed_at)
            }
        }
    }
}

/// Returns true when this page shows that its list continues behind an earlier page.
pub fn continues_list(target: &str, body: &[u8]) -> bool {
    is_later(target)
        && body
            .trim_ascii_start()
            .strip_prefix(b"[")
            .is_some_and(|rest| rest.trim_ascii_start().first() != Some(&b']'))
}

/// Returns true for the beginning of a list. A later page has links even if it is empty; `before`,
/// and `since` with a number, begin it anywhere.
pub fn begins_list(target: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !is_later(target)
        && parameter(target, "before").is_none()
        && !parameter(target, "since").is_some_and(is_number)
}

fn is_later(target: &str) -> bool {
    parameter(target, "page").is_some_and(|page| page != "1")
        || CURSORS.iter().any(|name| parameter(target, name).is_some())
}

fn size_of_page(target: &str, sizes: PageSizes) -> usize {
    let requested =
        parameter(target, "per_page").and_then(|size| size.parse().ok()).filter(|size| *size > 0);
    requested.unwrap_or(sizes.default).clamp(1, sizes.max.max(1)) as usize
}

fn parameter<'t>(target: &'t str, name: &str) -> Option<&'t str> {
    let (_, query) = target.split_once('?')?;
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn names_later_page(headers: &HeaderMap) -> bool {
    let is_later = |value: &HeaderValue| {
        let Ok(text) = value.to_str() else { return false };
        text.split(';').any(|part| {
            let part = part.split(',').next().unwrap_or_default().trim();
            ["rel=\"next\"", "rel=next", "rel=\"last\"", "rel=last"].contains(&part)
        })
    };
    headers.get_all(header::LINK).iter().any(is_later)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SIZES: PageSizes = PageSizes { default: 3, max: 5 };
    const THREE: &[u8] = br#" [{"a": [1, 2]}, "],[", 3 ]"#;
    const AT: Timestamp = Timestamp::from_secs(1_000);

    fn links(link: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::LINK, HeaderValue::from_static(link))])
    }

    fn page(target: &str, body: &[u8]) -> Page {
        Page::of(target, SIZES, &HeaderMap::new(), body)
    }

    #[test]
    fn a_page_with_per_page_items_is_full() {
        for target in
            ["/a", "/a?per_page=3&page=2", "/a?page=2&per_page=3", "/a?per_page=0", "/a?per_page=x"]
        {
            assert_eq!(page(target, THREE), Page::FullAndLast, "{target}");
        }
        assert_eq!(page("/a?per_page=4", THREE), Page::Other);
        assert_eq!(
            page("/a?per_page=100", b"[1,2,3,4,5]"),
            Page::FullAndLast,
            "more than there can be is as many as there can be"
        );
        for body in [&b"[]"[..], b"", b"{\"items\":[1,2,3]}", b"[1,2,", b"[1,2]", b"\"[1,2,3]\""] {
            assert_eq!(page("/a", body), Page::Other);
        }
    }

    #[test]
    fn a_page_that_links_to_a_later_page_is_not_the_last() {
        let of = |link| Page::of("/a", SIZES, &links(link), THREE);
        for link in [
            r#"<https://x/a?page=1>; rel="prev", <https://x/a?page=3>; rel="next", <https://x/a?page=9>; rel="last""#,
            "<https://x/a?page=3>; rel=next",
        ] {
            assert_eq!(of(link), Page::Followed, "{link}");
        }
        assert_eq!(of(r#"<https://x/a?page=9>; rel="last""#), Page::Followed);
        assert_eq!(
            of(r#"<https://x/a?page=1&rel="next">; rel="prev", <https://x/a?page=1>; rel="first""#),
            Page::FullAndLast
        );
    }

    #[test]
    fn a_304_for_a_full_last_page_proves_nothing_after_a_change() {
        let later = AT + Duration::from_millis(1);
        let hides = |trust, adjacent| Page::FullAndLast.may_hide_next(AT, trust, || adjacent);
        assert!(hides(Trust::Settled, Some(AT)) && hides(Trust::Settled, Some(later)));
        assert!(hides(Trust::Invalidated, None) && hides(Trust::Until(later), None));
        assert!(
            !hides(Trust::Settled, None)
                && !hides(Trust::Settled, Some(AT - Duration::from_millis(1)))
        );
        assert!(!Page::Other.may_hide_next(AT, Trust::Invalidated, || Some(later)));
    }

    #[test]
    fn a_followed_page_is_refetched_only_when_invalidated() {
        assert!(Page::Followed.may_hide_next(AT, Trust::Invalidated, || None));
        for trust in [Trust::Settled, Trust::Until(AT)] {
            assert!(!Page::Followed.may_hide_next(AT, trust, || Some(AT)), "{trust:?}");
        }
    }

    #[test]
    fn a_list_begins_without_a_page_or_a_cursor() {
        for target in ["/a", "/a?page=1", "/a?since=2026-07-01T00:00:00Z&per_page=5"] {
            assert!(begins_list(target), "{target}");
        }
        for target in ["/a?page=2", "/a?after=x", "/a?before=x", "/a?since=7", "/a?cursor=v1_5"] {
            assert!(!begins_list(target), "{target}");
        }
    }

    #[test]
    fn a_nonempty_later_page_shows_that_the_list_continues() {
        for target in ["/a?page=2", "/a?per_page=5&page=7", "/a?cursor=v1_5", "/a?after=x"] {
            assert!(continues_list(target, THREE) && !continues_list(target, b"[ ]"), "{target}");
        }
        for target in ["/a", "/a?page=1", "/a?per_page=5", "/a?per_page=5&homepage=2"] {
            assert!(!continues_list(target, THREE), "{target}");
        }
    }
}
