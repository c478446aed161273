//! An answer of the upstream as dispatch hands it over, with a body that is whole or begun.

use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::decision::permissions::denial_confidence::DenialConfidence;
use crate::gateway::dispatch::admission::Lease;
use crate::gateway::upstream::fetch::Exchange;
use crate::tokens::TokenId;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// An answer of the upstream that is not a limit refusal.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// All headers as received.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
    /// Which account it was asked of.
    pub account: AccountId,
    /// Which token it was asked with.
    pub token: TokenId,
    /// When the request was sent: what the answer shows is not older than this.
    pub requested_at: Timestamp,
    /// What it is worth to the pool when it is a denial.
    pub verdict: DenialConfidence,
}

/// The body of an [`Answer`].
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// More than `hold_max`: what was read so far, and where the rest comes from.
    SharedBody {
        /// What was read.
        first: Bytes,
        /// The rest.
        exchange: Box<Exchange>,
        /// The slot it holds upstream.
        held: Held,
    },
}

/// A lease whose answer's head has been read and whose body has not.
pub struct Held {
    pub lease: Option<Lease>,
    pub status: StatusCode,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.answered(self.status, None, None);
        }
    }
}

/// What an answer says in its status and `message`, for people: one line of printable ASCII, cut
/// short.
pub fn said(status: StatusCode, body: &[u8]) -> String {
    /// Ours: the upstream's own messages are shorter.
    const MESSAGE_CHARS_MAX: usize = 200;
    let body: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = body.as_ref().and_then(|body| body.get("message")?.as_str()).unwrap_or_default();
    let printable: String =
        message.chars().filter(|c| (' '..='~').contains(c)).take(MESSAGE_CHARS_MAX).collect();
    format!("{} {printable}", status.as_u16()).trim_end().to_owned()
}
