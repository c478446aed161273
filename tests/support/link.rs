//! A link between gateways and a server on loopback, such as Redis, which a test cuts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The way of bytes through a link, on present connections and on later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Open,
    /// Each connection ends within its next reply that is longer than this: so many bytes of it
    /// arrive.
    CutsReplies(usize),
    /// Each connection ends at once.
    Closed,
    /// Connections stay, and nothing arrives.
    Silent,
    /// A connection is silent from the first piece on that is longer than this.
    HoldsLong(usize),
}

/// The running link.
pub struct Link {
    port: u16,
    passage: watch::Sender<Passage>,
    cuts: Arc<AtomicUsize>,
}

impl Link {
    /// An open link to this port of loopback.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (passage, at_present) = watch::channel(Passage::Open);
        let cuts = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&cuts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connect(stream, to, at_present.clone(), Arc::clone(&counted)));
            }
        });
        Self { port, passage, cuts }
    }

    /// Address for a config.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, passage: Passage) {
        self.passage.send_replace(passage);
    }

    /// Connections that have ended within a reply so far.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// Passes bytes on, until one side ends or the link cuts the connection.
async fn connect(
    client: TcpStream,
    to: u16,
    mut passage: watch::Receiver<Passage>,
    cuts: Arc<AtomicUsize>,
) {
    if *passage.borrow_and_update() == Passage::Closed {
        return;
    }
    let Ok(server) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, to))).await else {
        return;
    };
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let (asked, answered) = (passage.clone(), passage.clone());
    tokio::select! {
        () = pass(from_client, to_server, asked, None) => {}
        () = pass(from_server, to_client, answered, Some(cuts)) => {}
        _ = passage.wait_for(|passage| *passage == Passage::Closed) => {}
    }
}

/// Passes bytes on in one direction. `cuts`: they are replies, which may be cut.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut passage: watch::Receiver<Passage>,
    cuts: Option<Arc<AtomicUsize>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        let Ok(now) = passage.wait_for(|passage| *passage != Passage::Silent).await.map(|now| *now)
        else {
            return;
        };
        if matches!(now, Passage::HoldsLong(most) if length > most)
            && passage.wait_for(|later| *later != now).await.is_err()
        {
            return;
        }
        match (now, &cuts) {
            (Passage::CutsReplies(at), Some(cuts)) if at < length => {
                let _ = to.write_all(&buffer[..at]).await;
                cuts.fetch_add(1, Ordering::SeqCst);
                return;
            }
            _ if to.write_all(&buffer[..length]).await.is_err() => return,
            _ => {}
        }
    }
}
