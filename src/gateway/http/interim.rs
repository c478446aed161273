//! Interim answers (1xx) from the upstream, passed on before the final answer (RFC 9110 §15.2).
//!
//! Only the request that caused the fetch gets them. Waiters of a single flight or a queued write
//! get the final answer alone, and none is stored.
//!
//! Left out: 100, because the gateway answers `Expect` itself, and 101, because no request
//! upgrades. HTTP/1.0 has no interim answers, and the framework cannot send any over HTTP/2.

use std::collections::VecDeque;

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The limit of interim answers that a slow client leaves unread; later ones are dropped. Chosen
/// here: as many as may precede one answer.
const UNSENT_MAX: usize = 32;

pub struct Interim {
    /// The status, 102 to 199.
    pub status: StatusCode,
    pub headers: HeaderMap,
}

/// The interim answers of one request that its client has not taken yet.
#[derive(Default)]
pub struct Interims {
    unsent: Mutex<VecDeque<Interim>>,
    arrived: Notify,
}

impl Interims {
    pub fn push(&self, interim: Interim) {
        let mut unsent = self.unsent.lock();
        if unsent.len() < UNSENT_MAX {
            unsent.push_back(interim);
            self.arrived.notify_one();
        }
    }

    pub fn take(&self) -> Option<Interim> {
        self.unsent.lock().pop_front()
    }

    pub async fn next(&self) -> Interim {
        loop {
            if let Some(interim) = self.take() {
                return interim;
            }
            self.arrived.notified().await;
        }
    }
}
