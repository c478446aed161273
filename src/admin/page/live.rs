//! Live updates by server-sent events: the sections that have changed, every two seconds.
//!
//! One task makes the sections for all streams, and rests at least twenty times as long as it
//! worked. A stream holds nothing but the last sections that it sent: one that reads slowly skips
//! those between. A stream ends before its connection does, and the browser opens the next.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep};

use super::view::{Contents, SECTIONS, contents};
use super::{Right, document};
use crate::admin::{Reply, Site, pages};
use crate::clock::{Timestamp, machine_instant};

/// Most streams at once. Our choice: a quarter of the connections of the listener, so that pages
/// left open do not shut out probes and scrapers.
const STREAMS_MAX: usize = 16;
/// Life of a stream. Our choice: less than that of a connection.
const STREAM_TIME: Duration = Duration::from_secs(50);
/// Shortest distance of updates, and the part of the time that making them may take.
const EVERY: Duration = Duration::from_secs(2);
const REST: u32 = 20;
/// Wait of a browser before it opens the next stream.
const REOPEN_MS: u32 = 1_000;

/// The latest sections, for all streams.
pub struct Live {
    slots: Arc<Semaphore>,
    latest: watch::Sender<Option<Arc<Made>>>,
    /// True while a task makes sections.
    is_running: Mutex<bool>,
}

/// The sections at one moment.
struct Made {
    /// Nothing in them is older.
    begun: Instant,
    at: Timestamp,
    contents: Contents,
}

/// One stream.
struct Stream {
    site: Arc<Site>,
    right: Right,
    opened: Instant,
    latest: watch::Receiver<Option<Arc<Made>>>,
    sent: Option<Arc<Made>>,
    end: Pin<Box<Sleep>>,
    _slot: OwnedSemaphorePermit,
}

/// Data of an event: the content of one section.
#[derive(Serialize)]
struct Update<'c> {
    id: &'c str,
    html: &'c str,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(STREAMS_MAX)),
            latest: watch::Sender::new(None),
            is_running: Mutex::new(false),
        }
    }
}

/// Answers with a stream of events.
pub fn stream(site: &Arc<Site>, right: Right) -> Reply {
    let live = &site.page.live;
    let Ok(slot) = Arc::clone(&live.slots).try_acquire_owned() else {
        let message = format!("{STREAMS_MAX} pages are live already; reload the page instead");
        return pages::error(StatusCode::SERVICE_UNAVAILABLE, &message);
    };
    let mut is_running = live.is_running.lock();
    let latest = live.latest.subscribe();
    if !*is_running {
        *is_running = true;
        tokio::spawn(keep_making(Arc::clone(site)));
    }
    drop(is_running);
    let stream = Stream {
        site: Arc::clone(site),
        right,
        opened: machine_instant(),
        latest,
        sent: None,
        end: Box::pin(sleep(STREAM_TIME)),
        _slot: slot,
    };
    let events = futures_util::stream::unfold(stream, Stream::next);
    let mut reply = Response::new(StreamBody::new(events).boxed_unsync());
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A proxy that collects events would make them late.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

/// Makes sections for as long as a stream is open.
async fn keep_making(site: Arc<Site>) {
    loop {
        let begun = machine_instant();
        let made = contents(&site).await;
        let live = &site.page.live;
        let made = made.map(|(at, contents)| Arc::new(Made { begun, at, contents }));
        {
            let mut is_running = live.is_running.lock();
            if made.is_none() || live.latest.receiver_count() == 0 {
                live.latest.send_replace(None);
                *is_running = false;
                return;
            }
        }
        live.latest.send_replace(made);
        sleep(EVERY.max((machine_instant() - begun) * REST)).await;
    }
}

impl Stream {
    /// The next events: the sections that differ from those sent before.
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Infallible>, Self)> {
        loop {
            tokio::select! {
                changed = self.latest.changed() => changed.ok()?,
                () = &mut self.end => return None,
            }
            let Some(made) = self.latest.borrow_and_update().clone() else { continue };
            if made.begun < self.opened {
                // The page itself may be newer: it may show what its reader has just done.
                continue;
            }
            if !self.site.page.holds(&self.right, &self.site.current.gateway()) {
                return None;
            }
            let events = events(&made, self.sent.as_deref());
            self.sent = Some(made);
            return Some((Ok(Frame::data(Bytes::from(events))), self));
        }
    }
}

/// The events of what has changed since `before`; all sections without it.
fn events(made: &Made, before: Option<&Made>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if before.is_none() {
        let _ = write!(text, "retry: {REOPEN_MS}\n\n");
    }
    for (index, (section, html)) in SECTIONS.iter().zip(&made.contents).enumerate() {
        let is_same = before.and_then(|before| before.contents.get(index)) == Some(html);
        // Neither an id nor a text makes it fail. Its line feeds are escaped.
        if !is_same && let Ok(update) = serde_json::to_string(&Update { id: section.id, html }) {
            let _ = write!(text, "event: section\ndata: {update}\n\n");
        }
    }
    let _ = write!(text, "event: now\ndata: {}\n\n", document::clock_of(made.at));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(first: &str) -> Made {
        let contents = (0..SECTIONS.len()).map(|index| format!("{index}")).collect();
        let at = Timestamp::from_secs(1_800_000_000);
        let mut made = Made { begun: machine_instant(), at, contents };
        first.clone_into(&mut made.contents[0]);
        made
    }

    #[test]
    fn the_first_events_have_all_sections_and_later_ones_changes() {
        let before = made("a\nb");
        let all = events(&before, None);
        assert!(
            all.starts_with(
                "retry: 1000\n\nevent: section\ndata: {\"id\":\"attention\",\"html\":\"a\\nb\"}\n\n"
            ),
            "{all}"
        );
        assert_eq!(all.matches("event: section").count(), SECTIONS.len());
        let changes = events(&made("c"), Some(&before));
        assert_eq!(
            changes,
            "event: section\ndata: {\"id\":\"attention\",\"html\":\"c\"}\n\nevent: now\ndata: 08:00:00\n\n"
        );
    }
}
