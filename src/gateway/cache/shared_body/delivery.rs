//! The delivery of a shared body: what was read, what each reader has, and the next step of each.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::gateway::cache::spool::Spool;

/// The window in memory. Chosen here: eight reads; 32 MiB for all large bodies.
const WINDOW_BYTES: u64 = 512 * 1024;
/// Pieces in the window, because each has an overhead.
const PIECES_MAX: usize = 4096;
/// The total delay that one reader may cause. Chosen here: unnoticed, but enough for a busy client.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The body broke off and must not pass for a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

pub struct Delivery {
    /// Pieces in memory with their offsets in the body.
    pub window: VecDeque<(u64, Bytes)>,
    /// The bytes between the slowest reader and the window.
    pub spool: Arc<Spool>,
    pub read_bytes: u64,
    pub end: Option<Result<(), Lost>>,
    pub join: JoinState,
    /// `None`: it left or was cut off.
    pub readers: Vec<Option<Progress>>,
    /// The offset of the slowest reader.
    pub slowest: u64,
    /// The time since which a reader waits for the slowest.
    pub stalled_since: Option<Instant>,
}

/// A body can be joined only at its beginning.
#[derive(Default, PartialEq, Eq)]
pub enum JoinState {
    /// Waiters of its fetch may still join; so may others.
    #[default]
    Awaiting,
    /// Any request may join until the window is full.
    Open,
    Closed,
}

#[derive(Default)]
pub struct Progress {
    pub offset: u64,
    /// The delay that it has caused.
    pub held_up: Duration,
}

pub enum Step {
    Take(Bytes),
    TakeSpooled(Range<u64>),
    End,
    /// It reads for all, or makes space for that.
    Read,
    Wait(Instant),
}

impl Delivery {
    /// Nothing of a body that may go to this spool.
    pub fn new(spool: Arc<Spool>) -> Self {
        let (window, end, join, readers) = Default::default();
        let (read_bytes, slowest, stalled_since) = Default::default();
        Self { window, spool, read_bytes, end, join, readers, slowest, stalled_since }
    }

    /// True if the next piece may be read before any reader wants it.
    pub fn may_read_ahead(&mut self) -> bool {
        if self.join == JoinState::Open && self.is_full() {
            // A later request can fetch for itself.
            self.join = JoinState::Closed;
            self.settle();
        }
        let may_spill = || self.join == JoinState::Closed && self.spool_has_room();
        self.end.is_none() && (!self.is_full() || may_spill())
    }

    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            let offset = self.read_bytes;
            self.read_bytes += piece.len() as u64;
            self.window.push_back((offset, piece));
        }
    }

    fn window_start(&self) -> u64 {
        self.window.front().map_or(self.read_bytes, |(offset, _)| *offset)
    }

    pub fn is_full(&self) -> bool {
        self.read_bytes - self.window_start() >= WINDOW_BYTES || self.window.len() >= PIECES_MAX
    }

    /// True if this reader has every piece read so far and there may be more.
    pub fn is_at_end(&self, reader: usize) -> bool {
        self.end.is_none()
            && self.readers[reader].as_ref().is_some_and(|reader| reader.offset == self.read_bytes)
    }

    pub fn step(&mut self, reader: usize, now: Instant) -> Result<Step, Lost> {
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
    pub fn spool_has_room(&self) -> bool {
        let end = self.window.front().map_or(0, |(offset, piece)| offset + piece.len() as u64);
        self.spool.make_room(self.slowest..end)
    }

    /// Charges the slowest readers with the time that others waited for them.
    pub fn end_stall(&mut self, now: Instant) {
        let Some(since) = self.stalled_since.take() else { return };
        let readers = self.readers.iter_mut().flatten();
        for reader in readers.filter(|reader| reader.offset == self.slowest) {
            reader.held_up += now.saturating_duration_since(since);
        }
    }

    pub fn took(&mut self, reader: usize, bytes: usize, now: Instant) {
        let Some(reader) = &mut self.readers[reader] else { return };
        if let (true, Some(since)) = (reader.offset == self.slowest, self.stalled_since) {
            reader.held_up += now.saturating_duration_since(since);
        }
        reader.offset += bytes as u64;
    }

    /// Closes the beginning, or cuts off the readers that have used up the others' patience.
    pub fn lose_patience(&mut self, now: Instant) {
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
    pub fn settle(&mut self) {
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

    pub fn drop_before(&mut self, offset: u64) {
        while self.window.pop_front_if(|(start, _)| *start < offset).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::timer_now;

    static PIECE: [u8; 50_000] = [b'x'; 50_000];

    /// A body with this many readers that no further one can join.
    fn delivery(readers: usize) -> Delivery {
        let readers = (0..readers).map(|_| Some(Progress::default())).collect();
        let spool = Spool::of_client(0);
        Delivery { join: JoinState::Closed, readers, ..Delivery::new(spool) }
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
