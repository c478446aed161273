//! The accept loop of a listener. Only one connection waits here for its place: what is too much
//! stays in the system's backlog, where it costs no memory of the gateway.
//!
//! Left out: the choice of connections that make room (`connections/`), and the drain
//! (`listen.rs`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;

use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::{GetSocketDigest as _, SocketDigest};
use pingora::server::ShutdownWatch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::yield_now;

use crate::gateway::connections::slot::Listener as Kind;
use crate::gateway::connections::{Connections, Place, descriptors};
use crate::gateway::server::handler::Frontend;
use crate::gateway::server::sockets::Socket;

/// Connections that are accepted before others have a turn. Chosen here: some hundred microseconds.
const ACCEPTS_OF_A_TURN: u64 = 4;

/// A listening socket in non-blocking mode, and the application behind it. It stays open until its
/// backlog is served.
pub struct Listener {
    /// Its name for another process.
    pub name: String,
    /// True if another process keeps the socket open: its backlog is for that one.
    pub is_activated: bool,
    pub socket: Socket,
    pub kind: Kind,
    pub front: Arc<Frontend>,
}

impl Socket {
    /// Takes a connection that the system has established; fails if there is none.
    pub fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                of_tcp(TcpStream::from_std(stream)?, peer)
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                with_digest(UnixStream::from_std(stream)?.into(), None)
            }
        })
    }

    /// True if the system holds a connection that waits to be accepted.
    fn has_waiting(&self) -> bool {
        let mut descriptors = [PollFd::new(self, PollFlags::IN)];
        // A failed look is no reason to end a connection.
        poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// The second handle of a socket, by which the runtime accepts.
enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    fn of(socket: &Socket) -> io::Result<Self> {
        Ok(match socket {
            Socket::Tcp(listener) => {
                Self::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?)
            }
            Socket::Unix(listener) => {
                Self::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?)
            }
        })
    }

    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                of_tcp(stream, peer)
            }
            Self::Unix(listener) => with_digest(listener.accept().await?.0.into(), None),
        })
    }
}

/// The framework gives such streams no buffers; those of the gateway suffice
/// (src/gateway/README.md, "The framework").
fn of_tcp(stream: TcpStream, peer: SocketAddr) -> Stream {
    with_digest(stream.into(), Some(PeerAddress::Inet(peer)))
}

/// Gives a stream the address of its other end, which the framework would ask the system for.
fn with_digest(mut stream: Stream, peer: Option<PeerAddress>) -> Stream {
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    // A new digest has no address yet.
    let _ = digest.peer_addr.set(peer);
    stream.set_socket_digest(digest);
    stream
}

impl Listener {
    /// Registers the socket with the runtime, and accepts until the first of these is true. The
    /// other one tells connections of the gateway's stop.
    pub fn accept_until(
        self: &Arc<Self>,
        connections: Arc<Connections>,
        until: ShutdownWatch,
        stopped: ShutdownWatch,
    ) -> io::Result<impl Future<Output = ()> + use<>> {
        let (accepting, listener) = (Accepting::of(&self.socket)?, Arc::clone(self));
        Ok(async move { listener.accept_all(&accepting, &connections, until, &stopped).await })
    }

    async fn accept_all(
        &self,
        accepting: &Accepting,
        connections: &Arc<Connections>,
        mut until: ShutdownWatch,
        stopped: &ShutdownWatch,
    ) {
        // A closed channel means shutdown too.
        let mut stop = pin!(until.wait_for(|stopped| *stopped));
        for accepts in 1_u64.. {
            let accepted = tokio::select! {
                biased;
                _ = &mut stop => return,
                accepted = accepting.accept() => accepted,
            };
            match accepted {
                Ok(stream) => {
                    // The connection in hand shows that somebody waits. The others stay in the
                    // backlog until this one has its place.
                    let place = tokio::select! {
                        biased;
                        place = connections.place(self.kind) => Some(place),
                        _ = &mut stop => None,
                    };
                    let is_over = place.is_none();
                    let place = place.unwrap_or_else(|| connections.extra_place(self.kind));
                    self.serve(stream, place, stopped);
                    if is_over {
                        return;
                    }
                    if accepts % ACCEPTS_OF_A_TURN == 0 {
                        yield_now().await;
                    }
                }
                Err(error) if descriptors::is_lack(&error) => {
                    // The system looks for a descriptor before it looks for a connection.
                    let has_waiting = self.socket.has_waiting();
                    tokio::select! {
                        biased;
                        _ = &mut stop => return,
                        () = connections.await_descriptor(has_waiting) => {}
                    }
                }
                // That client has left.
                Err(_) => {}
            }
        }
    }

    /// Serves a connection in a task of its own.
    pub fn serve(&self, stream: Stream, place: Place, stopped: &ShutdownWatch) {
        place.accepted();
        let slot = Arc::clone(place.slot());
        let (front, stopped) = (Arc::clone(&self.front), stopped.clone());
        let held = front.hold();
        let task = tokio::spawn(async move {
            let _held = held;
            front.serve_connection(stream, place, &stopped).await;
        });
        slot.serve_by(task.abort_handle());
    }
}
