//! Shared bodies: a body too large to hold is read once and passed on piece by piece to all.
//!
//! No task pumps it. The reader that needs the next piece reads it for all, and one whose client
//! takes nothing reads ahead. Pieces stay in a small window in memory and go on to a spool
//! (`spool/file.rs`). So each reader has its own pace, the upstream is read at its own, and a
//! request that comes while the body is read joins at its beginning. The body is read while it has
//! a reader, and a break hits all readers. A complete one may become a stored answer.
//!
//! If the spool is full, the beginning is dropped, and later requests fetch for themselves. If it
//! cannot have what the slowest reader lacks, that one may delay the others by [`PATIENCE`] in
//! total. Then it is cut off. A slow reader yields the slot that its body holds to others that wait
//! for it (SPECIFICATION D5). `response/render.rs` writes to clients.

mod delivery;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep_until};

use crate::clock::{Timestamp, timer_now};
use crate::decision::cache::cache_control::CacheControl;
use crate::decision::floor_rate::FloorRate;
use crate::gateway::cache::store::Vary;
use crate::gateway::dispatch::answer::{AnswerBody, StreamingLease, UpstreamAnswer};
use crate::gateway::http::headers::declared_length;
use crate::gateway::http::media_type::{has_json_type, is_json};
use crate::gateway::spool::file::{Spool, warn_of_fault};
use crate::gateway::spool::kept::StoredFile;
use crate::gateway::spool::space::SpoolSpace;
use crate::gateway::upstream::fetch::{Exchange, FetchError};
use crate::gateway::url_rewrite::json_stream::JsonStream;

pub use delivery::Lost;
use delivery::{Delivery, JoinState, PATIENCE, Slot, Step};

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
    /// False if no file can have the whole of it.
    fits_file: bool,
    /// Set as long as it may become a stored answer.
    keep: Mutex<Option<Keep>>,
    /// The upstream exchange, until its end. Its lock admits one reading reader.
    source: AsyncMutex<Option<Source>>,
    delivery: Mutex<Delivery>,
    moved: Notify,
}

/// The way into the store of a complete body.
pub struct Keep {
    /// The longest body that is stored.
    pub bytes_max: u64,
    pub put: Box<dyn FnOnce(Arc<StoredFile>) + Send>,
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
                let fits = self.0.fits_file;
                delivery.join = if fits { JoinState::Open } else { JoinState::Closed };
            }
        });
    }
}

/// A reader of a shared body. Dropping it ends its interest.
pub struct Reader {
    body: Arc<SharedBody>,
    index: usize,
    /// The end of the part that it wants.
    until: u64,
    began: Instant,
    /// The age of the body when it joined, unless it waited for the fetch.
    pub age: Option<Duration>,
    /// The pace of its client, which holds a slot of the upstream.
    rate: FloorRate,
    /// The length of the piece that the client takes, and its time.
    handed: Option<(usize, Instant)>,
}

impl Reader {
    /// Adds a reader at the beginning; `None` if the beginning is dropped, the body broke off or is
    /// exclusive. `no_store`: nothing of it may go to a file from now on (RFC 9111 §5.2.1.5).
    pub fn join(body: &Arc<SharedBody>, no_store: bool) -> Option<Self> {
        let mut delivery = body.delivery.lock();
        let is_broken = matches!(delivery.end, Some(Err(Lost)));
        // The waiters of the fetch itself learn of the break as its readers.
        if delivery.join == JoinState::Closed || is_broken && delivery.join == JoinState::Open {
            return None;
        }
        if !body.is_for_others {
            delivery.join = JoinState::Closed;
        }
        if no_store {
            delivery.spool.close();
        }
        let index = delivery.add();
        Some(Self::new(Arc::clone(body), index))
    }

    pub fn alone(answer: UpstreamAnswer, space: &Arc<SpoolSpace>) -> Self {
        let body = SharedBody::new(answer, None, false, None, space);
        let mut delivery = body.delivery.lock();
        delivery.join = JoinState::Closed;
        let index = delivery.add();
        drop(delivery);
        Self::new(Arc::new(body), index)
    }

    fn new(body: Arc<SharedBody>, index: usize) -> Self {
        let rate = FloorRate::new(SLOW_BYTES_PER_SECOND, PATIENCE);
        Self { body, index, until: u64::MAX, began: timer_now(), age: None, rate, handed: None }
    }

    pub fn head(&self) -> &Head {
        &self.body.head
    }

