//! A lagging replica: for a while after a change, reads show the old state (SPECIFICATION,
//! "Conditional requests in practice").
//!
//! It stores the response of each read, so it lags only for earlier reads; a first read is always
//! current.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, Request, header};

use super::FaultId;
use super::kind::Lag;
use crate::clock::Timestamp;
use crate::emulator::http::Reply;

/// The most stored reads; further ones are current.
const READS_MAX: usize = 500;

#[derive(Debug)]
struct StoredRead {
    reply: Reply,
    /// The last time that this was seen to be current.
    seen_at: Timestamp,
    served: u64,
}

/// The last responses of lagging replicas, by fault and by request.
#[derive(Debug, Default)]
pub struct Replica {
    reads: BTreeMap<(FaultId, String), StoredRead>,
}

impl Replica {
    /// Returns a replica's response to a read; `fresh` is the truth.
    pub fn read(
        &mut self,
        (fault, lag): (FaultId, Lag),
        now: Timestamp,
        request: &Request<Bytes>,
        fresh: Reply,
    ) -> Reply {
        let key = (fault, key(request));
        let has_room = self.reads.len() < READS_MAX;
        let Some(stored) = self.reads.get_mut(&key) else {
            if has_room {
                self.reads
                    .insert(key, StoredRead { reply: fresh.clone(), seen_at: now, served: 0 });
            }
            return fresh;
        };
        // A replica shows nothing that vanished longer ago than it lags.
        let lags = match lag {
            Lag::Reads(reads) => stored.served < reads,
            Lag::For(length) => now < stored.seen_at + length,
        };
        if stored.reply != fresh && lags {
            stored.served += 1;
            return stored.reply.clone();
        }
        *stored = StoredRead { reply: fresh.clone(), seen_at: now, served: 0 };
        fresh
    }

    pub fn forget(&mut self, fault: FaultId) {
        self.reads.retain(|(of, _), _| *of != fault);
    }
}

/// Returns a read's key: the address, the caller and the requested form.
fn key(request: &Request<Bytes>) -> String {
    let sent = |name: HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    };
    format!("{}\n{}\n{}", request.uri(), sent(header::AUTHORIZATION), sent(header::ACCEPT))
}
