//! The metadata of a stored answer as a file keeps it, across a restart of the gateway.

use std::num::NonZeroU16;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::freshness::{LifetimeSource, Mode, Stored};
use super::packed_validators::PackedValidators;
use super::pagination::Page;
use super::time::seconds::{Seconds, Ttl};
use crate::clock::Timestamp;
use crate::decision::types::TokenKey;

/// See the module. The fields are those of [`Stored`], except that it names tokens by the numbers
/// that the file gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the answer's own")]
pub struct SavedAnswer {
    status: u16,
    validated_at: u64,
    initial_age: u64,
    lifetime: u64,
    lifetime_source: LifetimeSource,
    forbids_stale: bool,
    stale_if_error: u64,
    stale_while_revalidate: u64,
    is_private: bool,
    is_shareable: bool,
    is_date_exact: bool,
    ttl_millis: Option<u64>,
    poll_interval: u64,
    page: Page,
    date: Option<String>,
    etags: Vec<(u64, String)>,
}

impl Stored {
    /// Returns what a file keeps of it; `None` for an answer that nothing can revalidate after a
    /// restart. `number` numbers the tokens that outlast it.
    pub fn saved(&self, number: impl Fn(TokenKey) -> Option<u64>) -> Option<SavedAnswer> {
        let text = |value: HeaderValue| value.to_str().map(ToOwned::to_owned).ok();
        let etags = self.known.etags();
        let etags: Vec<_> =
            etags.filter_map(|(token, etag)| Some((number(token)?, text(etag)?))).collect();
        let date = self.known.date().and_then(text);
        let is_dated = self.is_date_exact && date.is_some();
        let may_return = self.status.is_success() && !self.no_store;
        let seconds = |span: Seconds| Duration::from(span).as_secs();
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        (may_return && (is_dated || !etags.is_empty())).then(|| SavedAnswer {
            status: self.status.as_u16(),
            validated_at: self.validated_at.as_millis(),
            initial_age: seconds(self.initial_age),
            lifetime: seconds(self.lifetime),
            lifetime_source: self.lifetime_source,
            forbids_stale: self.forbids_stale,
            stale_if_error: seconds(self.stale_if_error),
            stale_while_revalidate: seconds(self.stale_while_revalidate),
            is_private: self.is_private,
            is_shareable: self.is_shareable,
            is_date_exact: self.is_date_exact,
            ttl_millis: self.ttl.span().map(millis),
            poll_interval: seconds(self.poll_interval),
            page: self.page,
            date,
            etags,
        })
    }

    /// Returns the metadata that a file kept; `None` for an answer that nothing can revalidate.
    /// `token` is the token of a number, `watched_by` the rule of the config that watches it.
    pub fn restored(
        saved: &SavedAnswer,
        mode: Mode,
        token: impl Fn(u64) -> Option<TokenKey>,
        watched_by: Option<NonZeroU16>,
    ) -> Option<Self> {
        let value = |text: &String| HeaderValue::from_str(text).ok();
        let etags = saved.etags.iter();
        let etags: Vec<_> =
            etags.filter_map(|(number, etag)| Some((token(*number)?, value(etag)?))).collect();
        let date = saved.date.as_ref().and_then(value);
        let is_dated = saved.is_date_exact && date.is_some();
        let seconds = |seconds| Seconds::from(Duration::from_secs(seconds));
        let stored = Self {
            status: StatusCode::from_u16(saved.status).ok()?,
            mode,
            validated_at: Timestamp::from_millis(saved.validated_at),
            initial_age: seconds(saved.initial_age),
            lifetime: seconds(saved.lifetime),
            lifetime_source: saved.lifetime_source,
            forbids_stale: saved.forbids_stale,
            stale_if_error: seconds(saved.stale_if_error),
            stale_while_revalidate: seconds(saved.stale_while_revalidate),
            is_private: saved.is_private,
            no_store: false,
            is_shareable: saved.is_shareable,
            is_date_exact: saved.is_date_exact,
            ttl: Ttl::from(saved.ttl_millis.map(Duration::from_millis)),
            poll_interval: seconds(saved.poll_interval),
            page: saved.page,
            watched_by,
            known: PackedValidators::new(date.as_ref(), &etags),
        };
        (stored.status.is_success() && (is_dated || !etags.is_empty())).then_some(stored)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, header};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const OLD: &str = "Tue, 01 Jul 2025 00:00:00 GMT";

    fn stored(pairs: &[(header::HeaderName, &'static str)], token: u64) -> Stored {
        let headers = pairs.iter().cloned();
        let headers: HeaderMap =
            headers.map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
        let ttl = Some(Duration::from_millis(1_500));
        Stored::new(Mode::Rfc9111, NOW, StatusCode::OK, &headers, Some(TokenKey(token)), ttl)
    }

    fn is_known(TokenKey(token): TokenKey) -> Option<u64> {
        (token < 10).then_some(token + 100)
    }

    #[test]
    fn metadata_return_as_they_were() {
        let mut before = stored(
            &[
                (header::ETAG, "W/\"0a1b\""),
                (header::LAST_MODIFIED, OLD),
                (header::CACHE_CONTROL, "public, max-age=60, stale-if-error=5, must-revalidate"),
                (header::AGE, "7"),
            ],
            3,
        );
        before.page = Page::FullAndLast;
        let saved = before.saved(is_known).unwrap();
        let text = serde_json::to_string(&saved).unwrap();
        let read: SavedAnswer = serde_json::from_str(&text).unwrap();
        let after = Stored::restored(
            &read,
            Mode::Rfc9111,
            |number| Some(TokenKey(number - 100)),
            before.watched_by,
        );
        assert_eq!(format!("{:?}", after.unwrap()), format!("{before:?}"));
    }

    #[test]
    fn an_answer_needs_a_validator_that_outlasts_the_restart() {
        let etag = (header::ETAG, "\"a\"");
        assert!(stored(std::slice::from_ref(&etag), 3).saved(is_known).is_some());
        assert!(
            stored(std::slice::from_ref(&etag), 11).saved(is_known).is_none(),
            "a minted token is gone"
        );
        assert!(
            stored(&[etag.clone(), (header::LAST_MODIFIED, OLD)], 11).saved(is_known).is_some()
        );
        assert!(stored(&[], 3).saved(is_known).is_none());
        let forbidden = stored(&[etag.clone(), (header::CACHE_CONTROL, "no-store")], 3);
        assert!(forbidden.saved(is_known).is_none());
        let saved = stored(&[etag], 3).saved(is_known).unwrap();
        assert!(Stored::restored(&saved, Mode::Revalidate, |_| None, None).is_none());
    }
}
