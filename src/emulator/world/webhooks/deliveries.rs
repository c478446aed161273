//! The delivery log of one webhook, bounded in length and size.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::hooks::ContentType;
use crate::clock::Timestamp;
use crate::emulator::http::hex;

/// Beyond it the oldest are dropped. The service's own bound is undocumented.
pub const DELIVERIES_MAX: usize = 1_000;
/// The most payload bytes of a webhook; payloads contain callers' texts.
const LOG_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Waiting deliveries outlive the bounds above; these apply when nobody sends for a long time.
const WAITING_MAX: usize = 10_000;
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most bytes and headers stored of a receiver's response.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWER_HEADERS_MAX: usize = 100;
const ANSWER_HEADER_BYTES_MAX: usize = 4 * 1024;

#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: u64,
    pub guid: String,
    /// The time of sending; while it waits, of creation.
    pub at: Timestamp,
    pub attempt: Attempt,
    pub event: Arc<str>,
    pub action: Option<Arc<str>>,
    pub repository: Option<u64>,
    /// The app's installation, for a delivery to an app.
    pub installation: Option<u64>,
    /// A serialized JSON object.
    pub payload: Arc<str>,
    /// The sent request; `None` while it waits.
    pub posted: Option<Posted>,
    pub receipt: Receipt,
}

impl Delivery {
    fn bytes(&self) -> usize {
        self.payload.len() + self.receipt.bytes()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    First,
    Redelivery,
}

/// The request's parameters at the time of sending; the webhook may change afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub url: String,
    pub content_type: ContentType,
    /// `None` without a secret.
    pub signatures: Option<Signatures>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signatures {
    pub sha256: String,
    pub sha1: String,
}

/// The result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Waiting or under way. Without a server it stays so, because nobody sends it.
    Pending,
    /// The receiver answered.
    Answered {
        /// The HTTP status.
        status: u16,
        /// From the start of the connection to the end of the response.
        duration: Duration,
        /// Names in lower case; repeated ones are joined.
        headers: Vec<(String, String)>,
        /// The response's body as text, cut at 64 KiB.
        payload: String,
    },
    /// The receiver did not answer.
    Failed {
        /// The reason.
        failure: Failure,
        /// Until the failure was known.
        duration: Duration,
    },
}

/// The reason for a missing response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The receiver took too long.
    TimedOut,
    /// The port refused the connection.
    Refused,
    /// The host name does not resolve.
    Unresolved,
    /// The certificate is not trusted.
    Certificate,
    /// The connection closed without a response.
    Closed,
    /// The bytes are not an HTTP response.
    Garbled,
    /// Any other reason.
    Unreachable,
}

impl Failure {
    fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "Timed out",
            Self::Refused => "Connection refused",
            Self::Unresolved => "Failed to resolve host",
            Self::Certificate => "Certificate not trusted",
            Self::Closed => "Connection closed",
            Self::Garbled => "Invalid HTTP response",
            Self::Unreachable => "Failed to connect",
        }
    }
}

impl Receipt {
    /// Returns a response, truncated to the stored size.
    #[must_use]
    pub fn answered(
        status: StatusCode,
        headers: &HeaderMap,
        payload: &[u8],
        duration: Duration,
    ) -> Self {
        let kept = &payload[..payload.len().min(ANSWER_BYTES_MAX)];
        let text = |value: &[u8]| {
            String::from_utf8_lossy(&value[..value.len().min(ANSWER_HEADER_BYTES_MAX)]).into_owned()
        };
        let joined = |name| {
            let values = headers.get_all(name).iter().take(ANSWER_HEADERS_MAX);
            values.map(|value| text(value.as_bytes())).collect::<Vec<_>>().join(", ")
        };
        Self::Answered {
            status: status.as_u16(),
            duration,
            headers: headers
                .keys()
                .take(ANSWER_HEADERS_MAX)
                .map(|name| (name.to_string(), joined(name)))
                .collect(),
            payload: String::from_utf8_lossy(kept).into_owned(),
        }
    }

    /// 0 without a response, because the field is an integer.
    pub fn status_code(&self) -> u16 {
        match self {
            Self::Answered { status, .. } => *status,
            Self::Pending | Self::Failed { .. } => 0,
        }
    }

