//! The beginning of an answer that waits for the rest: head and body of a short one are one write.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;

/// The longest answer that is written at once.
const HELD_BYTES_MAX: usize = 16 * 1024;

#[derive(Default)]
pub struct Held {
    bytes: BytesMut,
    /// True while bytes go out as they come. The session has only a shared reference.
    is_off: AtomicBool,
}

impl Held {
    /// Holds what is written from now on, or no longer. What is held goes out with the next write.
    pub fn hold(&self, holds: bool) {
        self.is_off.store(!holds, Ordering::Relaxed);
    }

    /// Holds these bytes until the next flush. False: they are to be written.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let fits = self.bytes.len() + bytes.len() <= HELD_BYTES_MAX;
        let is_held = fits && !*self.is_off.get_mut();
        if is_held {
            self.bytes.extend_from_slice(bytes);
        }
        is_held
    }

    /// Writes what is held, and gives its memory back.
    pub fn poll_write_out(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin + ?Sized),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while !self.bytes.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(context, &self.bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.bytes.advance(written),
            }
        }
        self.bytes = BytesMut::new();
        Poll::Ready(Ok(()))
    }
}
