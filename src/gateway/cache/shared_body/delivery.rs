//! The delivery of a shared body: what was read, what each reader has, and the next step of each.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::gateway::spool::file::Spool;

/// The window in memory. Chosen here: eight reads; 32 MiB for all large bodies.
const WINDOW_BYTES: u64 = 512 * 1024;
/// Pieces in the window, because each has an overhead.
const PIECES_MAX: usize = 4096;
/// The bytes that go to the file at once, and those that stay in memory too for readers that keep
/// up. Half of the window, so that the upstream is read while the file is written.
const SPILLED_BYTES: u64 = WINDOW_BYTES / 2;
/// The total delay that one reader may cause. Chosen here: unnoticed, but enough for a busy client.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The body broke off and must not pass for a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

pub struct Delivery {
    /// Pieces in memory with their offsets in the body.
    pub window: VecDeque<(u64, Bytes)>,
    /// The bytes before the window that readers may still need.
    pub spool: Arc<Spool>,
    /// The end of what the file has.
    pub spooled: u64,
    /// True while pieces are on their way to the file.
    pub is_spilling: bool,
    pub read_bytes: u64,
    pub end: Option<Result<(), Lost>>,
    pub join: JoinState,
    pub readers: Vec<Slot>,
    /// The offset of the slowest reader.
    pub slowest: u64,
    /// The time since which a reader waits for the slowest.
    pub stalled_since: Option<Instant>,
}

/// A body can be joined as long as its beginning is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinState {
    /// Waiters of its fetch may still join; so may others.
    #[default]
    Awaiting,
    /// Any request may join until the window is full and the file takes no more.
    Open,
    Closed,
}

/// The place of a reader among all.
pub enum Slot {
    Reading(Progress),
    /// Others waited for it too long.
    CutOff,
    /// It left; the next one takes its place.
    Free,
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
    /// It reads for all.
    Read,
    /// Until the pieces on their way to the file are there.
    WaitForFile,
    Wait(Instant),
}

impl Slot {
    pub fn progress(&self) -> Option<&Progress> {
        if let Self::Reading(progress) = self { Some(progress) } else { None }
    }

    fn progress_mut(&mut self) -> Option<&mut Progress> {
        if let Self::Reading(progress) = self { Some(progress) } else { None }
    }
}

impl Delivery {
    /// Nothing of a body that may go to this spool.
    pub fn new(spool: Arc<Spool>) -> Self {
        let (window, end, join, readers) = Default::default();
        let (read_bytes, spooled, is_spilling) = Default::default();
        let (slowest, stalled_since) = Default::default();
        Self {
            window,
            spool,
            spooled,
            is_spilling,
            read_bytes,
            end,
            join,
            readers,
            slowest,
            stalled_since,
        }
    }

    /// Adds a reader at the beginning, and returns its index.
    pub fn add(&mut self) -> usize {
        let new = Slot::Reading(Progress::default());
        if let Some(index) = self.readers.iter().position(|slot| matches!(slot, Slot::Free)) {
            self.readers[index] = new;
            return index;
        }
        self.readers.push(new);
        self.readers.len() - 1
    }

    pub fn has_readers(&self) -> bool {
        self.progresses().next().is_some()
    }

    fn progresses(&self) -> impl Iterator<Item = &Progress> {
        self.readers.iter().filter_map(Slot::progress)
    }

    /// True if the next piece may be read before any reader wants it.
    pub fn may_read_ahead(&mut self) -> bool {
        self.end.is_none() && self.has_window()
    }

