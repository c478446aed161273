//! A connection of two gateway processes: lines of JSON, and descriptors beside them (unix(7),
//! `SCM_RIGHTS`). The peer must run as the same user, or as root.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::decision::Spent;
use crate::gateway::HandedKeys;

/// Most descriptors of one message. Chosen here: the system passes 253 at once.
pub const DESCRIPTORS_MAX: usize = 128;
/// Longest message. Chosen here: what thousands of accounts spend in seconds is shorter.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Version of the messages.
pub const VERSION: u32 = 2;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From the new process, first.
    Hello { version: u32 },
    /// Another process takes over already, or this one has not finished its own takeover.
    Busy,
    /// The listening sockets, one descriptor each.
    Sockets(Vec<PassedSocket>),
    /// The new process asks for the snapshot.
    AskSnapshot,
    /// The file with the snapshot; `None` if it cannot be written.
    Snapshot(Option<PathBuf>),
    /// The new process accepts from now on, on the sockets of these names too.
    Ready { kept: Vec<String> },
    /// The old process stops accepting, and ends within this time. It has writes of these clients,
    /// and has spent this since the snapshot. It has fetched these keys of issuers of tokens, which
    /// older processes do not say.
    Yours {
        within_ms: u64,
        clients: Vec<String>,
        spent: Spent,
        #[serde(default)]
        issuer_keys: Vec<HandedKeys>,
    },
    /// The old process has spent this since its last message of the kind.
    Spent(Spent),
    /// The old process has let go of the file of writes.
    StoreFree,
    /// The old process ends. True if answers were invalidated since it wrote the snapshot.
    Over { has_changed: bool },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PassedSocket {
    pub name: String,
    pub is_activated: bool,
}

pub struct Channel {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Channel {
    /// Fails if another user is at the other end.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let (peer, own) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
        if peer != own && peer != 0 {
            let problem = format!("the process at the other end runs as user {peer}, not {own}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        Ok(Self { stream, received: Vec::new(), descriptors: Vec::new() })
    }

    /// Sends a message with descriptors, at most [`DESCRIPTORS_MAX`].
    pub async fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(message)?;
        bytes.push(b'\n');
        let (mut sent, mut passed) = (0, descriptors);
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            let once = || send_once(&self.stream, rest, passed);
            sent += self.stream.async_io(Interest::WRITABLE, once).await?;
            // They travel with the first byte.
            passed = &[];
        }
        Ok(())
    }

    /// Receives the next message. Fails with `UnexpectedEof` at the end of the other process.
    /// Dropping the future loses nothing.
    pub async fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.received) {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            if self.received.len() > MESSAGE_BYTES_MAX {
                return Err(io::Error::other("the message is too long"));
            }
            let receive = || receive_once(&self.stream);
            let (bytes, descriptors) = self.stream.async_io(Interest::READABLE, receive).await?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.extend(bytes);
            self.descriptors.extend(descriptors);
            if self.descriptors.len() > DESCRIPTORS_MAX {
                return Err(io::Error::other("too many descriptors were passed"));
            }
        }
    }

    /// The same with a deadline.
    pub async fn receive_within(&mut self, within: Duration) -> io::Result<Message> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the other process does not answer");
        timeout(within, self.receive()).await.map_err(late)?
    }

    /// Takes the descriptors that came with the messages so far.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }
}

fn send_once(stream: &UnixStream, bytes: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !passed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::Error::other("too many descriptors to pass"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty())?)
}

fn receive_once(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // No child of this process may inherit them.
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; 4096];
    let length = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?.bytes;
    bytes.truncate(length);
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok((bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd as _;

    use super::*;

    #[tokio::test]
    async fn a_passed_socket_is_the_same_socket() {
        let (here, there) = UnixStream::pair().unwrap();
        let (here, mut there) = (Channel::new(here).unwrap(), Channel::new(there).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = "x".repeat(20_000);
        let sockets = vec![PassedSocket { name: name.clone(), is_activated: false }];
        let message = Message::Sockets(sockets);
        let passed = [listener.as_fd()];
        let (sent, received) = tokio::join!(here.send(&message, &passed), there.receive());
        sent.unwrap();
        let Message::Sockets(sockets) = received.unwrap() else { panic!("another message") };
        assert_eq!(sockets[0].name, name);
        let [descriptor] = <[OwnedFd; 1]>::try_from(there.take_descriptors()).unwrap();
        let same = TcpListener::from(descriptor);
        assert_eq!(same.local_addr().unwrap(), listener.local_addr().unwrap());
        here.send(&Message::Busy, &[]).await.unwrap();
        assert!(matches!(there.receive().await.unwrap(), Message::Busy));
        drop(here);
        assert_eq!(there.receive().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
