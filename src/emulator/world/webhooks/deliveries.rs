//! What webhooks delivered or have yet to deliver: the record of one webhook, of bounded length and
//! size.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::hooks::ContentType;
use crate::clock::Timestamp;
use crate::emulator::http::hex;

/// The oldest deliveries of a webhook are forgotten when there are more. How many the service keeps
/// is not shown.
pub const DELIVERIES_MAX: usize = 1_000;
/// And when their payloads together are larger: payloads hold what callers wrote.
const LOG_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What still waits to be sent is kept beyond that: "whenever subscribed events occur" (Document 3,
/// Events). Only when nobody takes it for a long time do these bounds end it too.
const WAITING_MAX: usize = 10_000;
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Of a receiver's answer no more is kept than this, and this many headers.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWER_HEADERS_MAX: usize = 100;
const ANSWER_HEADER_BYTES_MAX: usize = 4 * 1024;

/// One delivery.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: u64,
    pub guid: String,
    /// When it was sent; while it waits, when it was made.
    pub at: Timestamp,
    pub attempt: Attempt,
    pub event: Arc<str>,
    pub action: Option<Arc<str>>,
    pub repository: Option<u64>,
    /// Of an app's delivery: where the app is installed.
    pub installation: Option<u64>,
    /// The text of a JSON object.
    pub payload: Arc<str>,
    /// How it was sent; none while it waits.
    pub posted: Option<Posted>,
    pub receipt: Receipt,
}

impl Delivery {
    fn bytes(&self) -> usize {
        self.payload.len() + self.receipt.bytes()
    }
}

/// Whether the same delivery was made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    First,
    Redelivery,
}

/// What was chosen when it was sent: the webhook may be changed afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub url: String,
    pub content_type: ContentType,
    /// None without a secret.
    pub signatures: Option<Signatures>,
}

/// The values of the two signature headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signatures {
    pub sha256: String,
    pub sha1: String,
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It waits for its turn or is on its way. Without a socket shell it stays so: nobody sends it.
    Pending,
    /// The receiver answered.
    Answered {
        /// The HTTP status.
        status: u16,
        /// From the connecting to the answer's end.
        duration: Duration,
        /// Names in lower case; repeated ones are joined.
        headers: Vec<(String, String)>,
        /// The answer's body as text, cut at 64 KiB.
        payload: String,
    },
    /// The receiver did not answer.
    Failed {
        /// Why.
        failure: Failure,
        /// Until that was known.
        duration: Duration,
    },
}

/// Why a receiver did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It took too long (UPSTREAM.md, Webhooks: "answer within 10 s").
    TimedOut,
    /// Nothing listens at its port.
    Refused,
    /// Its host's name leads nowhere.
    Unresolved,
    /// Its certificate is not one to be trusted.
    Certificate,
    /// It closed the connection without an answer.
    Closed,
    /// What it said is no HTTP answer.
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
    /// An answer, cut to what is kept of it.
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
            headers
                .get_all(name)
                .iter()
                .map(|value| text(value.as_bytes()))
                .take(ANSWER_HEADERS_MAX)
                .collect::<Vec<_>>()
        };
        Self::Answered {
            status: status.as_u16(),
            duration,
            headers: headers
                .keys()
                .take(ANSWER_HEADERS_MAX)
                .map(|name| (name.to_string(), joined(name).join(", ")))
                .collect(),
            payload: String::from_utf8_lossy(kept).into_owned(),
        }
    }

    /// 0 when there was no answer: the field is an integer.
    pub fn status_code(&self) -> u16 {
        match self {
            Self::Answered { status, .. } => *status,
            Self::Pending | Self::Failed { .. } => 0,
        }
    }

    /// "Text outcome; OK occurs; other values: not shown": the reason phrase of an answer, else
    /// what went wrong.
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

    /// How long it took, in seconds.
    pub fn duration_secs(&self) -> f64 {
        match self {
            Self::Answered { duration, .. } | Self::Failed { duration, .. } => {
                duration.as_secs_f64()
            }
            Self::Pending => 0.0,
        }
    }

    /// None while it is not known.
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

