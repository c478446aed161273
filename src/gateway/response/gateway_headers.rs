//! What the gateway adds to every answer of a known client, wherever its head is put together: in a
//! map that the framework writes, or on the wire at once.
//!
//! What an answer says by itself is in `respond.rs`; the numbers come from the books.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::api::ResourceName;
use crate::telemetry::{CacheOutcome, Fetch};

use crate::gateway::dispatch::progress::Figures;
use crate::gateway::environment::Environment;
use crate::gateway::response::budget_headers::RateView;

/// The digits of the largest number.
const DIGITS_MAX: usize = 20;

/// Room for what is said of the time that it took.
const TIMING_BYTES_USUAL: usize = 64;

/// A head that is being put together.
pub trait Head {
    /// Says `name: value`, the name in lower case. Nothing of that name may have been said, unless
    /// the head can take it back.
    fn say(&mut self, name: &str, value: &[u8]);

    /// The same with a number.
    fn say_number(&mut self, name: &str, number: u64) {
        with_digits(number, |digits| self.say(name, digits));
    }
}

/// Gives the plain digits of a number to `take`; without the machinery of formatting, because an
/// answer says some ten numbers.
fn with_digits<T>(number: u64, take: impl FnOnce(&[u8]) -> T) -> T {
    let mut digits = [0; DIGITS_MAX];
    let mut rest = number;
    let mut begin = DIGITS_MAX;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        begin = place;
        if rest == 0 {
            break;
        }
    }
    take(digits.get(begin..).unwrap_or_default())
}

impl Head for HeaderMap {
    /// A value that no header can hold is left out; what was said before of that name is taken
    /// back.
    fn say(&mut self, name: &str, value: &[u8]) {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            self.insert(name, value);
        }
    }
}

/// A head in the form of HTTP/1.1.
pub struct OnWire<'b>(pub &'b mut Vec<u8>);

impl Head for OnWire<'_> {
    fn say(&mut self, name: &str, value: &[u8]) {
        self.0.reserve(name.len() + value.len() + 4);
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }
}

/// What is added to one answer.
pub struct Added<'a> {
    /// What the cache did.
    pub cache: CacheOutcome,
    /// What the request has cost.
    pub figures: Figures,
    /// The client's view of its budget; none where the answer has its own.
    pub view: Option<(RateView, ResourceName)>,
    /// The request's id.
    pub id: &'a HeaderValue,
}

/// Says what the gateway adds.
pub fn add_gateway_headers(env: &Environment, head: &mut impl Head, added: &Added<'_>) {
    if let Some((view, resource)) = &added.view {
        view.write(head, resource);
    }
    if let Some(status) = added.cache.cache_status() {
        head.say("cache-status", status.as_bytes());
    }
    if spent_nothing(added.cache) {
        head.say("x-from-cache", b"1");
    }
    if let Some(account) = added.figures.account {
        head.say("x-weir-account", env.account_name(account).as_bytes());
    }
    head.say("server-timing", &timing(&added.figures));
    head.say("x-request-id", added.id.as_bytes());
}

fn timing(figures: &Figures) -> Cow<'static, [u8]> {
    if figures.attempts == 0
        && figures.held.is_none()
        && figures.queue.is_zero()
        && figures.upstream.is_zero()
    {
        return b"queue;dur=0, upstream;dur=0".into();
    }
    let mut text = Vec::with_capacity(TIMING_BYTES_USUAL);
    let millis = |text: &mut Vec<u8>, time: Duration| {
        with_digits(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), |digits| {
            text.extend_from_slice(digits)
        });
    };
    text.extend_from_slice(b"queue;dur=");
    millis(&mut text, figures.queue);
    if let Some(hold) = figures.held {
        for part in [";desc=\"", hold.by.name(), "\""] {
            text.extend_from_slice(part.as_bytes());
        }
    }
    text.extend_from_slice(b", upstream;dur=");
    millis(&mut text, figures.upstream);
    text.into()
}

/// Whether the answer cost no budget: `X-From-Cache: 1` (CONTRACT §3).
const fn spent_nothing(cache: CacheOutcome) -> bool {
    match cache {
        CacheOutcome::Hit
        | CacheOutcome::Collapsed(_)
        | CacheOutcome::StaleIfLimited
        | CacheOutcome::StaleIfError => true,
        CacheOutcome::Fetched(fetch) => matches!(fetch, Fetch::Revalidated),
        CacheOutcome::Bypass | CacheOutcome::None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_said_in_plain_digits() {
        for number in [0, 7, 10, 4_999_999, u64::MAX] {
            let (mut map, mut wire) = (HeaderMap::new(), Vec::new());
            map.say_number("x-n", number);
            OnWire(&mut wire).say_number("x-n", number);
            assert_eq!(map["x-n"], number.to_string());
            assert_eq!(wire, format!("x-n: {number}\r\n").into_bytes());
        }
    }
}
