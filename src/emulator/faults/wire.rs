//! How an answer leaves when a fault was armed for its request: what only a socket can do with it.
//!
//! The emulator decides, the shell does (`server`). Callers without a socket find it in
//! [`Arrival`](super::Arrival) and among the extensions of what
//! [`Emulator::respond`](super::Emulator::respond) returns, and make of it what they can.

use crate::clock::Timestamp;

/// How an answer leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// As it is, at once.
    #[default]
    Whole,
    /// As it is, but not before this time, unless the emulator lets it go earlier: see
    /// [`Emulator::is_held_back`](super::Emulator::is_held_back). `FAR_FUTURE` is for ever.
    HeldBack {
        /// When it leaves whatever else happens.
        until: Timestamp,
    },
    /// Its headers and half of its body; then the connection ends. One without a body leaves whole.
    Half(Framing),
    /// Not at all: the connection is reset, or in HTTP/2 the stream.
    Reset,
    /// Not at all: the connection is closed in good order, as by a server that died.
    Lost,
}

/// How a body that ends too early had been announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its full length.
    Length,
    /// As chunks; the last one never comes.
    Chunked,
}

/// Whether the emulator wants to know when an answer has really left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Departure {
    /// It does not care.
    #[default]
    Unwatched,
    /// To be told by [`Emulator::departed`](super::Emulator::departed): an earlier answer waits to
    /// be overtaken by this one.
    Watched,
}
