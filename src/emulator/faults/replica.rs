//! A replica that lags: reads show what was before, for a while after a change (UPSTREAM.md,
//! Conditional requests).
//!
//! It remembers what each read was answered, so it lags only for what was read before the change; a
//! first read always tells the truth.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, Request, header};

use super::FaultId;
use super::kind::Lag;
use crate::clock::Timestamp;
use crate::emulator::http::Reply;

/// How many reads are remembered; further ones tell the truth.
const READS_MAX: usize = 500;

#[derive(Debug)]
struct Shown {
    reply: Reply,
    /// When it was last the truth, as far as anybody asked.
    seen_at: Timestamp,
    /// How often it was given since.
    served: u32,
}

/// What lagging replicas last showed, by the fault that makes them lag and by request.
#[derive(Debug, Default)]
pub struct Replica {
    shown: BTreeMap<(FaultId, String), Shown>,
}

impl Replica {
    /// What the replica of a fault answers to a read when the truth is `fresh`.
    pub fn read(
        &mut self,
        (fault, lag): (FaultId, Lag),
        now: Timestamp,
        request: &Request<Bytes>,
        fresh: Reply,
    ) -> Reply {
        let key = (fault, key(request));
        let has_room = self.shown.len() < READS_MAX;
        let Some(shown) = self.shown.get_mut(&key) else {
            if has_room {
                self.shown.insert(key, Shown { reply: fresh.clone(), seen_at: now, served: 0 });
            }
            return fresh;
        };
        // No replica shows what was gone longer ago than it lags.
        let lags = match lag {
            Lag::Reads(reads) => shown.served < reads,
            Lag::For(length) => now < shown.seen_at + length,
        };
        if shown.reply != fresh && lags {
            shown.served += 1;
            return shown.reply.clone();
        }
        *shown = Shown { reply: fresh.clone(), seen_at: now, served: 0 };
        fresh
    }

    /// A fault is over, and its replica with it.
    pub fn forget(&mut self, fault: FaultId) {
        self.shown.retain(|(of, _), _| *of != fault);
    }
}

/// What tells one read from another: the address, who asks, and for which form.
fn key(request: &Request<Bytes>) -> String {
    let sent = |name: HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    };
    format!("{}\n{}\n{}", request.uri(), sent(header::AUTHORIZATION), sent(header::ACCEPT))
}
