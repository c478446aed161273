//! Informational answers of the upstream (1xx) on their way to the client whose request brings
//! them, before its answer (RFC 9110 §15.2).
//!
//! Only that client gets them: who waits for another one's fetch gets its answer alone, so does who
//! waits for a queued write, and nothing of them is stored. Left out: 100, which answers an
//! `Expect` that is answered here, and 101, which nobody asks for; clients of HTTP/1.0, which knows
//! no such answers; and those of HTTP/2, to which the framework cannot send any.

use std::collections::VecDeque;

use parking_lot::Mutex;

use http::{HeaderMap, StatusCode};
use tokio::sync::Notify;

/// How many wait for a client that does not take them; further ones are left out. Ours: as many as
/// one answer may have before it.
const UNSENT_MAX: usize = 32;

/// One of them.
pub struct Interim {
    /// The status, 102 to 199.
    pub status: StatusCode,
    /// The headers as received.
    pub headers: HeaderMap,
}

/// Those of one request that the client has not been given yet.
#[derive(Default)]
pub struct Interims {
    unsent: Mutex<VecDeque<Interim>>,
    came: Notify,
}

impl Interims {
    /// One has come.
    pub fn push(&self, interim: Interim) {
        let mut unsent = self.unsent.lock();
        if unsent.len() < UNSENT_MAX {
            unsent.push_back(interim);
            self.came.notify_one();
        }
    }

    /// The next one, if there is one.
    pub fn take(&self) -> Option<Interim> {
        self.unsent.lock().pop_front()
    }

    /// The next one.
    pub async fn next(&self) -> Interim {
        loop {
            if let Some(interim) = self.take() {
                return interim;
            }
            self.came.notified().await;
        }
    }
}
