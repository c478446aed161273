//! The validators of a stored answer, packed: a store holds a hundred thousand answers, each with a
//! date and an `ETag` per token.
//!
//! Usual forms are stored as numbers (a date as its seconds, the hexadecimal `ETag`s of the service
//! as bytes) and come out unchanged. Other values are stored verbatim. `freshness.rs` decides about
//! their use.

use http::HeaderValue;

use super::conditional::weakly_equal;
use super::time::http_date::PackedDate;
use crate::decision::types::TokenKey;

/// `ETag`s kept per answer. Ours: more than the tokens of most pools; the least recently used goes
/// first.
pub(super) const ETAGS_MAX: usize = 16;
/// Marks a date of the service's own form: its seconds follow. Any other first byte is a length,
/// and the text follows.
const DATE_SECONDS: u8 = 0xff;
/// Longer values are not stored; the service's have 29 and 68 bytes.
const VALUE_BYTES_MAX: usize = 200;
/// Flag in the form of an `ETag`.
const WEAK: u8 = 1;
/// Flag: the text is hexadecimal and packed.
const HEXADECIMAL: u8 = 2;

/// The date, then the `ETag`s, the least recently used first.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedValidators(Box<[u8]>);

impl PackedValidators {
    pub(super) fn new(date: Option<&HeaderValue>, etags: &[(TokenKey, HeaderValue)]) -> Self {
        let mut packed = Vec::with_capacity(256);
        push_date(&mut packed, date.map_or(&[], HeaderValue::as_bytes));
        for (token, etag) in etags.iter().filter(|(_, etag)| etag.len() <= VALUE_BYTES_MAX) {
            push_etag(&mut packed, *token, etag.as_bytes());
        }
        Self(packed.as_slice().into())
    }

    pub(super) fn date(&self) -> Option<HeaderValue> {
        let (first, rest) = self.0.split_first()?;
        match *first {
            DATE_SECONDS => {
                let seconds = u32::from_le_bytes(rest.first_chunk().copied()?);
                HeaderValue::from_bytes(&PackedDate::from_seconds(seconds)?.text()).ok()
            }
            0 => None,
            length => HeaderValue::from_bytes(rest.get(..usize::from(length))?).ok(),
        }
    }

    pub(super) fn has_date(&self) -> bool {
        self.0.first().is_some_and(|first| *first > 0)
    }

