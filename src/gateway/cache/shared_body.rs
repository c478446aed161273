//! Shared bodies: a body too large to hold is read once and passed on piece by piece to all.
//!
//! No task pumps it. The reader that needs the next piece reads it for all. Pieces stay in a small
//! window in memory; those that leave it before the slowest reader has them go to a spool
//! (`spool.rs`), so each reader has its own pace. The body of a slow reader is read ahead after a
//! second, so that it holds no slot of the upstream's concurrency at the pace of its client. The
//! body is read while it has a reader, and a break hits all readers.
//!
//! If the spool is full or fails, a slow reader may delay the others by [`PATIENCE`] in total. Then
//! it is cut off. A request that misses the beginning fetches for itself. `response/render.rs`
//! writes to clients.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep_until};

use crate::clock::{Timestamp, timer_now};
use crate::gateway::cache::spool::Spool;
use crate::gateway::cache::store::Vary;
use crate::gateway::dispatch::answer::{AnswerBody, StreamingLease, UpstreamAnswer};
use crate::gateway::http::media_type::{has_json_type, is_json};
use crate::gateway::upstream::fetch::{Exchange, FetchError};
use crate::gateway::url_rewrite::json_stream::JsonStream;

/// The window in memory. Chosen here: eight reads; 32 MiB for all large bodies.
const WINDOW_BYTES: u64 = 512 * 1024;
/// Pieces in the window, because each has an overhead.
const PIECES_MAX: usize = 4096;
/// The total delay that one reader may cause. Chosen here: unnoticed, but enough for a busy client.
const PATIENCE: Duration = Duration::from_secs(1);

/// The body broke off and must not pass for a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

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

#[derive(Default)]
struct Delivery {
    /// Pieces in memory with their offsets in the body.
    window: VecDeque<(u64, Bytes)>,
    /// The bytes between the slowest reader and the window.
    spool: Arc<Spool>,
    read_bytes: u64,
    end: Option<Result<(), Lost>>,
    join: JoinState,
    /// `None`: it left or was cut off.
    readers: Vec<Option<Progress>>,
    /// The offset of the slowest reader.
    slowest: u64,
    /// The time since which a reader waits for the slowest.
    stalled_since: Option<Instant>,
}

/// A body can be joined only at its beginning.
#[derive(Default, PartialEq, Eq)]
enum JoinState {
    /// Waiters of its fetch may still join; so may others.
    #[default]
    Awaiting,
    /// Any request may join until the window is full.
    Open,
    Closed,
}

#[derive(Default)]
struct Progress {
    offset: u64,
    /// The delay that it has caused.
    held_up: Duration,
}

