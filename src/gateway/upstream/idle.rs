//! Idle connections to one upstream address.
//!
//! The framework's pool spends a task on every idle connection and loses some to a race between
//! task and user (src/gateway/README.md, "The framework"). Here one read, which must find nothing,
//! checks a connection when it is taken.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Timestamp};
use crate::gateway::upstream::http1::Connection;

/// The service closes idle connections at about 60 s; reuse ends at half of that (SPECIFICATION,
/// "Conditional requests in practice").
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Kept connections. The upstream's concurrency limit is near: more are never idle for long.
const CONNECTIONS_MAX: usize = 128;

/// The pool. The latest connection is used first, so that the others can age out.
pub struct IdleConnections {
    clock: Clock,
    connections: Mutex<Vec<(Timestamp, Connection)>>,
}

impl IdleConnections {
    pub fn new(clock: Clock) -> Self {
        Self { clock, connections: Mutex::default() }
    }

    pub fn take(&self) -> Option<Connection> {
        let now = self.clock.now();
        loop {
            let (since, mut connection) = self.connections.lock().pop()?;
            if now.since(since) < IDLE_MAX && connection.is_silent() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection after its last answer was read completely.
    pub fn put(&self, mut connection: Connection) {
        connection.shrink_buffer();
        let now = self.clock.now();
        let mut connections = self.connections.lock();
        let old = connections.iter().take_while(|(since, _)| now.since(*since) >= IDLE_MAX).count();
        connections.drain(..old);
        if connections.len() < CONNECTIONS_MAX {
            connections.push((now, connection));
        }
    }
}
