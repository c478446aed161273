//! Shared bodies: a body too large to hold is read once and passed on piece by piece to all.
//!
//! No task pumps it. The reader that needs the next piece reads it for all. A piece is kept until
//! the slowest reader has it, which bounds memory and the upstream's pace. The body is read while
//! it has a reader, and a break hits all readers.
//!
//! A slow reader may delay the others by [`PATIENCE`] in total. Then it is released and resumes
//! with a fetch of its own (`shared_body_reader.rs`). A request that misses the beginning fetches
//! for itself. `response/render.rs` writes to clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep_until};

use crate::clock::Timestamp;
use crate::tokens::TokenId;

use crate::clock::timer_now;
use crate::gateway::cache::store::Vary;
use crate::gateway::dispatch::answer::{Answer, AnswerBody, Held};
use crate::gateway::upstream::fetch::Exchange;

/// The lead over the slowest reader. Chosen here: eight reads; 32 MiB for all large bodies.
const WINDOW_BYTES: usize = 512 * 1024;
/// Overhead of a piece.
const PIECE_BYTES: usize = 128;
/// The total delay that one reader may cause. Chosen here: unnoticed, but enough for a busy client.
const PATIENCE: Duration = Duration::from_secs(1);

/// The body broke off and must not pass for a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// The answer apart from its body.
pub struct Head {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub token: TokenId,
    pub requested_at: Timestamp,
}

pub struct SharedBody {
    pub head: Head,
    vary: Option<Box<Vary>>,
    /// False if only one reader may have it.
    is_for_others: bool,
    /// The upstream exchange, until its end.
    source: AsyncMutex<Option<Source>>,
    state: Mutex<State>,
    moved: Notify,
}

struct Source {
    exchange: Box<Exchange>,
    #[expect(dead_code, reason = "its slot of the upstream's concurrency, freed at the end")]
    held: Held,
}

struct State {
    /// Pieces that the slowest reader does not have yet.
    window: VecDeque<Bytes>,
    window_bytes: usize,
    /// Pieces that all readers have.
    gone: Gone,
    end: Option<Result<(), Lost>>,
    join: JoinState,
    readers: Vec<Option<Place>>,
    /// The time since which a reader waits for the slowest.
    stalled_since: Option<Instant>,
}

/// The dropped part of the body.
#[derive(Clone)]
pub struct Gone {
    pieces: u64,
    pub bytes: u64,
    /// Its digest; kept only for several readers, because one of them may have to resume alone.
    pub digest: Option<Context>,
}

/// A body can be joined only at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinState {
    /// Waiters of its fetch may still join; so may others.
    Awaiting,
    /// Any request may join until the window is full.
    Open,
    Closed,
}

struct Place {
    pieces: u64,
    held_up: Duration,
    /// Set when the reader was released: the part that it has.
    left_at: Option<Box<Gone>>,
}

pub enum Turn {
    Piece(Bytes),
    End,
    /// It was released after this part.
    Left(Box<Gone>),
}

enum Step {
    Take(Turn),
    Read,
    Wait(Instant),
}

/// Guard: keeps a new shared body open for the waiters of its fetch.
pub struct Landing(pub Arc<SharedBody>);

impl Drop for Landing {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if state.join == JoinState::Awaiting {
            state.join = JoinState::Open;
        }
        self.0.rid_of_source(&mut state);
        drop(state);
        self.0.moved.notify_waiters();
    }
}

impl SharedBody {
    /// Shares the body of an answer. `is_for_others`: more than one reader may have it.
    pub fn new(answer: Answer, vary: Option<Box<Vary>>, is_for_others: bool) -> Self {
        let Answer { status, headers, body, token, requested_at, .. } = answer;
        let (first, source) = match body {
            AnswerBody::Whole(bytes) => (bytes, None),
            AnswerBody::SharedBody { first, exchange, held } => {
                (first, Some(Source { exchange, held }))
            }
        };
        let mut state = State {
            window: VecDeque::new(),
            window_bytes: 0,
            gone: Gone { pieces: 0, bytes: 0, digest: Some(Context::new(&SHA256)) },
            end: source.is_none().then_some(Ok(())),
            join: JoinState::Awaiting,
            readers: Vec::new(),
            stalled_since: None,
        };
        if !first.is_empty() {
            state.push(first);
        }
        Self {
            head: Head { status, headers, token, requested_at },
            vary,
            is_for_others,
            source: AsyncMutex::new(source),
            state: Mutex::new(state),
            moved: Notify::new(),
        }
    }

    /// True if it answers a request with these headers.
    pub fn fits(&self, asked: &HeaderMap) -> bool {
        self.vary.as_ref().is_none_or(|vary| vary.fits(asked))
    }

    /// A place for one more reader, from the body's start; `None`: its beginning is gone already,
    /// or it is not for others.
    pub(super) fn take_place(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.join == JoinState::Closed {
            return None;
        }
        if !self.is_for_others {
            state.join = JoinState::Closed;
        }
        Some(state.add_reader())
    }

    /// A place for the only reader.
    pub(super) fn take_only_place(&self) -> usize {
        let mut state = self.state.lock();
        state.join = JoinState::Closed;
        state.add_reader()
    }

    /// Gives a reader's place up: nothing is kept for it any more.
    pub(super) fn leave(&self, place: usize) {
        let mut state = self.state.lock();
        if let Some(place) = state.readers.get_mut(place) {
            *place = None;
        }
        state.stalled_since = None;
        state.settle();
        self.rid_of_source(&mut state);
        drop(state);
        self.moved.notify_waiters();
    }