enum Step {
    Take(Bytes),
    TakeSpooled(Range<u64>),
    End,
    /// It reads for all, or makes space for that.
    Read,
    Wait(Instant),
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
        Some(Self { body: Arc::clone(body), index, ahead_from: timer_now() + PATIENCE })
    }

    pub fn alone(answer: UpstreamAnswer) -> Self {
        let body = SharedBody::new(answer, None, false);
        let mut delivery = body.delivery.lock();
        delivery.join = JoinState::Closed;
        delivery.readers.push(Some(Progress::default()));
        drop(delivery);
        Self { body: Arc::new(body), index: 0, ahead_from: timer_now() + PATIENCE }
    }

    pub fn head(&self) -> &Head {
        &self.body.head
    }

    /// Returns the next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        let Self { body, index, .. } = self;
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
            body.change(|delivery| delivery.took(*index, piece.len(), timer_now()));
            return Ok(Some(piece));
        }
    }

    /// Reads on into the file while this reader's client takes nothing. Poll it beside a write; it
    /// may be dropped at any time.
    pub async fn read_ahead(&self) -> Infallible {
        sleep_until(self.ahead_from).await;
        loop {
            let moved = self.body.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let may_read = self.body.delivery.lock().may_read_ahead();
            if may_read {
                self.body.read(None).await;
            } else {
                moved.await;
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
        let UpstreamAnswer { status, headers, body, requested_at, .. } = answer;
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
        let mut delivery = Delivery { end, ..Delivery::default() };
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

impl Delivery {
    /// True if the next piece may be read before any reader wants it.
    fn may_read_ahead(&mut self) -> bool {
        if self.join == JoinState::Open && self.is_full() {
            // A later request can fetch for itself.
            self.join = JoinState::Closed;
            self.settle();
        }
        let may_spill = self.join == JoinState::Closed && self.spool_has_room();
        self.end.is_none() && (!self.is_full() || may_spill)
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            let offset = self.read_bytes;
            self.read_bytes += piece.len() as u64;
            self.window.push_back((offset, piece));
        }
    }

    fn window_start(&self) -> u64 {
        self.window.front().map_or(self.read_bytes, |(offset, _)| *offset)
    }

    fn is_full(&self) -> bool {
        self.read_bytes - self.window_start() >= WINDOW_BYTES || self.window.len() >= PIECES_MAX
    }

    /// True if this reader has every piece read so far and there may be more.
    fn is_at_end(&self, reader: usize) -> bool {
        self.end.is_none()
            && self.readers[reader].as_ref().is_some_and(|reader| reader.offset == self.read_bytes)
    }

    fn step(&mut self, reader: usize, now: Instant) -> Result<Step, Lost> {
        let offset = self.readers[reader].as_ref().ok_or(Lost)?.offset;
        let start = self.window_start();
        if offset < start {
            return Ok(Step::TakeSpooled(offset..start));
        }
        let index = self.window.partition_point(|(start, _)| *start < offset);
        if let Some((_, piece)) = self.window.get(index) {
            return Ok(Step::Take(piece.clone()));
        }
        if let Some(end) = self.end {
            return end.map(|()| Step::End);
        }
        if self.join == JoinState::Open && self.is_full() {
            // A later request can fetch for itself.
            self.join = JoinState::Closed;
            self.settle();
        }
        // Before it is closed, the slowest reader may still come.
        if !self.is_full() || self.join == JoinState::Closed && self.spool_has_room() {
            return Ok(Step::Read);
        }
        let since = *self.stalled_since.get_or_insert(now);
        let slowest = self.readers.iter().flatten().filter(|reader| reader.offset == self.slowest);
        let held_up = slowest.map(|reader| reader.held_up).max().unwrap_or_default();
        Ok(Step::Wait(since + PATIENCE.saturating_sub(held_up)))
    }

    /// True if the file may take the oldest piece of the window.
    fn spool_has_room(&self) -> bool {
        let end = self.window.front().map_or(0, |(offset, piece)| offset + piece.len() as u64);
        self.spool.has_room(end.saturating_sub(self.slowest))
    }

    /// Charges the slowest readers with the time that others waited for them.
    fn end_stall(&mut self, now: Instant) {
        let Some(since) = self.stalled_since.take() else { return };
        let readers = self.readers.iter_mut().flatten();
        for reader in readers.filter(|reader| reader.offset == self.slowest) {
            reader.held_up += now.saturating_duration_since(since);
        }
    }

    fn took(&mut self, reader: usize, bytes: usize, now: Instant) {
        let Some(reader) = &mut self.readers[reader] else { return };
        if let (true, Some(since)) = (reader.offset == self.slowest, self.stalled_since) {
            reader.held_up += now.saturating_duration_since(since);
        }
        reader.offset += bytes as u64;
    }

    /// Closes the beginning, or cuts off the readers that have used up the others' patience.
    fn lose_patience(&mut self, now: Instant) {
        let Some(since) = self.stalled_since else { return };
        if self.join == JoinState::Awaiting {
            self.join = JoinState::Closed;
            self.stalled_since = None;
            return;
        }
        let stalled = now.saturating_duration_since(since);
        for reader in &mut self.readers {
            reader.take_if(|reader| {
                reader.offset == self.slowest && reader.held_up + stalled >= PATIENCE
            });
        }
    }

    /// Drops what all readers have.
    fn settle(&mut self) {
        if self.join == JoinState::Closed {
            let offsets = self.readers.iter().flatten().map(|reader| reader.offset);
            let slowest = offsets.min().unwrap_or(self.read_bytes);
            if slowest > self.slowest {
                self.slowest = slowest;
                self.stalled_since = None;
            }
            self.drop_before(slowest);
        }
    }

    fn drop_before(&mut self, offset: u64) {
        while self.window.pop_front_if(|(start, _)| *start < offset).is_some() {}
    }
}

fn warn_of_fault(error: &io::Error) {
    tracing::warn!(%error, "the temporary file of a large answer failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    static PIECE: [u8; 50_000] = [b'x'; 50_000];

    /// A body with this many readers that no further one can join.
    fn delivery(readers: usize) -> Delivery {
        let readers = (0..readers).map(|_| Some(Progress::default())).collect();
        Delivery { join: JoinState::Closed, readers, ..Delivery::default() }
    }

    fn without_file(readers: usize) -> Delivery {
        let delivery = delivery(readers);
        delivery.spool.close();
        delivery
    }

    /// Reads up to `bytes` from the upstream. Returns the bytes that this reader got, and the step
    /// that it cannot take.
    async fn read(delivery: &mut Delivery, reader: usize, bytes: u64) -> (u64, Result<Step, Lost>) {
        let mut got = 0;
        loop {
            let piece = match delivery.step(reader, timer_now()) {
                Ok(Step::Take(piece)) => piece,
                Ok(Step::TakeSpooled(range)) => delivery.spool.read(range).await.unwrap(),
                Ok(Step::Read) if delivery.is_full() => {
                    let (offset, piece) = delivery.window.pop_front().unwrap();
                    delivery.spool.write(offset, piece).await.unwrap();
                    continue;
                }
                Ok(Step::Read) if delivery.read_bytes < bytes => {
                    delivery.push(Bytes::from_static(&PIECE));
                    continue;
                }
                step => return (got, step),
            };
            delivery.took(reader, piece.len(), timer_now());
            delivery.settle();
            got += piece.len() as u64;
        }
    }

    #[tokio::test]
    async fn a_slow_reader_gets_all_and_delays_nobody() {
        let (mut delivery, bytes) = (delivery(2), 40_000_000);
        assert!(
            matches!(read(&mut delivery, 0, bytes).await, (got, Ok(Step::Read)) if got == bytes)
        );
        assert!(delivery.window_start() > bytes - 2 * WINDOW_BYTES, "the rest is in the file");
        delivery.end = Some(Ok(()));
        assert!(
            matches!(read(&mut delivery, 1, bytes).await, (got, Ok(Step::End)) if got == bytes)
        );
    }

    #[tokio::test]
    async fn a_break_comes_after_what_was_read() {
        let (mut delivery, bytes) = (delivery(2), 2_000_000);
        let _ = read(&mut delivery, 0, bytes).await;
        delivery.end = Some(Err(Lost));
        assert!(matches!(read(&mut delivery, 0, bytes).await, (0, Err(Lost))));
        assert!(matches!(read(&mut delivery, 1, bytes).await, (got, Err(Lost)) if got == bytes));
    }

    #[tokio::test]
    async fn a_single_reader_needs_no_file() {
        let (mut delivery, bytes) = (without_file(1), 10_000_000);
        assert!(
            matches!(read(&mut delivery, 0, bytes).await, (got, Ok(Step::Read)) if got == bytes)
        );
    }

    #[tokio::test]
    async fn a_slow_reader_is_cut_off_where_the_spool_is_full() {
        let (mut delivery, bytes) = (without_file(2), 10_000_000);
        let (got, Ok(Step::Wait(deadline))) = read(&mut delivery, 0, bytes).await else {
            unreachable!()
        };
        assert!(got > WINDOW_BYTES / 2 && got < bytes, "{got}");
        delivery.lose_patience(deadline - Duration::from_millis(1));
        assert!(matches!(read(&mut delivery, 0, bytes).await, (0, Ok(Step::Wait(_)))));
        delivery.lose_patience(deadline);
        delivery.settle();
        assert!(matches!(read(&mut delivery, 1, bytes).await, (0, Err(Lost))));
        assert!(
            matches!(read(&mut delivery, 0, bytes).await, (rest, Ok(Step::Read)) if rest == bytes - got)
        );
    }

    #[tokio::test]
    async fn the_delays_of_one_reader_add_up() {
        let (mut delivery, mut now) = (without_file(2), timer_now());
        for _ in 0..4 {
            assert!(matches!(read(&mut delivery, 0, u64::MAX).await, (_, Ok(Step::Wait(_)))));
            delivery.stalled_since = Some(now);
            now += PATIENCE / 4;
            assert!(matches!(delivery.step(1, now), Ok(Step::Take(_))));
            delivery.took(1, PIECE.len(), now);
            delivery.settle();
        }
        assert!(matches!(read(&mut delivery, 0, u64::MAX).await, (_, Ok(Step::Wait(_)))));
        delivery.lose_patience(timer_now());
        assert!(matches!(delivery.step(1, now), Err(Lost)));
    }

    #[tokio::test]
    async fn a_file_serves_what_it_has_after_a_fault() {
        let mut delivery = delivery(2);
        let _ = read(&mut delivery, 0, 2_000_000).await;
        delivery.spool.close();
        assert!(matches!(read(&mut delivery, 0, 20_000_000).await, (_, Ok(Step::Wait(_)))));
        let held = delivery.read_bytes;
        assert!(matches!(read(&mut delivery, 1, 0).await, (got, Ok(Step::Read)) if got == held));
    }
}
