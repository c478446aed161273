//! Reading a request's body: bounded in bytes, in the pause between two reads, and in what all held bodies take together (DESIGN D10).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::ServerSession;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::intake::BodyFraming;

/// What all bodies that wait may take together. Ours: room for thousands of ordinary ones, and for twenty-five of the largest that are queued by default.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The unit in which that is counted.
const UNIT_BYTES: usize = 1024;

/// The memory for bodies, shared by all requests.
pub struct BodyMemory {
    units: Arc<Semaphore>,
}

/// A body as far as it was read.
pub enum BodyRead {
    /// All of it.
    Whole(HeldBody),
    /// It is, or says it is, longer than the bound: what was read so far.
    TooLarge(Vec<Bytes>),
}

/// A body in memory, with its part of [`BodyMemory`].
pub struct HeldBody {
    /// The body.
    pub bytes: Bytes,
    /// To be kept as long as the body is.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// It broke off, or its chunks are malformed.
    Broken,
    /// Nothing came for too long.
    Timeout,
    /// The bodies of other requests take all the memory there is for them.
    NoRoom,
}

impl Default for BodyMemory {
    /// All of it free.
    fn default() -> Self {
        Self { units: Arc::new(Semaphore::new(HELD_BYTES_MAX / UNIT_BYTES)) }
    }
}

impl BodyMemory {
    /// Adds room for further bytes to what a body has.
    fn grow(&self, memory: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), BodyFault> {
        let have = memory.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let want = bytes.div_ceil(UNIT_BYTES);
        let Some(more) = want.checked_sub(have).filter(|more| *more > 0) else { return Ok(()) };
        let more = u32::try_from(more).map_err(|_| BodyFault::NoRoom)?;
        let permit = Arc::clone(&self.units).try_acquire_many_owned(more).map_err(|_| BodyFault::NoRoom)?;
        match memory {
            Some(memory) => memory.merge(permit),
            None => *memory = Some(permit),
        }
        Ok(())
    }

    /// Reads up to `bytes_max`.
    pub async fn read(
        &self,
        session: &mut ServerSession,
        framing: BodyFraming,
        bytes_max: usize,
        pause_max: Duration,
    ) -> Result<BodyRead, BodyFault> {
        let mut memory = None;
        match framing {
            BodyFraming::None => return Ok(BodyRead::Whole(HeldBody { bytes: Bytes::new(), memory })),
            BodyFraming::Length(length) if length > bytes_max as u64 => return Ok(BodyRead::TooLarge(Vec::new())),
            BodyFraming::Length(length) => self.grow(&mut memory, usize::try_from(length).unwrap_or(usize::MAX))?,
            BodyFraming::Chunked => {}
        }
        let mut body = BytesMut::new();
        loop {
            match timeout(pause_max, session.read_request_body()).await {
                Ok(Ok(Some(piece))) => {
                    body.extend_from_slice(&piece);
                    if body.len() > bytes_max {
                        return Ok(BodyRead::TooLarge(vec![body.freeze()]));
                    }
                    self.grow(&mut memory, body.len())?;
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
        Ok(BodyRead::Whole(HeldBody { bytes: body.freeze(), memory }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bodies_together_have_a_bound_and_give_their_room_back() {
        let memory = BodyMemory::default();
        let mut held = Vec::new();
        loop {
            let mut permit = None;
            if memory.grow(&mut permit, 10 * 1024 * 1024).is_err() {
                break;
            }
            held.push(permit);
        }
        assert_eq!(held.len(), 25);
        held.pop();
        let mut permit = None;
        assert_eq!(memory.grow(&mut permit, 10 * 1024 * 1024), Ok(()));
        assert_eq!(memory.grow(&mut permit, 10 * 1024 * 1024), Ok(()), "what it has already is not taken twice");
    }
}