    /// True if the window takes another piece. One that the file cannot relieve gives up the
    /// beginning of the body.
    fn has_window(&mut self) -> bool {
        if self.is_full() && self.join == JoinState::Open && !self.is_spilling {
            // A later request can fetch for itself.
            self.join = JoinState::Closed;
            self.settle();
        }
        !self.is_full()
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

    /// True if this reader needs more than was read so far and there may be more.
    pub fn is_at_end(&self, reader: usize) -> bool {
        let progress = self.readers[reader].progress();
        self.end.is_none() && progress.is_some_and(|reader| reader.offset >= self.read_bytes)
    }

    /// The next step of a reader that wants the body up to `until`.
    pub fn step(&mut self, reader: usize, until: u64, now: Instant) -> Result<Step, Lost> {
        let offset = self.readers[reader].progress().ok_or(Lost)?.offset;
        if offset >= until {
            return Ok(Step::End);
        }
        let start = self.window_start();
        if offset < start {
            return Ok(Step::TakeSpooled(offset..start.min(until)));
        }
        let index = self.window.partition_point(|(start, piece)| start + len(piece) <= offset);
        if let Some((start, piece)) = self.window.get(index) {
            let wanted = clamped(offset - start)..clamped(until - start).min(piece.len());
            return Ok(Step::Take(piece.slice(wanted)));
        }
        match self.end {
            // A part beyond the end was announced, so it must not end as if complete.
            Some(Ok(())) if offset > self.read_bytes => return Err(Lost),
            Some(end) => return end.map(|()| Step::End),
            None => {}
        }
        // Before it is closed, the slowest reader may still come.
        if self.has_window() {
            return Ok(Step::Read);
        }
        if self.is_spilling {
            return Ok(Step::WaitForFile);
        }
        let since = *self.stalled_since.get_or_insert(now);
        let slowest = self.progresses().filter(|reader| reader.offset == self.slowest);
        let held_up = slowest.map(|reader| reader.held_up).max().unwrap_or_default();
        Ok(Step::Wait(since + PATIENCE.saturating_sub(held_up)))
    }

    /// Takes the pieces that are to go to the file now, with the offset of the first one. `to_end`:
    /// the file is to have the last ones too.
    pub fn take_spill(&mut self, to_end: bool) -> Option<(u64, Vec<Bytes>)> {
        let offset = self.spooled.max(self.window_start());
        let bytes = self.read_bytes - offset;
        let is_due = bytes >= SPILLED_BYTES
            || self.window.len() >= PIECES_MAX / 2
            || to_end && self.end == Some(Ok(()));
        let may_spill = !self.is_spilling && is_due && bytes > 0;
        if !may_spill || !self.spool.make_room(&(self.needed_from()..self.read_bytes)) {
            return None;
        }
        self.is_spilling = true;
        let new = self.window.iter().filter(|(start, _)| *start >= offset);
        Some((offset, new.map(|(_, piece)| piece.clone()).collect()))
    }

    /// Ends a spill: the file has what is before `end`.
    pub fn spilled(&mut self, end: u64) {
        (self.is_spilling, self.spooled) = (false, end);
        self.stalled_since = None;
        self.settle();
    }

    /// The first byte that is kept for some reader.
    fn needed_from(&self) -> u64 {
        if self.join == JoinState::Closed { self.slowest } else { 0 }
    }

    /// Charges the slowest readers with the time that others waited for them.
    pub fn end_stall(&mut self, now: Instant) {
        let Some(since) = self.stalled_since.take() else { return };
        let readers = self.readers.iter_mut().filter_map(Slot::progress_mut);
        for reader in readers.filter(|reader| reader.offset == self.slowest) {
            reader.held_up += now.saturating_duration_since(since);
        }
    }

    /// Records that a reader has more. It must not use the bytes if it was cut off meanwhile.
    pub fn took(&mut self, reader: usize, bytes: usize, now: Instant) -> Result<(), Lost> {
        let (slowest, stalled_since) = (self.slowest, self.stalled_since);
        let reader = self.readers[reader].progress_mut().ok_or(Lost)?;
        if let (true, Some(since)) = (reader.offset == slowest, stalled_since) {
            reader.held_up += now.saturating_duration_since(since);
        }
        reader.offset += bytes as u64;
        Ok(())
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
        for slot in &mut self.readers {
            let is_too_slow = slot.progress().is_some_and(|reader| {
                reader.offset == self.slowest && reader.held_up + stalled >= PATIENCE
            });
            if is_too_slow {
                *slot = Slot::CutOff;
            }
        }
    }

    /// Drops what is needed no more: what all readers have, and what the file has too.
    pub fn settle(&mut self) {
        if self.join == JoinState::Closed {
            let offsets = self.progresses().map(|reader| reader.offset);
            let slowest = offsets.min().unwrap_or(self.read_bytes);
            if slowest > self.slowest {
                self.slowest = slowest;
                self.stalled_since = None;
            }
        }
        let in_memory = if self.end.is_some() { 0 } else { SPILLED_BYTES };
        let needed = self.needed_from();
        while let Some((start, piece)) = self.window.front() {
            let end = start + len(piece);
            let is_left = self.read_bytes - start > in_memory || self.window.len() > PIECES_MAX / 2;
            if end > needed && !(end <= self.spooled && is_left) {
                break;
            }
            self.window.pop_front();
        }
    }
}

fn len(piece: &Bytes) -> u64 {
    piece.len() as u64
}

fn clamped(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::timer_now;
    use crate::gateway::spool::space::SpoolSpace;

    static PIECE: [u8; 50_000] = [b'x'; 50_000];
    const ALL: u64 = u64::MAX;

    /// A body with this many readers that further ones can join.
    fn open(readers: usize) -> Delivery {
        let spool = Spool::of_client(&SpoolSpace::of_mib(64), 0);
        let mut delivery = Delivery { join: JoinState::Open, ..Delivery::new(spool) };
        (0..readers).for_each(|_| _ = delivery.add());
        delivery
    }

    fn closed(readers: usize) -> Delivery {
        Delivery { join: JoinState::Closed, ..open(readers) }
    }

    fn without_file(readers: usize) -> Delivery {
        let delivery = closed(readers);
        delivery.spool.close();
        delivery
    }

    /// Returns true if there was something to spill.
    async fn spill(delivery: &mut Delivery, to_end: bool) -> bool {
        let Some((offset, pieces)) = delivery.take_spill(to_end) else { return false };
        let end = offset + pieces.iter().map(len).sum::<u64>();
        delivery.spool.write(offset, pieces).await.unwrap();
        delivery.spilled(end);
        true
    }

    /// Reads up to `bytes` from the upstream. Returns the bytes that this reader got, and the step
    /// that it cannot take.
    async fn read(delivery: &mut Delivery, reader: usize, bytes: u64) -> (u64, Result<Step, Lost>) {
        let mut got = 0;
        loop {
            let piece = match delivery.step(reader, ALL, timer_now()) {
                Ok(Step::Take(piece)) => piece,
                Ok(Step::TakeSpooled(range)) => delivery.spool.read(range).await.unwrap(),
                Ok(Step::Read) if delivery.read_bytes < bytes => {
                    delivery.push(Bytes::from_static(&PIECE));
                    spill(delivery, false).await;
                    continue;
                }
                // As the shared body does after each step.
                Ok(Step::Wait(_)) if spill(delivery, false).await => continue,
                step => return (got, step),
            };
            delivery.took(reader, piece.len(), timer_now()).unwrap();
            delivery.settle();
            got += piece.len() as u64;
        }
    }

    #[tokio::test]
    async fn a_slow_reader_gets_all_and_delays_nobody() {
        for mut delivery in [open(2), closed(2)] {
            let bytes = 40_000_000;
            assert!(
                matches!(read(&mut delivery, 0, bytes).await, (got, Ok(Step::Read)) if got == bytes)
            );
            assert!(delivery.window_start() > bytes - 2 * WINDOW_BYTES, "the rest is in the file");
            delivery.end = Some(Ok(()));
            assert!(
                matches!(read(&mut delivery, 1, bytes).await, (got, Ok(Step::End)) if got == bytes)
            );
        }
    }

    #[tokio::test]
    async fn a_reader_that_joins_late_gets_all() {
        let (mut delivery, bytes) = (open(1), 40_000_000);
        let _ = read(&mut delivery, 0, bytes / 2).await;
        let late = delivery.add();
        let _ = read(&mut delivery, 0, bytes).await;
        delivery.end = Some(Ok(()));
        spill(&mut delivery, true).await;
        assert!(delivery.window.is_empty() && delivery.spooled == bytes, "all is in the file");
        for reader in [late, delivery.add()] {
            let read = read(&mut delivery, reader, bytes).await;
            assert!(matches!(read, (got, Ok(Step::End)) if got == bytes));
        }
    }

    #[tokio::test]
    async fn a_body_beyond_the_space_keeps_what_readers_lack() {
        let (mut delivery, bytes) = (open(2), 200_000_000);
        for end in (0..=bytes).step_by(10_000_000) {
            assert!(matches!(read(&mut delivery, 0, end).await, (_, Ok(Step::Read))));
            let behind = end.saturating_sub(20_000_000);
            let got = delivery.readers[1].progress().unwrap().offset;
            delivery.took(1, clamped(behind.saturating_sub(got)), timer_now()).unwrap();
            delivery.settle();
        }
        assert!(delivery.join == JoinState::Closed, "the beginning is gone");
        assert!(matches!(read(&mut delivery, 1, 0).await, (20_000_000, Ok(Step::Read))));
    }

    #[tokio::test]
    async fn a_part_ends_where_it_was_asked_to() {
        let (mut delivery, bytes) = (open(2), 2_000_000);
        let _ = read(&mut delivery, 0, bytes).await;
        let (begin, until) = (bytes - 120_000, bytes - 100_000);
        delivery.took(1, clamped(begin), timer_now()).unwrap();
        assert!(
            matches!(delivery.step(1, until, timer_now()), Ok(Step::Take(piece)) if piece.len() == 20_000)
        );
        delivery.took(1, 20_000, timer_now()).unwrap();
        assert!(matches!(delivery.step(1, until, timer_now()), Ok(Step::End)));
        // One that begins beyond a body of unknown length.
        delivery.took(1, clamped(bytes), timer_now()).unwrap();
        delivery.end = Some(Ok(()));
        assert!(matches!(delivery.step(1, 3 * bytes, timer_now()), Err(Lost)));
    }

    #[tokio::test]
    async fn a_break_comes_after_what_was_read() {
        let (mut delivery, bytes) = (closed(2), 2_000_000);
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
        assert!(matches!(delivery.took(1, 1, timer_now()), Err(Lost)), "it uses what it read");
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
            assert!(matches!(delivery.step(1, ALL, now), Ok(Step::Take(_))));
            delivery.took(1, PIECE.len(), now).unwrap();
            delivery.settle();
        }
        assert!(matches!(read(&mut delivery, 0, u64::MAX).await, (_, Ok(Step::Wait(_)))));
        delivery.lose_patience(timer_now());
        assert!(matches!(delivery.step(1, ALL, now), Err(Lost)));
    }

    #[tokio::test]
    async fn a_file_serves_what_it_has_after_a_fault() {
        let mut delivery = closed(2);
        let _ = read(&mut delivery, 0, 2_000_000).await;
        delivery.spool.close();
        assert!(matches!(read(&mut delivery, 0, 20_000_000).await, (_, Ok(Step::Wait(_)))));
        let held = delivery.read_bytes;
        assert!(matches!(read(&mut delivery, 1, 0).await, (got, Ok(Step::Read)) if got == held));
    }

    #[test]
    fn the_place_of_a_reader_that_was_cut_off_stays_taken() {
        let mut delivery = open(3);
        (delivery.readers[0], delivery.readers[1]) = (Slot::CutOff, Slot::Free);
        assert_eq!([delivery.add(), delivery.add()], [1, 3]);
    }
}
