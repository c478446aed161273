//! A TLS connection whose client has said `close_notify`. Such a client still reads, until it
//! closes its sending half of the socket (RFC 8446 §6.1). The stream of TLS reads no more, and so
//! cannot notice that: the state of the socket is looked at now and then.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pingora::protocols::SocketDigest;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The time between two looks. Chosen here: a request of a client that has left waits no longer,
/// and a look is one call of the system.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The state of a connection that both sides may write to (RFC 9293 §3.3.2), as Linux counts them.
const ESTABLISHED: u8 = 1;

pub struct HalfClosed {
    socket: Arc<SocketDigest>,
    looks: Interval,
}

impl HalfClosed {
    /// Must run on a tokio runtime.
    pub fn new(socket: Arc<SocketDigest>) -> Self {
        let mut looks = interval(LOOK_PAUSE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket, looks }
    }

    /// Ready when the client has left. At once where the system does not tell.
    pub fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.looks.poll_tick(context));
            if self.socket.tcp_info().is_none_or(|info| info.tcpi_state != ESTABLISHED) {
                return Poll::Ready(());
            }
        }
    }
}
