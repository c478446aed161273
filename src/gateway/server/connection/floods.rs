//! Floods of HTTP/2 frames: budgets of the frames that cost the gateway work and the client none.
//!
//! Control frames (pings, settings, updates of windows, priorities, unknown ones) and resets of
//! streams have a budget each, which time, requests and sent bytes refill. Honest clients earn more
//! than they need: an update of a window answers bytes that were sent, a ping comes now and then.
//! HEADERS that open no stream count as control frames: a stream has trailers once, but the codec
//! ignores any number of them after it has reset the stream.
//! Left out: heads without an end and small DATA frames, which the framework's codec bounds itself.

use tokio::time::Instant;

/// Frame types (RFC 9113 §6).
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Streams of one connection at once. Chosen here: more than the hundred that RFC 9113 §6.5.2 names
/// as the least.
pub const STREAMS_MAX: u32 = 250;

/// Control frames of a connection at its begin. Chosen here: a client's first frames are ten. All
/// of them are handled at once, so that a thousand would delay others by a millisecond.
const CONTROL_AT_FIRST: u32 = 100;
/// The most that it may save for later. Chosen here: the updates for 2 MiB of the smallest frames
/// that clients ask for.
const CONTROL_MAX: u32 = 10_000;
/// Control frames per second. Chosen here: many times those of a client that pings.
const CONTROL_PER_SECOND: u32 = 10;
/// Control frames per request: updates for a short answer, its priority, and pings with it.
const CONTROL_PER_STREAM: u32 = 10;
/// Sent bytes that pay for one control frame. Chosen here: a frame of 1 KiB is answered by two
/// updates, one for its stream and one for the connection.
const BYTES_PER_CONTROL: usize = 256;
/// Payload bytes of a control frame that cost as much as another frame.
const PAYLOAD_PER_CONTROL: u32 = 64;

/// Half resets of a connection at its begin. Chosen here: a client may give up its first hundred
/// requests.
const HALF_RESETS_AT_FIRST: u32 = 200;
/// The most that it may save for later. Chosen here: 500 resets, as others do.
const HALF_RESETS_MAX: u32 = 1_000;
/// Half resets per second.
const HALF_RESETS_PER_SECOND: u32 = 20;

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub kind: u8,
    /// Bytes of its payload.
    pub length: u32,
    /// True for HEADERS that open a stream.
    pub opens_stream: bool,
}

/// The kind of the frame that went beyond a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    Ping,
    Settings,
    WindowUpdate,
    Priority,
    Headers,
    Reset,
    Other,
}

impl Flood {
    /// The word for metrics and the log.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ping => "http2_ping",
            Self::Settings => "http2_settings",
            Self::WindowUpdate => "http2_window_update",
            Self::Priority => "http2_priority",
            Self::Headers => "http2_headers",
            Self::Reset => "http2_reset",
            Self::Other => "http2_other_frames",
        }
    }
}

/// The allowance of one connection for frames without use.
pub struct FrameBudget {
    control: Budget,
    resets: Budget,
    /// Sent bytes that have not paid for a frame yet.
    sent: usize,
}

impl FrameBudget {
    /// The budget of a connection that begins now.
    pub fn new(now: Instant) -> Self {
        let control = Budget {
            left: CONTROL_AT_FIRST,
            max: CONTROL_MAX,
            per_second: CONTROL_PER_SECOND,
            filled_at: now,
        };
        let resets = Budget {
            left: HALF_RESETS_AT_FIRST,
            max: HALF_RESETS_MAX,
            per_second: HALF_RESETS_PER_SECOND,
            filled_at: now,
        };
        Self { control, resets, sent: 0 }
    }

    /// Takes the cost of a frame. `is_full`: as many streams are open as may be, so that another
    /// one is reset by the gateway. The time is read only when a budget is short.
    pub fn take(
        &mut self,
        frame: Frame,
        is_full: bool,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), Flood> {
        let flood = match frame.kind {
            HEADERS if frame.opens_stream && !is_full => {
                self.control.add(CONTROL_PER_STREAM);
                // Half a reset: a client that resets every other stream is served.
                self.resets.add(1);
                return Ok(());
            }
            HEADERS if frame.opens_stream => Flood::Reset,
            // DATA.
            0 => return Ok(()),
            HEADERS | CONTINUATION => Flood::Headers,
            RESET => Flood::Reset,
            PING => Flood::Ping,
            SETTINGS => Flood::Settings,
            WINDOW_UPDATE => Flood::WindowUpdate,
            PRIORITY => Flood::Priority,
            _ => Flood::Other,
        };
        let is_paid = match flood {
            Flood::Reset => self.resets.take(2, now),
            // One of 16 KiB belongs to a long head, and a frame of its own to each request.
            Flood::Headers if frame.kind == CONTINUATION => self.control.take(1, now),
            _ => self.control.take(1 + frame.length / PAYLOAD_PER_CONTROL, now),
        };
        if is_paid { Ok(()) } else { Err(flood) }
    }

