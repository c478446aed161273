//! What the gateway adds to every answer of a known client, wherever its head is put together: in a
//! map that the framework writes, or on the wire at once.
//!
//! What an answer says by itself is in `respond.rs`; the numbers come from the books.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderValue;

use crate::api::ResourceName;
use crate::telemetry::{CacheOutcome, Fetch};

use crate::gateway::dispatch::progress::Figures;
use crate::gateway::environment::Environment;
use crate::gateway::http::head_writer::{Fields, with_digits};
use crate::gateway::response::budget_headers::RateView;

/// Room for what is said of the time that it took.
const TIMING_BYTES_USUAL: usize = 64;

/// What is added to one answer.
pub struct GatewayHeaders<'a> {
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
pub fn add_gateway_headers(env: &Environment, head: &mut impl Fields, added: &GatewayHeaders<'_>) {
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