    /// The length of the whole body, if it is known and no client gets other bytes.
    pub fn length(&self) -> Option<u64> {
        let Head { headers, .. } = &self.body.head;
        let declared = declared_length(headers).filter(|_| !is_json(headers));
        declared.or_else(|| {
            let delivery = self.body.delivery.lock();
            (delivery.end == Some(Ok(())) && !is_json(headers)).then_some(delivery.read_bytes)
        })
    }

    /// Reads only this part of the body, of which nothing was read yet. It waits for what the
    /// upstream has not sent.
    #[must_use]
    pub fn part(mut self, range: Range<u64>) -> Self {
        self.until = range.end;
        let skipped = usize::try_from(range.start).unwrap_or(usize::MAX);
        // A reader that was cut off is found out when it reads.
        let _ = self.body.change(|delivery| delivery.took(self.index, skipped, timer_now()));
        self
    }

    /// Returns the next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        let Self { body, index, until, rate, handed, .. } = self;
        if let Some((bytes, since)) = handed.take() {
            rate.took(bytes, since.elapsed());
        }
        loop {
            let moved = body.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let step = body.with(|delivery| delivery.step(*index, *until, timer_now()))?;
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
                Step::WaitForFile => {
                    moved.await;
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
            body.took(*index, piece.len(), now)?;
            *handed = Some((piece.len(), now));
            return Ok(Some(piece));
        }
    }

    /// Reads on into the file while this reader's client takes nothing. Poll it beside a write; it
    /// may be dropped at any time. It ends if others wait for the slot of a body that can go to no
    /// file, and this reader is slow.
    pub async fn read_ahead(&self) -> SlotNeeded {
        let slow_from = self.handed.map_or(self.began, |(_, since)| since);
        let mut look_at = (slow_from + self.rate.patience()).max(self.began + PATIENCE);
        loop {
            let moved = self.body.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let may_read = self.body.with(Delivery::may_read_ahead);
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
            delivery.readers[self.index] = Slot::Free;
            delivery.end_stall(timer_now());
        });
    }
}

impl SharedBody {
    /// Shares the body of an answer. `is_for_others`: more than one reader may have it.
    pub fn new(
        answer: UpstreamAnswer,
        vary: Option<Box<Vary>>,
        is_for_others: bool,
        keep: Option<Keep>,
        space: &Arc<SpoolSpace>,
    ) -> Self {
        let UpstreamAnswer { status, headers, body, client, requested_at, .. } = answer;
        // Their secrets are not blanked, so they may reach no file.
        let may_hold_secrets = !is_for_others && has_json_type(&headers);
        // RFC 9111 §5.2.2.5: it goes to no disk.
        let no_store = CacheControl::parse(&headers).no_store;
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
        let mut delivery = Delivery { end, ..Delivery::new(Spool::of_client(space, client)) };
        delivery.push(first);
        if may_hold_secrets || no_store {
            delivery.spool.close();
        }
        let fits_file = declared_length(&headers).is_none_or(|bytes| space.may_hold(bytes));
        Self {
            head: Head { status, headers, requested_at },
            vary,
            is_for_others,
            fits_file,
            keep: Mutex::new(keep),
            source: AsyncMutex::new(source),
            delivery: Mutex::new(delivery),
            moved: Notify::new(),
        }
    }

    pub fn fits(&self, request_headers: &HeaderMap) -> bool {
        let language =
            || self.head.headers.get(header::CONTENT_LANGUAGE).map(HeaderValue::as_bytes);
        self.vary.as_ref().is_none_or(|vary| vary.fits(request_headers, language()))
    }

    /// Keeps it out of files from now on.
    pub fn keep_in_memory(&self) {
        self.delivery.lock().spool.close();
    }

    /// True if it is still being read from the upstream.
    pub fn is_arriving(&self) -> bool {
        self.delivery.lock().end.is_none()
    }

    /// True if somebody reads it, or is about to.
    pub fn is_in_use(&self) -> bool {
        let delivery = self.delivery.lock();
        delivery.join == JoinState::Awaiting || delivery.has_readers()
    }

    /// True if it becomes a stored answer, unless something breaks.
    pub fn is_to_be_kept(&self) -> bool {
        self.keep.lock().is_some()
    }