    /// Notes bytes that the client took.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        let paid = u32::try_from(self.sent / BYTES_PER_CONTROL).unwrap_or(u32::MAX);
        self.sent %= BYTES_PER_CONTROL;
        self.control.add(paid);
    }
}

struct Budget {
    left: u32,
    max: u32,
    per_second: u32,
    filled_at: Instant,
}

impl Budget {
    fn add(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(self.max.max(self.left));
    }

    fn take(&mut self, cost: u32, now: impl FnOnce() -> Instant) -> bool {
        if self.left < cost {
            let now = now();
            let elapsed = now.saturating_duration_since(self.filled_at).as_millis();
            let gained = elapsed * u128::from(self.per_second) / 1_000;
            if gained > 0 {
                self.filled_at = now;
                self.add(u32::try_from(gained).unwrap_or(u32::MAX));
            }
        }
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::timer_now;

    /// A connection in virtual time.
    struct Client {
        budget: FrameBudget,
        now: Instant,
    }

    impl Client {
        fn new() -> Self {
            let now = timer_now();
            Self { budget: FrameBudget::new(now), now }
        }

        fn wait(&mut self, time: Duration) {
            self.now += time;
        }

        fn frame(&mut self, kind: u8, length: u32) -> Result<(), Flood> {
            let frame = Frame { kind, length, opens_stream: false };
            self.budget.take(frame, false, || self.now)
        }

        fn open(&mut self, is_full: bool) -> Result<(), Flood> {
            let frame = Frame { kind: HEADERS, length: 40, opens_stream: true };
            self.budget.take(frame, is_full, || self.now)
        }

        /// The number of frames of a flood that pass, and its name.
        fn flood(&mut self, mut send: impl FnMut(&mut Self) -> Result<(), Flood>) -> (u32, Flood) {
            (0..100_000)
                .find_map(|sent| send(self).err().map(|flood| (sent, flood)))
                .expect("the flood has an end")
        }
    }

    #[test]
    fn floods_of_control_frames_end() {
        for (kind, length, passed, flood) in [
            (PING, 8, 100, Flood::Ping),
            (SETTINGS, 0, 100, Flood::Settings),
            (SETTINGS, 1_024, 5, Flood::Settings),
            (WINDOW_UPDATE, 4, 100, Flood::WindowUpdate),
            (PRIORITY, 5, 100, Flood::Priority),
            (HEADERS, 0, 100, Flood::Headers),
            (HEADERS, 1_024, 5, Flood::Headers),
            (CONTINUATION, 1_024, 100, Flood::Headers),
            (0xfa, 0, 100, Flood::Other),
        ] {
            let ended = Client::new().flood(|client| client.frame(kind, length));
            assert_eq!(ended, (passed, flood), "{kind} {length}");
        }
    }

    #[test]
    fn rapid_resets_end_and_streams_beyond_the_limit_count_as_such() {
        let resets = |client: &mut Client| {
            client.open(false)?;
            client.frame(RESET, 4)
        };
        assert_eq!(Client::new().flood(resets), (200, Flood::Reset));
        assert_eq!(Client::new().flood(|client| client.open(true)), (100, Flood::Reset));
    }

    #[test]
    fn a_client_that_cancels_every_other_request_is_served() {
        let mut client = Client::new();
        for _ in 0..100_000 {
            client.open(false).unwrap();
            client.open(false).unwrap();
            client.frame(RESET, 4).unwrap();
        }
    }

    #[test]
    fn a_client_with_long_heads_and_trailers_is_served() {
        let mut client = Client::new();
        for _ in 0..100_000 {
            client.open(false).unwrap();
            client.frame(CONTINUATION, 16 * 1_024).unwrap();
            client.frame(HEADERS, 400).unwrap();
        }
    }

    #[test]
    fn a_client_that_pings_ten_times_a_second_is_served() {
        let mut client = Client::new();
        for _ in 0..100_000 {
            client.wait(Duration::from_millis(100));
            client.frame(PING, 8).unwrap();
        }
    }

    #[test]
    fn two_updates_for_each_kibibyte_are_paid_by_it() {
        let mut client = Client::new();
        for _ in 0..50 {
            // A window of 2 MiB is used up before its updates come.
            for _ in 0..2_048 {
                client.budget.sent(1_024);
            }
            for _ in 0..2 * 2_048 {
                client.frame(WINDOW_UPDATE, 4).unwrap();
            }
        }
    }

    #[test]
    fn a_quiet_time_refills_a_budget_up_to_its_bound() {
        let mut client = Client::new();
        client.flood(|client| client.frame(PING, 8));
        client.wait(Duration::from_secs(1));
        assert_eq!(client.flood(|client| client.frame(PING, 8)).0, 10);
        client.wait(Duration::from_hours(24 * 365));
        assert_eq!(client.flood(|client| client.frame(PING, 8)).0, CONTROL_MAX);
    }
}
