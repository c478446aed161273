//! The number of a request.

/// Identifies a request until its completion; also its sequence number in the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