    /// Reads a piece for all, if it is still wanted. `None`: ahead of every reader.
    async fn read(self: &Arc<Self>, reader: Option<usize>) {
        let mut source = self.source.lock().await;
        let may_spill = {
            let delivery = self.delivery.lock();
            // Another reader may have done so meanwhile.
            let is_wanted =
                reader.map_or(delivery.end.is_none(), |reader| delivery.is_at_end(reader));
            if !is_wanted || delivery.is_full() {
                return;
            }
            !delivery.spool.is_closed()
        };
        let read = match source.as_mut() {
            Some(source) => source.read(may_spill).await,
            None => Err(Lost),
        };
        let (piece, end) = match read {
            Ok(Some(piece)) => (piece, source.as_mut().and_then(Source::end_if_over)),
            Ok(None) => (Bytes::new(), Some(Ok(()))),
            Err(Lost) => (Bytes::new(), Some(Err(Lost))),
        };
        // First: a client that has the whole body may ask for more at once.
        if end.is_some()
            && let (Some(Source { exchange, .. }), Some(Ok(()))) = (source.take(), end)
        {
            exchange.release();
        }
        self.change(|delivery| {
            if !piece.is_empty() {
                delivery.push(piece);
            }
            delivery.end = end.or(delivery.end);
        });
    }

    /// Breaks the body off if other clients wait for its slot, and its client has enough of them.
    fn yield_slot(self: &Arc<Self>) -> bool {
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

    /// Records that a reader has more. Others wait for that only where the window is full.
    fn took(self: &Arc<Self>, reader: usize, bytes: usize, now: Instant) -> Result<(), Lost> {
        let (was_full, took) = self.with(|delivery| {
            let was_full = delivery.is_full();
            (was_full, delivery.took(reader, bytes, now))
        });
        if was_full {
            self.moved.notify_waiters();
        }
        took
    }

    /// Changes the delivery, and wakes those who wait for that.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Delivery) -> T) -> T {
        let changed = self.with(change);
        self.moved.notify_waiters();
        changed
    }

    /// Changes the delivery, and does what follows: drops what is needed no more, sends pieces to
    /// the file, and stores a complete body. Ends the exchange once it has no reader; a reader in
    /// the middle of a read still wants it.
    fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut Delivery) -> T) -> T {
        let mut delivery = self.delivery.lock();
        let changed = change(&mut delivery);
        let is_complete = delivery.end == Some(Ok(()));
        if delivery.join != JoinState::Awaiting && !is_complete && !delivery.has_readers() {
            delivery.join = JoinState::Closed;
            if let Ok(mut source) = self.source.try_lock() {
                *source = None;
            }
        }
        delivery.settle();
        let kept = self.keep_if_complete(&delivery);
        if let Ok(runtime) = Handle::try_current()
            && let Some((offset, pieces)) = delivery.take_spill(self.is_to_be_kept())
        {
            runtime.spawn(Arc::clone(self).spill(offset, pieces));
        }
        drop(delivery);
        if let Some((keep, file)) = kept {
            (keep.put)(file);
        }
        changed
    }

    /// The file of a complete body that is to be stored.
    fn keep_if_complete(&self, delivery: &Delivery) -> Option<(Keep, Arc<StoredFile>)> {
        let mut keep = self.keep.lock();
        let bytes_max = keep.as_ref()?.bytes_max;
        let is_lost = matches!(delivery.end, Some(Err(Lost))) || delivery.join == JoinState::Closed;
        if is_lost || delivery.spool.is_closed() || delivery.read_bytes > bytes_max {
            *keep = None;
        }
        if delivery.end != Some(Ok(())) || delivery.spooled < delivery.read_bytes {
            return None;
        }
        let keep = keep.take()?;
        Some((keep, StoredFile::new(Arc::clone(&delivery.spool), delivery.read_bytes)))
    }

    /// Moves pieces of the window to the spool.
    async fn spill(self: Arc<Self>, offset: u64, pieces: Vec<Bytes>) {
        let end = offset + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let spool = Arc::clone(&self.delivery.lock().spool);
        let written = spool.write(offset, pieces).await;
        self.change(|delivery| match written {
            Ok(()) => delivery.spilled(end),
            Err(error) => {
                warn_of_fault(&error);
                delivery.spool.close();
                delivery.is_spilling = false;
            }
        });
    }
}

impl Source {
    /// The end of a body that has no further piece.
    fn end_if_over(&mut self) -> Option<Result<(), Lost>> {
        let is_over = self.exchange.is_over();
        if is_over {
            self.held.ended();
        }
        is_over.then_some(Ok(()))
    }

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