    /// Returns the reason phrase, else the failure. The upstream documents only the text `OK`.
    pub fn text(&self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Answered { status, .. } => StatusCode::from_u16(*status)
                .ok()
                .and_then(|status| status.canonical_reason())
                .unwrap_or("Unknown status"),
            Self::Failed { failure, .. } => failure.text(),
        }
    }

    /// Returns the duration in seconds.
    pub fn duration_secs(&self) -> f64 {
        match self {
            Self::Answered { duration, .. } | Self::Failed { duration, .. } => {
                duration.as_secs_f64()
            }
            Self::Pending => 0.0,
        }
    }

    /// `None` while it is unknown.
    pub fn is_success(&self) -> Option<bool> {
        match self {
            Self::Pending => None,
            Self::Answered { status, .. } => Some((200..400).contains(status)),
            Self::Failed { .. } => Some(false),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Answered { headers, payload, .. } => {
                payload.len()
                    + headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
            }
            Self::Pending | Self::Failed { .. } => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueStatus {
    #[default]
    Idle,
    Queued,
    /// A delivery is under way; the next one waits for its end, which keeps the order.
    UnderWay,
}

/// The deliveries of one webhook, oldest first, so ids ascend.
#[derive(Debug, Default)]
pub struct DeliveryLog {
    deliveries: VecDeque<Delivery>,
    /// Ids of the waiting deliveries, in order.
    waiting: VecDeque<u64>,
    waiting_bytes: usize,
    bytes: usize,
    pub status: QueueStatus,
}

impl DeliveryLog {
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Delivery> {
        self.deliveries.iter()
    }

    pub fn get(&self, id: u64) -> Option<&Delivery> {
        self.deliveries.get(self.position(id)?)
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.deliveries.binary_search_by_key(&id, |delivery| delivery.id).ok()
    }

    /// Ids ascend; a pending delivery waits to be sent. Beyond the bounds the oldest are dropped.
    pub fn append(&mut self, delivery: Delivery) {
        if delivery.receipt == Receipt::Pending {
            self.waiting.push_back(delivery.id);
            self.waiting_bytes += delivery.payload.len();
        }
        self.bytes += delivery.bytes();
        self.deliveries.push_back(delivery);
        self.forget_oldest();
    }

    /// Takes the next delivery to send off the waiting list.
    pub fn take_waiting(&mut self) -> Option<&mut Delivery> {
        let at = self.pop_waiting()?;
        self.deliveries.get_mut(at)
    }

    /// Drops the oldest waiting delivery; false when none waits.
    pub fn forget_waiting(&mut self) -> bool {
        let Some(gone) = self.pop_waiting().and_then(|at| self.deliveries.remove(at)) else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(gone.bytes());
        true
    }

    /// Takes the oldest id off the waiting list and returns its position.
    fn pop_waiting(&mut self) -> Option<usize> {
        let at = self.waiting.pop_front().and_then(|id| self.position(id))?;
        let bytes = self.deliveries.get(at)?.payload.len();
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        Some(at)
    }

    pub fn settle(&mut self, id: u64, receipt: Receipt) {
        let at = self.position(id);
        if let Some(delivery) = at.and_then(|at| self.deliveries.get_mut(at)) {
            self.bytes += receipt.bytes();
            self.bytes = self.bytes.saturating_sub(delivery.receipt.bytes());
            delivery.receipt = receipt;
            self.forget_oldest();
        }
    }

    /// Keeps the newest, however large it is.
    fn forget_oldest(&mut self) {
        while self.deliveries.len() > 1
            && (self.deliveries.len() > DELIVERIES_MAX || self.bytes > LOG_BYTES_MAX)
        {
            let fits = self.deliveries.len() <= WAITING_MAX && self.bytes <= WAITING_BYTES_MAX;
            let can_go = |oldest: &mut Delivery| oldest.receipt != Receipt::Pending || !fits;
            let Some(oldest) = self.deliveries.pop_front_if(can_go) else { return };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
            if self.waiting.front() == Some(&oldest.id) {
                self.waiting.pop_front();
                self.waiting_bytes = self.waiting_bytes.saturating_sub(oldest.payload.len());
            }
        }
    }
}

/// Returns a UUID; equal ids give equal UUIDs.
pub fn guid(id: u64) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, &id.to_be_bytes());
    let text = hex(&digest.as_ref()[..16]);
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}