    pub(super) async fn next(&self, place: usize) -> Result<Turn, Lost> {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            match self.step(place)? {
                Step::Take(turn) => return Ok(turn),
                Step::Read => self.read(place).await,
                Step::Wait(deadline) => {
                    tokio::select! {
                        () = &mut moved => {}
                        () = sleep_until(deadline) => self.state.lock().let_go(timer_now()),
                    }
                }
            }
        }
    }

    fn step(&self, place: usize) -> Result<Step, Lost> {
        let mut state = self.state.lock();
        let before = state.gone.pieces;
        let step = state.step(place, timer_now());
        let has_moved = state.gone.pieces > before;
        drop(state);
        if has_moved {
            self.moved.notify_waiters();
        }
        step
    }

    async fn read(&self, place: usize) {
        let mut source = self.source.lock().await;
        // Another reader may have done so meanwhile.
        if !self.state.lock().is_at_end(place) {
            return;
        }
        let read = match source.as_mut() {
            Some(source) => source.exchange.read_body().await,
            None => Ok(None),
        };
        let was_open = source.is_some();
        let ended = if let Ok(Some(_)) = read { None } else { source.take() };
        let mut state = self.state.lock();
        match read {
            Ok(Some(piece)) => state.push(piece),
            Ok(None) if was_open => state.end = Some(Ok(())),
            _ => state.end = state.end.or(Some(Err(Lost))),
        }
        let is_whole = state.end == Some(Ok(()));
        drop(state);
        if let Some(Source { exchange, .. }) = ended
            && is_whole
        {
            exchange.release();
        }
        self.moved.notify_waiters();
    }

    /// Ends the exchange once it has no reader. A reader in the middle of a read still wants it.
    fn rid_of_source(&self, state: &mut State) {
        if state.join != JoinState::Awaiting && state.wanting().next().is_none() {
            state.join = JoinState::Closed;
            if let Ok(mut source) = self.source.try_lock() {
                *source = None;
            }
        }
    }
}

impl State {
    fn add_reader(&mut self) -> usize {
        self.readers.push(Some(Place { pieces: 0, held_up: Duration::ZERO, left_at: None }));
        self.readers.len() - 1
    }

    fn push(&mut self, piece: Bytes) {
        self.window_bytes += piece.len() + PIECE_BYTES;
        self.window.push_back(piece);
    }

    fn wanting(&self) -> impl Iterator<Item = &Place> {
        self.readers.iter().flatten().filter(|place| place.left_at.is_none())
    }

    /// True if this reader has every piece read so far and there may be more.
    fn is_at_end(&self, place: usize) -> bool {
        let pieces = self.gone.pieces + self.window.len() as u64;
        let place = self.readers.get(place).and_then(Option::as_ref);
        self.end.is_none()
            && self.window_bytes < WINDOW_BYTES
            && place.is_some_and(|place| place.left_at.is_none() && place.pieces == pieces)
    }

    fn step(&mut self, reader: usize, now: Instant) -> Result<Step, Lost> {
        let Some(Some(place)) = self.readers.get_mut(reader) else { return Err(Lost) };
        if let Some(left_at) = &place.left_at {
            return Ok(Step::Take(Turn::Left(left_at.clone())));
        }
        let ahead = place
            .pieces
            .checked_sub(self.gone.pieces)
            .and_then(|ahead| usize::try_from(ahead).ok())
            .ok_or(Lost)?;
        if let Some(piece) = self.window.get(ahead).cloned() {
            place.pieces += 1;
            if let (0, Some(since)) = (ahead, self.stalled_since) {
                place.held_up += now.saturating_duration_since(since);
            }
            self.settle();
            return Ok(Step::Take(Turn::Piece(piece)));
        }
        match self.end {
            Some(end) => end.map(|()| Step::Take(Turn::End)),
            None if self.window_bytes < WINDOW_BYTES => Ok(Step::Read),
            // A later request can fetch for itself.
            None if self.join == JoinState::Open => {
                self.join = JoinState::Closed;
                self.settle();
                self.step(reader, now)
            }
            None => {
                let since = *self.stalled_since.get_or_insert(now);
                let held_up = self.slowest().map(|place| place.held_up).max().unwrap_or_default();
                Ok(Step::Wait(since + PATIENCE.saturating_sub(held_up)))
            }
        }
    }

    fn slowest(&self) -> impl Iterator<Item = &Place> {
        self.wanting().filter(|place| place.pieces == self.gone.pieces)
    }

    /// Releases the readers that have used up the others' patience.
    fn let_go(&mut self, now: Instant) {
        let Some(since) = self.stalled_since else { return };
        let stalled = now.saturating_duration_since(since);
        if self.join == JoinState::Awaiting && stalled >= PATIENCE {
            self.join = JoinState::Closed;
        }
        for place in self
            .readers
            .iter_mut()
            .flatten()
            .filter(|place| place.left_at.is_none() && place.pieces == self.gone.pieces)
        {
            if place.held_up + stalled >= PATIENCE {
                place.left_at = Some(Box::new(self.gone.clone()));
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        if self.join != JoinState::Closed {
            return;
        }
        let (mut count, mut slowest) = (0, u64::MAX);
        for place in self.wanting() {
            (count, slowest) = (count + 1, slowest.min(place.pieces));
        }
        if count < 2 {
            // A single reader is never released.
            self.gone.digest = None;
        }
        while self.gone.pieces < slowest
            && let Some(piece) = self.window.pop_front()
        {
            self.window_bytes -= piece.len() + PIECE_BYTES;
            self.gone.pieces += 1;
            self.gone.bytes += piece.len() as u64;
            if let Some(digest) = &mut self.gone.digest {
                digest.update(&piece);
            }
            self.stalled_since = None;
        }
    }
}
