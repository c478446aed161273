//! Name resolution. pingora's own peer constructor resolves on the calling thread and panics on
//! failure (src/gateway/README.md, "The framework").

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Timestamp};

/// The lifetime of a result: short enough to follow a moved service.
const KEEP: Duration = Duration::from_secs(30);

type Known = HashMap<(String, u16), (Timestamp, Arc<[SocketAddr]>)>;

/// Caches the addresses of the upstream's few hosts.
pub struct Resolver {
    clock: Clock,
    known: Mutex<Known>,
}

impl Resolver {
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: Mutex::default() }
    }

    /// Returns all addresses of a host in the resolver's order; expired ones if renewal fails.
    pub async fn lookup(&self, host: &str, port: u16) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(address) = host.parse() {
            return Ok(Arc::new([SocketAddr::new(address, port)]));
        }
        let key = (host.to_owned(), port);
        let known = self.known.lock().get(&key).cloned();
        if let Some((at, addresses)) = &known
            && self.clock.now().since(*at) < KEEP
        {
            return Ok(Arc::clone(addresses));
        }
        match tokio::net::lookup_host((host, port)).await {
            Ok(found) => {
                let addresses: Arc<[SocketAddr]> = found.collect();
                self.known.lock().insert(key, (self.clock.now(), Arc::clone(&addresses)));
                Ok(addresses)
            }
            Err(error) => known.map(|(_, addresses)| addresses).ok_or(error),
        }
    }

    /// Drops a result after none of its addresses answered.
    pub fn forget(&self, host: &str, port: u16) {
        self.known.lock().remove(&(host.to_owned(), port));
    }
}
