//! Idle connections to one of the upstream's addresses.
//!
//! Ours instead of the framework's pool: that one spends a task on every idle connection and loses some to a race between the task and the next user
//! (PINGORA.md, Tried on 0.9.1). Here a connection is looked at when it is taken: one read that must find nothing.

use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::AsyncReadExt;

use crate::clock::{Clock, Timestamp};

/// The service closes idle connections at about 60 s: reuse within half of that (UPSTREAM.md, Conditional requests).
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Connections kept; the upstream's concurrency limit is near it, so more are never idle for long.
const CONNECTIONS_MAX: usize = 128;

/// The pool; the latest connection is used first, so that the others can grow old.
pub struct IdleConnections {
    clock: Clock,
    streams: Mutex<Vec<(Timestamp, Stream)>>,
}

impl IdleConnections {
    /// Empty.
    pub fn new(clock: Clock) -> Self {
        Self { clock, streams: Mutex::default() }
    }

    /// A connection that was alive a moment ago.
    pub fn take(&self) -> Option<Stream> {
        let now = self.clock.now();
        loop {
            let (since, mut stream) = self.streams.lock().pop()?;
            if now.since(since) < IDLE_MAX && is_silent(&mut stream) {
                return Some(stream);
            }
        }
    }

    /// Keeps a connection whose last answer was read to its end.
    pub fn put(&self, stream: Stream) {
        let now = self.clock.now();
        let mut streams = self.streams.lock();
        let old = streams.iter().take_while(|(since, _)| now.since(*since) >= IDLE_MAX).count();
        streams.drain(..old);
        if streams.len() < CONNECTIONS_MAX {
            streams.push((now, stream));
        }
    }
}

/// An idle connection on which there is something to read was closed, or says what nobody asked for.
fn is_silent(stream: &mut Stream) -> bool {
    stream.read(&mut [0]).now_or_never().is_none()
}
