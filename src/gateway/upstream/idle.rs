//! Idle connections to one of the upstream's addresses.
//!
//! Ours instead of the framework's pool: that one spends a task on every idle connection and loses
//! some to a race between the task and the next user (PINGORA.md, Tried on 0.9.1). Here a
//! connection is looked at when it is taken: one read that must find nothing.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Timestamp};

use crate::gateway::upstream::http1::Connection;

/// The service closes idle connections at about 60 s: reuse within half of that (UPSTREAM.md,
/// Conditional requests).
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Connections kept; the upstream's concurrency limit is near it, so more are never idle for long.
const CONNECTIONS_MAX: usize = 128;

/// The pool; the latest connection is used first, so that the others can grow old.
pub struct IdleConnections {
    clock: Clock,
    connections: Mutex<Vec<(Timestamp, Connection)>>,
}

impl IdleConnections {
    /// Empty.
    pub fn new(clock: Clock) -> Self {
        Self { clock, connections: Mutex::default() }
    }

    /// A connection that was alive a moment ago.
    pub fn take(&self) -> Option<Connection> {
        let now = self.clock.now();
        loop {
            let (since, mut connection) = self.connections.lock().pop()?;
            if now.since(since) < IDLE_MAX && connection.is_silent() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last answer was read to its end.
    pub fn put(&self, mut connection: Connection) {
        connection.rest();
        let now = self.clock.now();
        let mut connections = self.connections.lock();
        let old = connections.iter().take_while(|(since, _)| now.since(*since) >= IDLE_MAX).count();
        connections.drain(..old);
        if connections.len() < CONNECTIONS_MAX {
            connections.push((now, connection));
        }
    }
}
