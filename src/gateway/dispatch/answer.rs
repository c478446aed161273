//! An answer of the upstream as dispatch hands it over, with a body that is whole or begun.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::decision::permissions::denial_confidence::DenialConfidence;
use crate::gateway::dispatch::admission::Lease;
use crate::gateway::upstream::fetch::Exchange;
use crate::tokens::TokenId;

/// An upstream answer other than a limit error.
pub struct UpstreamAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: AnswerBody,
    /// The index of the client in the config whose request it answers.
    pub client: u32,
    pub account: AccountId,
    pub token: TokenId,
    /// The time of the request: the answer shows no older state.
    pub requested_at: Timestamp,
    /// The confidence in a denied read; `Final` for any other answer.
    pub denial_confidence: DenialConfidence,
}

pub enum AnswerBody {
    Whole(Bytes),
    /// More than `hold_max`: the bytes read so far, and the source of the rest.
    SharedBody {
        first: Bytes,
        exchange: Box<Exchange>,
        held: StreamingLease,
    },
}

/// The lease of an answer with a body that is still being read. Dropped before
/// [`StreamingLease::ended`], it is a request that was given up.
pub struct StreamingLease {
    lease: Option<Lease>,
    status: StatusCode,
}

impl StreamingLease {
    pub fn new(lease: Lease, status: StatusCode) -> Self {
        Self { lease: Some(lease), status }
    }

    /// Returns true if the lease ended because others wait for its slot, which a slow reader holds.
    /// The exchange is to be closed at once.
    pub fn yields(&mut self) -> bool {
        let yields = self.lease.as_ref().is_some_and(Lease::yields);
        if yields {
            self.lease = None;
        }
        yields
    }

    /// The upstream has ended the body, completely or not.
    pub fn ended(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.answered(self.status, None, None);
        }
    }
}

/// The status and `message` of an answer for logs: one line of printable ASCII, truncated.
pub fn status_and_message(status: StatusCode, body: &[u8]) -> String {
    /// Chosen here: the upstream's own messages are shorter.
    const MESSAGE_CHARS_MAX: usize = 200;
    let body: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = body.as_ref().and_then(|body| body.get("message")?.as_str()).unwrap_or_default();
    let printable: String =
        message.chars().filter(|c| (' '..='~').contains(c)).take(MESSAGE_CHARS_MAX).collect();
    format!("{} {printable}", status.as_u16()).trim_end().to_owned()
}
