//! The number of a request.

/// Names a request between its arrival and its completion; also its sequence number in the
/// transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