    pub(super) fn etags(&self) -> impl Iterator<Item = (TokenKey, HeaderValue)> {
        self.packed_etags().filter_map(|(token, form, text)| Some((token, unpacked(form, text)?)))
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = TokenKey> {
        self.packed_etags().map(|(token, ..)| token)
    }

    /// Token with the latest `ETag`.
    pub(super) fn last_owner(&self) -> Option<TokenKey> {
        self.packed_etags().last().map(|(token, ..)| token)
    }

    pub(super) fn of(&self, token: TokenKey) -> Option<HeaderValue> {
        let (_, form, text) = self.packed_etags().find(|(owner, ..)| *owner == token)?;
        unpacked(form, text)
    }

    pub(super) fn record(
        &mut self,
        date: Option<&HeaderValue>,
        etag: Option<(TokenKey, &HeaderValue)>,
    ) {
        let date = date.cloned().or_else(|| self.date());
        let mut etags: Vec<_> = self.etags().collect();
        if let Some((token, etag)) = etag {
            let known = etags
                .iter()
                .position(|(owner, _)| *owner == token)
                .map(|place| etags.remove(place).1);
            // A 304 may name the strong form of the body's weak `ETag`; the body's own form stays.
            let value = known
                .filter(|known| weakly_equal(known.as_bytes(), etag.as_bytes()))
                .unwrap_or_else(|| etag.clone());
            if etags.len() >= ETAGS_MAX {
                etags.remove(0);
            }
            etags.push((token, value));
        }
        *self = Self::new(date.as_ref(), &etags);
    }

    /// Takes over the `ETag`s that other tokens received earlier. The latest stay when there are
    /// too many.
    pub(super) fn remember(&mut self, earlier: &Self) {
        let own: Vec<_> = self.etags().collect();
        let mut etags: Vec<_> = earlier
            .etags()
            .filter(|(owner, _)| own.iter().all(|(token, _)| token != owner))
            .collect();
        if !etags.is_empty() {
            etags.extend(own);
            etags.drain(..etags.len().saturating_sub(ETAGS_MAX));
            *self = Self::new(self.date().as_ref(), &etags);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    fn packed_etags(&self) -> impl Iterator<Item = (TokenKey, u8, &[u8])> {
        let date = match self.0.first() {
            Some(&DATE_SECONDS) => 5,
            Some(length) => 1 + usize::from(*length),
            None => 0,
        };
        let mut rest = self.0.get(date..).unwrap_or_default();
        std::iter::from_fn(move || {
            let (token, after) = rest.split_first_chunk()?;
            let ([form, length], after) = after.split_first_chunk()?;
            let (text, after) = after.split_at_checked(usize::from(*length))?;
            rest = after;
            Some((TokenKey(u64::from_le_bytes(*token)), *form, text))
        })
    }
}

fn push_date(packed: &mut Vec<u8>, date: &[u8]) {
    if let Some(date) = PackedDate::of(date) {
        packed.push(DATE_SECONDS);
        packed.extend_from_slice(&date.seconds().to_le_bytes());
        return;
    }
    let kept = if date.len() <= VALUE_BYTES_MAX { date } else { &[] };
    packed.push(u8::try_from(kept.len()).unwrap_or(0));
    packed.extend_from_slice(kept);
}

fn push_etag(packed: &mut Vec<u8>, token: TokenKey, etag: &[u8]) {
    packed.extend_from_slice(&token.0.to_le_bytes());
    let (weak, opaque) = etag.strip_prefix(b"W/").map_or((0, etag), |opaque| (WEAK, opaque));
    let digits =
        opaque.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).and_then(hexadecimal);
    let (form, text) = match &digits {
        Some(digits) => (weak | HEXADECIMAL, digits.as_slice()),
        None => (0, etag),
    };
    packed.push(form);
    // No value is longer than `VALUE_BYTES_MAX`.
    packed.push(u8::try_from(text.len()).unwrap_or(0));
    packed.extend_from_slice(text);
}

fn hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn unpacked(form: u8, text: &[u8]) -> Option<HeaderValue> {
    if form & HEXADECIMAL == 0 {
        return HeaderValue::from_bytes(text).ok();
    }
    hexadecimal_etag(if form & WEAK != 0 { b"W/" } else { b"" }, text)
}

/// `ETag` of these bytes in hexadecimal digits, behind `prefix`.
pub(super) fn hexadecimal_etag(prefix: &[u8], bytes: &[u8]) -> Option<HeaderValue> {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    let mut etag = Vec::with_capacity(2 * bytes.len() + 4);
    etag.extend_from_slice(prefix);
    etag.push(b'"');
    etag.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]));
    etag.push(b'"');
    HeaderValue::from_maybe_shared(bytes::Bytes::from(etag)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validators_are_unpacked_unchanged() {
        let dates = [
            "Tue, 01 Jul 2025 00:00:00 GMT",
            "Tuesday, 01-Jul-25 00:00:00 GMT",
            "yesterday",
            "Wed, 01 Jul 2025 00:00:00 GMT",
        ];
        let etags = [
            "\"a1\"",
            "W/\"00ff9c\"",
            "\"A1\"",
            "W/\"x\"",
            "\"a1b\"",
            "\"\"",
            "W/\"\"",
            "abc",
            "\"",
            "W/",
            "\"a,b\"",
        ];
        let pairs: Vec<_> = (1..)
            .zip(etags)
            .map(|(token, etag)| (TokenKey(token), HeaderValue::from_static(etag)))
            .collect();
        for date in dates {
            let date = HeaderValue::from_static(date);
            let known = PackedValidators::new(Some(&date), &pairs);
            assert_eq!((known.date(), known.has_date()), (Some(date), true));
            assert_eq!(known.etags().collect::<Vec<_>>(), pairs);
        }
        let known = PackedValidators::new(None, &pairs);
        assert_eq!(
            (known.date(), known.has_date(), known.last_owner()),
            (None, false, Some(TokenKey(11)))
        );
        assert_eq!(known.of(TokenKey(2)).unwrap(), "W/\"00ff9c\"");
        assert_eq!(known.of(TokenKey(99)), None);
        assert!(
            PackedValidators::default().date().is_none()
                && PackedValidators::default().etags().next().is_none()
        );
    }

    #[test]
    fn a_usual_date_and_etag_take_47_bytes() {
        let etag =
            HeaderValue::try_from(format!("W/\"{}\"", "0123456789abcdef".repeat(4))).unwrap();
        let known = PackedValidators::new(
            Some(&HeaderValue::from_static("Tue, 01 Jul 2025 00:00:00 GMT")),
            &[(TokenKey(1), etag)],
        );
        assert_eq!(known.bytes(), 5 + 10 + 32);
    }

    #[test]
    fn an_overlong_validator_is_not_kept() {
        let long = HeaderValue::try_from(format!("\"{}\"", "a".repeat(300))).unwrap();
        let known = PackedValidators::new(
            Some(&long),
            &[(TokenKey(1), long.clone()), (TokenKey(2), HeaderValue::from_static("\"b\""))],
        );
        assert!(!known.has_date());
        assert_eq!(known.etags().map(|(token, _)| token).collect::<Vec<_>>(), [TokenKey(2)]);
    }

    #[test]
    fn etags_of_other_tokens_for_the_same_body_are_kept() {
        let of = |token, etag: &'static str| {
            PackedValidators::new(None, &[(TokenKey(token), HeaderValue::from_static(etag))])
        };
        let mut known = of(2, "\"b\"");
        known.remember(&of(1, "\"a\""));
        assert_eq!(
            (known.of(TokenKey(1)), known.of(TokenKey(2))),
            (Some("\"a\"".parse().unwrap()), Some("\"b\"".parse().unwrap()))
        );
        assert_eq!(known.last_owner(), Some(TokenKey(2)));
        let mut newer = of(1, "\"c\"");
        newer.remember(&known);
        assert_eq!(
            (newer.of(TokenKey(1)), newer.etags().count()),
            (Some("\"c\"".parse().unwrap()), 2)
        );
        for token in 3..40 {
            let mut next = of(token, "\"d\"");
            next.remember(&newer);
            newer = next;
        }
        assert_eq!(
            (newer.etags().count(), newer.of(TokenKey(1)), newer.last_owner()),
            (ETAGS_MAX, None, Some(TokenKey(39)))
        );
    }
}
