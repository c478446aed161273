//! Idle connections to one upstream address.
//!
//! The framework's pool spends a task on every idle connection and loses some to a race between
//! task and user (src/gateway/README.md, "The framework"). Here one read, which must find nothing,
//! checks a connection when it is taken.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Timestamp};
use crate::gateway::upstream::http1::Connection;
use crate::gateway::upstream::resolve::{PAUSE, Records};

/// The service closes idle connections at about 60 s; reuse ends at half of that (SPECIFICATION,
/// "Conditional requests in practice").
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Kept connections. The upstream's concurrency limit is near: more are never idle for long.
const CONNECTIONS_MAX: usize = 128;

/// The pool. The latest connection is used first, so that the others can age out.
pub struct IdleConnections {
    clock: Clock,
    pool: Mutex<Pool>,
}

struct Pool {
    connections: Vec<(Timestamp, Connection)>,
    /// The addresses of the name; `None` before the first connection.
    addresses: Option<Arc<[IpAddr]>>,
    /// The end of their age.
    until: Timestamp,
}

impl Pool {
    /// Drops connections to addresses that the name has no more.
    fn let_go(&mut self, addresses: &Arc<[IpAddr]>) {
        if self.addresses.as_ref().is_some_and(|before| before != addresses) {
            self.connections.retain(|(_, connection)| is_current(connection, addresses));
        }
        self.addresses = Some(Arc::clone(addresses));
    }
}

fn is_current(connection: &Connection, addresses: &[IpAddr]) -> bool {
    connection.peer().is_none_or(|peer| addresses.contains(&peer))
}

impl IdleConnections {
    pub fn new(clock: Clock) -> Self {
        let pool = Pool { connections: Vec::new(), addresses: None, until: Timestamp::FAR_FUTURE };
        Self { clock, pool: Mutex::new(pool) }
    }

    pub fn take(&self) -> Option<Connection> {
        let now = self.clock.now();
        loop {
            let (since, mut connection) = self.pool.lock().connections.pop()?;
            if now.since(since) < IDLE_MAX && connection.is_silent() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection after its last answer was read completely, unless its address has left
    /// the records of the name. True, once, when these are too old: the caller renews them.
    pub fn put(&self, mut connection: Connection) -> bool {
        connection.shrink_buffer();
        let now = self.clock.now();
        let mut pool = self.pool.lock();
        let old =
            pool.connections.iter().take_while(|(since, _)| now.since(*since) >= IDLE_MAX).count();
        pool.connections.drain(..old);
        let is_kept =
            pool.addresses.as_ref().is_none_or(|addresses| is_current(&connection, addresses));
        if is_kept && pool.connections.len() < CONNECTIONS_MAX {
            pool.connections.push((now, connection));
        }
        let is_due = now >= pool.until;
        if is_due {
            pool.until = Timestamp::FAR_FUTURE;
        }
        is_due
    }

    /// Makes the next question about the name due in a moment: the last one gave no addresses.
    pub fn ask_again(&self) {
        self.pool.lock().until = self.clock.now() + PAUSE;
    }

    /// Follows the records of the name: idle connections to other addresses are let go.
    pub fn follow(&self, records: &Records) {
        let mut pool = self.pool.lock();
        pool.until = records.until;
        pool.let_go(&records.addresses);
    }
}
