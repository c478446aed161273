//! A replica that lags: reads show what was before, for a while after a change (UPSTREAM.md, Conditional requests).
//!
//! It remembers what each read was answered, so it lags only for what was read before the change; a first read always tells the truth.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, Request, header};

use super::FaultId;
use super::kind::Lag;
use crate::clock::Timestamp;
use crate::emulator::reply::Reply;

/// How many reads are remembered; further ones tell the truth.
const READS_MAX: usize = 500;

#[derive(Debug)]
struct Shown {
    reply: Reply,
    /// When the change was first asked for, and how often the old answer was given since.
    lagging: Option<(Timestamp, u32)>,
}

/// What lagging replicas last showed, by the fault that makes them lag and by request.
#[derive(Debug, Default)]
pub struct Replica {
    shown: BTreeMap<(FaultId, String), Shown>,
}

impl Replica {
    /// What the replica of a fault answers to a read when the truth is `fresh`.
    pub fn read(&mut self, (fault, lag): (FaultId, Lag), now: Timestamp, request: &Request<Bytes>, fresh: Reply) -> Reply {
        let key = (fault, key(request));
        let has_room = self.shown.len() < READS_MAX;
        let Some(shown) = self.shown.get_mut(&key) else {
            if has_room {
                self.shown.insert(key, Shown { reply: fresh.clone(), lagging: None });
            }
            return fresh;
        };
        if shown.reply == fresh {
            shown.lagging = None;
            return fresh;
        }
        let (since, served) = shown.lagging.get_or_insert((now, 0));
        let lags = match lag {
            Lag::Reads(reads) => *served < reads,
            Lag::For(length) => now < *since + length,
        };
        if lags {
            *served += 1;
            return shown.reply.clone();
        }
        *shown = Shown { reply: fresh.clone(), lagging: None };
        fresh
    }

    /// A fault is over, and its replica with it.
    pub fn forget(&mut self, fault: FaultId) {
        self.shown.retain(|(of, _), _| *of != fault);
    }
}

/// What tells one read from another: the address, who asks, and for which form.
fn key(request: &Request<Bytes>) -> String {
    let sent = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    format!("{}\n{}\n{}", request.uri(), sent(header::AUTHORIZATION), sent(header::ACCEPT))
}
