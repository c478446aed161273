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

use super::write_queue::{Ends, Farewell};
use crate::emulator::faults::wire::{Framing, Wire};

pub type Sent = Either<Full<Bytes>, Half>;

/// The response ends here, because of a fault.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("broken off by a fault that was asked for")]
pub struct Broken;

/// In HTTP/2 a reset affects only the stream; a lost response ends its whole connection.
pub async fn depart(
    response: Response<Bytes>,
    wire: Wire,
    version: Version,
    ends: &Arc<Ends>,
) -> Result<Response<Sent>, Broken> {
    match wire {
        Wire::Whole | Wire::HeldBack { .. } => {
            Ok(response.map(|body| Either::Left(Full::new(body))))
        }
        Wire::Half(framing) => Ok(halve(response, framing, version, ends)),
        // The HTTP/2 implementation resets the stream of a handler that fails.
        Wire::Reset if version == Version::HTTP_2 => Err(Broken),
        Wire::Reset => cut(ends, Farewell::Reset).await,
        Wire::Lost => cut(ends, Farewell::Close).await,
    }
}

async fn cut(ends: &Ends, farewell: Farewell) -> Result<Response<Sent>, Broken> {
    ends.cut(farewell);
    // The connection is dropped, and this future with it.
    std::future::pending().await
}

fn halve(
    mut response: Response<Bytes>,
    framing: Framing,
    version: Version,
    ends: &Arc<Ends>,
) -> Response<Sent> {
    let whole = response.body().len();
    if whole == 0 {
        if version < Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        return response.map(|body| Either::Left(Full::new(body)));
    }
    response.map(|body| {
        let half = body.slice(..whole / 2);
        let sent = Some(ends.sent(half.len() as u64));
        let (kept, whole, ends) = (Some(half), whole as u64, Arc::clone(ends));
        Either::Right(Half { kept, whole, framing, version, sent, ends })
    })
}

#[derive(Debug)]
pub struct Half {
    kept: Option<Bytes>,
    whole: u64,
    framing: Framing,
    version: Version,
    /// `None` once the bytes are sent.
    sent: Option<oneshot::Receiver<()>>,
    ends: Arc<Ends>,
}

impl Body for Half {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(half) = self.kept.take().filter(|half| !half.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(half))));
        }
        // An early end would discard unsent bytes.
        if let Some(sent) = &mut self.sent {
            let _ = ready!(Pin::new(sent).poll(cx));
            self.sent = None;
        }
        if self.version == Version::HTTP_2 {
            return Poll::Ready(Some(Err(Broken)));
        }
        self.ends.cut(Farewell::Close);
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
    async fn a_half_body_that_is_asked_again_after_its_end_waits_for_the_connection_to_go() {
        let (tell, sent) = oneshot::channel();
        tell.send(()).expect("somebody waits");
        let ends = Arc::new(Ends::default());
        let mut half = Half {
            kept: None,
            whole: 4,
            framing: Framing::Length,
            version: Version::HTTP_11,
            sent: Some(sent),
            ends,
        };
        for _ in 0..3 {
            assert!(half.frame().now_or_never().is_none());
        }
    }
}
