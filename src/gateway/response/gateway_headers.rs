//! The gateway headers of every answer to a known client, for header maps and for buffers.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderValue;

use crate::api::ResourceName;
use crate::telemetry::CacheOutcome;

use crate::gateway::dispatch::progress::Figures;
use crate::gateway::environment::Environment;
use crate::gateway::http::head_writer::{Fields, with_digits};
use crate::gateway::response::budget_headers::RateView;

const TIMING_BYTES_USUAL: usize = 64;

pub struct GatewayHeaders<'a> {
    pub cache: CacheOutcome,
    pub figures: Figures,
    /// The client's view of its budget; `None` if the answer carries its own.
    pub view: Option<(RateView, ResourceName)>,
    pub id: &'a HeaderValue,
}

pub fn add_gateway_headers(env: &Environment, head: &mut impl Fields, added: &GatewayHeaders<'_>) {
    if let Some((view, resource)) = &added.view {
        view.write(head, resource);
    }
    if let Some(status) = added.cache.cache_status() {
        head.set("cache-status", status.as_bytes());
    }
    if spent_nothing(added.cache) {
        head.set("x-from-cache", b"1");
    }
    if let Some(account) = added.figures.account {
        head.set("x-weir-account", env.account_name(account).as_bytes());
    }
    head.set("server-timing", &timing(&added.figures));
    head.set_varying("x-request-id", added.id.as_bytes());
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
            text.extend_from_slice(digits);
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

/// True if the answer cost no budget: `X-From-Cache: 1` (SPECIFICATION, "Cache headers").
const fn spent_nothing(cache: CacheOutcome) -> bool {
    match cache {
        CacheOutcome::Hit
        | CacheOutcome::Collapsed(_)
        | CacheOutcome::StaleIfLimited
        | CacheOutcome::StaleIfError
        | CacheOutcome::StaleWhileRevalidate => true,
        CacheOutcome::Fetched(fetch) => fetch.is_free(),
        CacheOutcome::Bypass | CacheOutcome::None => false,
    }
}
