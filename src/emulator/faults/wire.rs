//! Transport faults: the delays and truncations that only a socket can apply to a response.
//!
//! The emulator decides and `server` applies them. Callers without a socket find them in
//! [`Arrival`](crate::emulator::Arrival) and among the extensions of the response of
//! `Emulator::respond`.

use crate::clock::Timestamp;

/// The transport of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// Complete and at once.
    #[default]
    Whole,
    /// Complete, but not before this time, unless the emulator releases it earlier: see
    /// `Emulator::is_held_back`. `FAR_FUTURE` is for ever.
    HeldBack {
        /// The latest time of sending.
        until: Timestamp,
    },
    /// Sends the headers and half of the body. A response without a body is sent complete.
    Half(Framing),
    /// Sends nothing: resets the connection, or in HTTP/2 the stream.
    Reset,
    /// Sends nothing: closes the connection cleanly, like a server that died.
    Lost,
}

/// The framing of a truncated body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The full length is announced.
    Length,
    /// Chunked; the last chunk never comes.
    Chunked,
}

/// The emulator's interest in the actual sending of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Departure {
    /// No report is needed.
    #[default]
    Unwatched,
    /// Report it with `Emulator::departed`: an earlier response waits
    /// for this one to overtake it.
    Watched,
}
