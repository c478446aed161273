//! Shared bodies: a body too large to hold is read once and passed on piece by piece to all.
//!
//! No task pumps it. The reader that needs the next piece reads it for all. Pieces stay in a small
//! window in memory; those that leave it before the slowest reader has them go to a spool
//! (`spool.rs`), so each reader has its own pace. The body of a slow reader is read ahead after a
//! second, so that it holds no slot of the upstream's concurrency at the pace of its client. The
//! body is read while it has a reader, and a break hits all readers.
//!
//! If the spool is full or fails, a slow reader may delay the others by [`PATIENCE`] in total. Then
//! it is cut off. A slow reader yields the slot that its body holds to others that wait for it
//! (SPECIFICATION D5). A request that misses the beginning fetches for itself. `response/render.rs`
//! writes to clients.

mod delivery;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep_until};

use crate::clock::{Timestamp, timer_now};
use crate::decision::floor_rate::FloorRate;
use crate::gateway::cache::spool::Spool;
use crate::gateway::cache::store::Vary;
use crate::gateway::dispatch::answer::{AnswerBody, StreamingLease, UpstreamAnswer};
use crate::gateway::http::media_type::{has_json_type, is_json};
use crate::gateway::upstream::fetch::{Exchange, FetchError};
use crate::gateway::url_rewrite::json_stream::JsonStream;

pub use delivery::Lost;
use delivery::{Delivery, JoinState, PATIENCE, Progress, Step};

/// The bytes per second below which a reader counts as slow, on average over [`PATIENCE`]. Chosen
/// here: a large answer then has its slot for seconds.
const SLOW_BYTES_PER_SECOND: u64 = 1024 * 1024;
/// The time between two looks if others wait for the slot of a slow reader. Chosen here: unnoticed
/// beside the patience.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Other clients wait for the slot that the body holds for its slow reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotNeeded;

/// The answer apart from its body.
pub struct Head {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub requested_at: Timestamp,
}

pub struct SharedBody {
    pub head: Head,
    vary: Option<Box<Vary>>,
    /// False if only one reader may have it.
    is_for_others: bool,
    /// The upstream exchange, until its end. Its lock admits one reading reader.
    source: AsyncMutex<Option<Source>>,
    delivery: Mutex<Delivery>,
    moved: Notify,
}

struct Source {
    exchange: Box<Exchange>,
    /// Blanks the secrets of JSON, which must not reach a file (SPECIFICATION, "Promises" 6).
    blanking: Option<JsonStream>,
    /// Its slot of the upstream's concurrency, freed at the end.
    held: StreamingLease,
}

/// Guard: keeps a new shared body open for the waiters of its fetch.
pub struct JoinGuard(pub Arc<SharedBody>);

impl Drop for JoinGuard {
    fn drop(&mut self) {
        self.0.change(|delivery| {
            if delivery.join == JoinState::Awaiting {
                delivery.join = JoinState::Open;
            }
        });
    }
}

/// A reader of a shared body. Dropping it ends its interest.
pub struct Reader {
    body: Arc<SharedBody>,
    index: usize,
    /// The time from which its client holds up the upstream no longer.
    ahead_from: Instant,
    /// The pace of its client, which holds a slot of the upstream.
    rate: FloorRate,
    /// The length of the piece that the client takes, and its time.
    handed: Option<(usize, Instant)>,
}

impl Reader {
    /// Adds a reader at the beginning; `None` if the beginning is dropped or the body is exclusive.
    /// `no_store`: nothing of it may go to a file from now on (RFC 9111 §5.2.1.5).
    pub fn join(body: &Arc<SharedBody>, no_store: bool) -> Option<Self> {
        let mut delivery = body.delivery.lock();
        if delivery.join == JoinState::Closed {
            return None;
        }
        if !body.is_for_others {
            delivery.join = JoinState::Closed;
        }
        if no_store {
            delivery.spool.close();
        }
        delivery.readers.push(Some(Progress::default()));
        let index = delivery.readers.len() - 1;
        Some(Self::new(Arc::clone(body), index))
    }

