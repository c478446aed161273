//! The floor rate of the client that an answer is written to. The streams of an HTTP/2 connection
//! share its link, and so one floor.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::clock::timer_now;
use crate::decision::floor_rate::FloorRate;
use crate::gateway::connections::slot::Slot;
use crate::gateway::error::{MEMORY_NEEDED, SLOT_NEEDED, SLOW_CLIENT};
use crate::gateway::response::long_texts::Reading;
use crate::gateway::session::Left;

/// The reason why an answer was not written completely; the connection or stream is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The client or the source of the body has left.
    Lost,
    /// The client took less than the floor rate.
    TooSlow,
    /// Another client waits for the slot that the answer holds.
    SlotNeeded,
    /// Other answers need its memory.
    MemoryNeeded,
}

impl Broken {
    /// The reason for the log, if the gateway broke the answer off.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Lost => None,
            Self::TooSlow => Some(SLOW_CLIENT),
            Self::SlotNeeded => Some(SLOT_NEEDED),
            Self::MemoryNeeded => Some(MEMORY_NEEDED),
        }
    }
}

/// The streams of an HTTP/2 connection that are being written.
#[derive(Default)]
pub struct Streams(AtomicUsize);

pub struct Pacing {
    rate: FloorRate,
    slot: Arc<Slot>,
    streams: Option<Arc<Streams>>,
    reading: Option<Reading>,
}

impl Pacing {
    /// `slot` is that of the connection, `streams` are those of HTTP/2.
    pub fn new(rate: FloorRate, slot: Arc<Slot>, streams: Option<Arc<Streams>>) -> Self {
        if let Some(Streams(writing)) = streams.as_deref() {
            writing.fetch_add(1, Ordering::Relaxed);
        }
        Self { rate, slot, streams, reading: None }
    }

    /// The pacing of a long text that the client is sent.
    #[must_use]
    pub fn of(mut self, reading: Option<Reading>) -> Self {
        self.reading = reading;
        self
    }

    pub fn piece_bytes(&self) -> usize {
        self.rate.piece_bytes()
    }

    /// Waits for the write of this many bytes, as long as the patience lasts.
    pub async fn write(
        &mut self,
        bytes: usize,
        write: impl Future<Output = Result<(), Left>>,
    ) -> Result<(), Broken> {
        let begun = timer_now();
        let write = self.slot.awaits_client(self.rate.late(), self.rate.patience(), write);
        let written = match &self.reading {
            Some(reading) => unless_cut_off(reading, write).await?,
            None => write.await,
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(Left)) => return Err(Broken::Lost),
            Err(_) => return Err(Broken::TooSlow),
        }
        let streams = self.streams.as_ref().map_or(1, |streams| streams.0.load(Ordering::Relaxed));
        self.rate.took(bytes.saturating_mul(streams), begun.elapsed());
        Ok(())
    }
}

/// Awaits a write, unless other answers need the memory of this one meanwhile.
pub async fn unless_cut_off<T>(
    reading: &Reading,
    write: impl Future<Output = T>,
) -> Result<T, Broken> {
    tokio::select! {
        biased;
        written = write => Ok(written),
        () = reading.cut_off() => Err(Broken::MemoryNeeded),
    }
}

impl Drop for Pacing {
    fn drop(&mut self) {
        if let Some(Streams(writing)) = self.streams.as_deref() {
            writing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
