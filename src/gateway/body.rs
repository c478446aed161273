//! Reading a request's body, bounded in bytes and in the pause between two reads.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;

use super::intake::BodyFraming;
use super::refuse::Refused;

/// A body as far as it was read.
pub enum BodyRead {
    /// All of it.
    Whole(Bytes),
    /// It is, or says it is, longer than the bound: what was read so far.
    TooLarge(Vec<Bytes>),
}

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// It broke off, or its chunks are malformed.
    Broken,
    /// Nothing came for too long.
    Timeout,
}

impl From<BodyFault> for Refused {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::Broken => Self::BrokenBody,
            BodyFault::Timeout => Self::BodyTimeout,
        }
    }
}

/// Reads up to `bytes_max`.
pub async fn read_body(
    session: &mut ServerSession,
    framing: BodyFraming,
    bytes_max: usize,
    pause_max: Duration,
) -> Result<BodyRead, BodyFault> {
    match framing {
        BodyFraming::None => return Ok(BodyRead::Whole(Bytes::new())),
        BodyFraming::Length(length) if length > bytes_max as u64 => return Ok(BodyRead::TooLarge(Vec::new())),
        _ => {}
    }
    let mut body = BytesMut::new();
    loop {
        match timeout(pause_max, session.read_request_body()).await {
            Ok(Ok(Some(piece))) => {
                body.extend_from_slice(&piece);
                if body.len() > bytes_max {
                    return Ok(BodyRead::TooLarge(vec![body.freeze()]));
                }
            }
            Ok(Ok(None)) => break,
            Ok(Err(_)) => return Err(BodyFault::Broken),
            Err(_) => return Err(BodyFault::Timeout),
        }
    }
    if let BodyFraming::Length(length) = framing
        && body.len() as u64 != length
    {
        return Err(BodyFault::Broken);
    }
    Ok(BodyRead::Whole(body.freeze()))
}
