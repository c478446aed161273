//! Sends a response on its connection with its transport faults: whole, late, truncated or not at
//! all (`wire`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderValue, Response, Version, header};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use super::write_queue::{CloseMode, ConnectionControls};
use crate::emulator::faults::wire::{Framing, Wire};

pub type SentBody = Either<Full<Bytes>, HalfBody>;

/// The response ends here, because of a fault.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("broken off by a fault that was asked for")]
pub struct BrokenOff;

/// In HTTP/2 a reset affects only the stream; a lost response ends its whole connection.
pub async fn depart(
    response: Response<Bytes>,
    wire: Wire,
    version: Version,
    controls: &Arc<ConnectionControls>,
) -> Result<Response<SentBody>, BrokenOff> {
    match wire {
        Wire::Whole | Wire::HeldBack { .. } => {
            Ok(response.map(|body| Either::Left(Full::new(body))))
        }
        Wire::Half(framing) => Ok(halve(response, framing, version, controls)),
        // The HTTP/2 implementation resets the stream of a handler that fails.
        Wire::Reset if version == Version::HTTP_2 => Err(BrokenOff),
        Wire::Reset => cut(controls, CloseMode::Reset).await,
        Wire::Lost => cut(controls, CloseMode::Close).await,
    }
}

async fn cut(
    controls: &ConnectionControls,
    mode: CloseMode,
) -> Result<Response<SentBody>, BrokenOff> {
    controls.cut(mode);
    // The connection is dropped, and this future with it.
    std::future::pending().await
}

fn halve(
    mut response: Response<Bytes>,
    framing: Framing,
    version: Version,
    controls: &Arc<ConnectionControls>,
) -> Response<SentBody> {
    let whole = response.body().len();
    if whole == 0 {
        if version < Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        return response.map(|body| Either::Left(Full::new(body)));
    }
    response.map(|body| {
        let half = body.slice(..whole / 2);
        let sent = Some(controls.sent(half.len() as u64));
        let (kept, whole, controls) = (Some(half), whole as u64, Arc::clone(controls));
        Either::Right(HalfBody { kept, whole, framing, version, sent, controls })
    })
}

#[derive(Debug)]
pub struct HalfBody {
    kept: Option<Bytes>,
    whole: u64,
    framing: Framing,
    version: Version,
    /// `None` once the bytes are sent.
    sent: Option<oneshot::Receiver<()>>,
    controls: Arc<ConnectionControls>,
}

impl Body for HalfBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some(half) = self.kept.take().filter(|half| !half.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(half))));
        }
        // An early end would discard unsent bytes.
        if let Some(sent) = &mut self.sent {
            let _ = ready!(Pin::new(sent).poll(cx));
            self.sent = None;
        }
        if self.version == Version::HTTP_2 {
            return Poll::Ready(Some(Err(BrokenOff)));
        }
        self.controls.cut(CloseMode::Close);
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length => SizeHint::with_exact(self.whole),
            Framing::Chunked => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_half_body_stays_pending_after_its_end() {
        let (notify, sent) = oneshot::channel();
        notify.send(()).expect("somebody waits");
        let controls = Arc::new(ConnectionControls::default());
        let mut half = HalfBody {
            kept: None,
            whole: 4,
            framing: Framing::Length,
            version: Version::HTTP_11,
            sent: Some(sent),
            controls,
        };
        for _ in 0..3 {
            assert!(half.frame().now_or_never().is_none());
        }
    }
}