    pub fn alone(answer: UpstreamAnswer) -> Self {
        let body = SharedBody::new(answer, None, false);
        let mut delivery = body.delivery.lock();
        delivery.join = JoinState::Closed;
        delivery.readers.push(Some(Progress::default()));
        drop(delivery);
        Self::new(Arc::new(body), 0)
    }

    fn new(body: Arc<SharedBody>, index: usize) -> Self {
        let rate = FloorRate::new(SLOW_BYTES_PER_SECOND, PATIENCE);
        Self { body, index, ahead_from: timer_now() + PATIENCE, rate, handed: None }
    }

    pub fn head(&self) -> &Head {
        &self.body.head
    }

    /// Returns the next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        let Self { body, index, rate, handed, .. } = self;
        if let Some((bytes, since)) = handed.take() {
            rate.took(bytes, since.elapsed());
        }
        loop {
            let moved = body.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let step = body.delivery.lock().step(*index, timer_now())?;
            let piece = match step {
                Step::Take(piece) => piece,
                Step::TakeSpooled(range) => {
                    let spool = Arc::clone(&body.delivery.lock().spool);
                    spool.read(range).await.map_err(|error| {
                        warn_of_fault(&error);
                        Lost
                    })?
                }
                Step::End => return Ok(None),
                Step::Read => {
                    body.read(Some(*index)).await;
                    continue;
                }
                Step::Wait(deadline) => {
                    tokio::select! {
                        () = &mut moved => {}
                        () = sleep_until(deadline) => {
                            body.change(|delivery| delivery.lose_patience(timer_now()));
                        }
                    }
                    continue;
                }
            };
            let now = timer_now();
            body.change(|delivery| delivery.took(*index, piece.len(), now));
            *handed = Some((piece.len(), now));
            return Ok(Some(piece));
        }
    }

    /// Reads on into the file while this reader's client takes nothing. Poll it beside a write; it
    /// may be dropped at any time. It ends if others wait for the slot of a body that can go to no
    /// file, and this reader is slow.
    pub async fn read_ahead(&self) -> SlotNeeded {
        sleep_until(self.ahead_from).await;
        let slow_from = self.handed.map_or(self.ahead_from, |(_, since)| since);
        let mut look_at = slow_from + self.rate.patience();
        loop {
            let moved = self.body.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let may_read = self.body.delivery.lock().may_read_ahead();
            if may_read {
                self.body.read(None).await;
                continue;
            }
            tokio::select! {
                () = &mut moved => {}
                () = sleep_until(look_at) => {
                    if self.body.yield_slot() {
                        return SlotNeeded;
                    }
                    look_at = timer_now() + LOOK_EVERY;
                }
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.body.change(|delivery| {
            delivery.readers[self.index] = None;
            delivery.end_stall(timer_now());
        });
    }
}

impl SharedBody {
    /// Shares the body of an answer. `is_for_others`: more than one reader may have it.
    pub fn new(answer: UpstreamAnswer, vary: Option<Box<Vary>>, is_for_others: bool) -> Self {
        let UpstreamAnswer { status, headers, body, client, requested_at, .. } = answer;
        // Their secrets are not blanked, so they may reach no file.
        let may_hold_secrets = !is_for_others && has_json_type(&headers);
        let mut blanking = (is_for_others && is_json(&headers)).then(JsonStream::for_secrets);
        let (mut first, exchange) = match body {
            AnswerBody::Whole(bytes) => (bytes, None),
            AnswerBody::SharedBody { first, exchange, held } => (first, Some((exchange, held))),
        };
        if let Some(blanking) = &mut blanking {
            first = blanking.push(&first);
        }
        let source = exchange.map(|(exchange, held)| Source { exchange, blanking, held });
        let end = source.is_none().then_some(Ok(()));
        let mut delivery = Delivery { end, ..Delivery::new(Spool::of_client(client)) };
        delivery.push(first);
        if may_hold_secrets {
            delivery.spool.close();
        }
        Self {
            head: Head { status, headers, requested_at },
            vary,
            is_for_others,
            source: AsyncMutex::new(source),
            delivery: Mutex::new(delivery),
            moved: Notify::new(),
        }
    }

    pub fn fits(&self, request_headers: &HeaderMap) -> bool {
        self.vary.as_ref().is_none_or(|vary| vary.fits(request_headers))
    }

    /// Keeps it out of files from now on.
    pub fn keep_in_memory(&self) {
        self.delivery.lock().spool.close();
    }

    /// Reads a piece for all, or makes space for it. `None`: ahead of every reader.
    async fn read(&self, reader: Option<usize>) {
        let mut source = self.source.lock().await;
        let (oldest, may_spill) = {
            let delivery = self.delivery.lock();
            // Another reader may have done so meanwhile.
            if !reader.map_or(delivery.end.is_none(), |reader| delivery.is_at_end(reader)) {
                return;
            }
            let oldest = delivery.window.front().filter(|_| delivery.is_full()).cloned();
            // The file may have filled up or failed since this reader chose to read.
            if oldest.is_some() && !delivery.spool_has_room() {
                return;
            }
            (oldest, !delivery.spool.is_closed())
        };
        if let Some((offset, piece)) = oldest {
            return self.spill(offset, piece).await;
        }
        let read = match source.as_mut() {
            Some(source) => source.read(may_spill).await,
            None => Err(Lost),
        };
        let end = match read {
            Ok(Some(piece)) => return self.change(|delivery| delivery.push(piece)),
            Ok(None) => Ok(()),
            Err(Lost) => Err(Lost),
        };
        let ended = source.take();
        self.change(|delivery| delivery.end = Some(end));
        if let (Some(Source { exchange, .. }), Ok(())) = (ended, end) {
            exchange.release();
        }
    }

    /// Breaks the body off if other clients wait for its slot, and its client has enough of them.
    fn yield_slot(&self) -> bool {
        // A reader that reads from the upstream needs the slot for more than a slow client.
        let Ok(mut source) = self.source.try_lock() else { return false };
        if !source.as_mut().is_some_and(|source| source.held.yields()) {
            return false;
        }
        *source = None;
        drop(source);
        self.change(|delivery| delivery.end = Some(Err(Lost)));
        true
    }

    /// Moves the oldest piece of the window to the spool.
    async fn spill(&self, offset: u64, piece: Bytes) {
        let (spool, end) = (Arc::clone(&self.delivery.lock().spool), offset + piece.len() as u64);
        let written = spool.write(offset, piece).await;
        self.change(|delivery| match written {
            Ok(()) => {
                delivery.stalled_since = None;
                delivery.drop_before(end);
            }
            Err(error) => {
                warn_of_fault(&error);
                delivery.spool.close();
            }
        });
    }

    /// Changes the delivery. Ends the exchange once it has no reader; a reader in the middle of a
    /// read still wants it.
    fn change(&self, change: impl FnOnce(&mut Delivery)) {
        let mut delivery = self.delivery.lock();
        change(&mut delivery);
        if delivery.join != JoinState::Awaiting && delivery.readers.iter().all(Option::is_none) {
            delivery.join = JoinState::Closed;
            if let Ok(mut source) = self.source.try_lock() {
                *source = None;
            }
        }
        delivery.settle();
        drop(delivery);
        self.moved.notify_waiters();
    }
}

impl Source {
    async fn read(&mut self, may_spill: bool) -> Result<Option<Bytes>, Lost> {
        let read = self.exchange.read_body().await;
        // A silent upstream may still be at work, unlike one that ended the body or broke it off.
        if !matches!(read, Ok(Some(_)) | Err(FetchError::Timeout)) {
            self.held.ended();
        }
        let piece = read.map_err(|_| Lost)?;
        if !may_spill {
            self.blanking = None;
        }
        Ok(match &mut self.blanking {
            Some(blanking) => piece.map(|piece| blanking.push(&piece)),
            None => piece,
        })
    }
}

fn warn_of_fault(error: &io::Error) {
    tracing::warn!(%error, "the temporary file of a large answer failed");
}