/// Where a webhook stands among those that have something to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueStatus {
    /// Nothing waits.
    #[default]
    Idle,
    /// It waits for its turn.
    Queued,
    /// One of its deliveries is on its way; the next follows it, so that they arrive in order.
    UnderWay,
}

/// The deliveries of one webhook, oldest first, so that ids rise.
#[derive(Debug, Default)]
pub struct DeliveryLog {
    deliveries: VecDeque<Delivery>,
    /// Ids of those that wait to be sent, in order.
    waiting: VecDeque<u64>,
    /// Of the payloads of those.
    waiting_bytes: usize,
    bytes: usize,
    pub status: QueueStatus,
}

impl DeliveryLog {
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// How many wait to be sent.
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
        let at = self.deliveries.binary_search_by_key(&id, |delivery| delivery.id).ok()?;
        self.deliveries.get(at)
    }

    /// Adds a delivery, whose id must be above all others; a pending one waits to be sent. The
    /// oldest are forgotten for it when there are many.
    pub fn append(&mut self, delivery: Delivery) {
        if delivery.receipt == Receipt::Pending {
            self.waiting.push_back(delivery.id);
            self.waiting_bytes += delivery.payload.len();
        }
        self.bytes += delivery.bytes();
        self.deliveries.push_back(delivery);
        self.forget_oldest();
    }

    /// The next delivery to send, which from now on waits no more.
    pub fn take_waiting(&mut self) -> Option<&mut Delivery> {
        let at = self.pop_waiting()?;
        self.deliveries.get_mut(at)
    }

    /// Forgets the oldest of those that wait; false when none does.
    pub fn forget_waiting(&mut self) -> bool {
        let Some(gone) = self.pop_waiting().and_then(|at| self.deliveries.remove(at)) else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(gone.bytes());
        true
    }

    /// Where the oldest of those is that waited until now.
    fn pop_waiting(&mut self) -> Option<usize> {
        let id = self.waiting.pop_front()?;
        let at = self.deliveries.binary_search_by_key(&id, |delivery| delivery.id).ok()?;
        self.waiting_bytes =
            self.waiting_bytes.saturating_sub(self.deliveries.get(at)?.payload.len());
        Some(at)
    }

    /// Notes what became of a delivery; nothing when it was forgotten meanwhile.
    pub fn settle(&mut self, id: u64, receipt: Receipt) {
        let Ok(at) = self.deliveries.binary_search_by_key(&id, |delivery| delivery.id) else {
            return;
        };
        if let Some(delivery) = self.deliveries.get_mut(at) {
            self.bytes += receipt.bytes();
            self.bytes = self.bytes.saturating_sub(delivery.receipt.bytes());
            delivery.receipt = receipt;
            self.forget_oldest();
        }
    }

    /// The newest always stays, however large it is.
    fn forget_oldest(&mut self) {
        while self.deliveries.len() > 1
            && (self.deliveries.len() > DELIVERIES_MAX || self.bytes > LOG_BYTES_MAX)
        {
            let is_pending =
                self.deliveries.front().is_some_and(|oldest| oldest.receipt == Receipt::Pending);
            if is_pending && self.deliveries.len() <= WAITING_MAX && self.bytes <= WAITING_BYTES_MAX
            {
                return;
            }
            let Some(oldest) = self.deliveries.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
            if self.waiting.front() == Some(&oldest.id) {
                self.waiting.pop_front();
                self.waiting_bytes = self.waiting_bytes.saturating_sub(oldest.payload.len());
            }
        }
    }
}

/// "Unique delivery identifier (UUID form)"; the same id always gets the same one.
pub fn guid(id: u64) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, &id.to_be_bytes());
    let text = hex(&digest.as_ref()[..16]);
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}
