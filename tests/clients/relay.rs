//! A relay between a library and the gateway that forwards writes one by one, each once the gateway
//! holds the previous one. So the test knows the gateway's order of arrival for concurrent writes.
//!
//! It understands the HTTP/1.1 of the libraries: bodies with a Content-Length.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use weir::gateway::Gateway;

use super::virtual_time::{LONGEST_WAIT, VirtualTime};

/// A relay that lives as long as its gateway's runtime.
pub struct Relay {
    pub address: String,
    queue: Arc<WriteQueue>,
}

struct WriteQueue {
    gateway: Arc<Gateway>,
    /// Held by the connection whose write is forwarded.
    turn: tokio::sync::Mutex<()>,
    /// The bodies of all writes in their order.
    received: Mutex<Vec<String>>,
}

impl Relay {
    /// Starts in front of this gateway. None of its writes may end before [`Relay::all_received`]
    /// returns.
    pub fn start(virtual_time: &VirtualTime) -> Self {
        let queue = Arc::new(WriteQueue {
            gateway: Arc::clone(&virtual_time.gateway),
            turn: tokio::sync::Mutex::default(),
            received: Mutex::default(),
        });
        let listener = virtual_time
            .runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let (upstream, shared) = (virtual_time.address().to_owned(), Arc::clone(&queue));
        virtual_time.runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, queue) = (upstream.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    // Either end may close the connection.
                    let _ = queue.pass_on(client, &upstream).await;
                });
            }
        });
        Self { address, queue }
    }

    /// Waits until the gateway holds this many writes. Returns their bodies in the order of
    /// arrival.
    pub async fn all_received(&self, count: usize) -> Vec<String> {
        let received = async {
            while self.queue.received.lock().len() < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONGEST_WAIT, received).await.expect("the clients send their writes");
        self.queue.received.lock().clone()
    }
}

impl WriteQueue {
    async fn pass_on(&self, client: TcpStream, gateway: &str) -> io::Result<()> {
        let (mut incoming, mut answers) = client.into_split();
        let (mut answered, mut requests) = TcpStream::connect(gateway).await?.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut answered, &mut answers).await });
        while let Some(request) = read_request(&mut incoming).await? {
            self.let_in(&request, &mut requests).await?;
        }
        requests.shutdown().await
    }

    async fn let_in(&self, request: &Whole, requests: &mut OwnedWriteHalf) -> io::Result<()> {
        let _one_at_a_time = self.turn.lock().await;
        requests.write_all(&request.bytes).await?;
        if !request.bytes.starts_with(b"POST ") {
            return Ok(());
        }
        let before = self.received.lock().len();
        let taken = async {
            while self.gateway.writes.turns().writes() <= before {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONGEST_WAIT, taken).await?;
        self.received.lock().push(String::from_utf8_lossy(request.body()).into_owned());
        Ok(())
    }
}

/// A complete request.
struct Whole {
    bytes: Vec<u8>,
    head: usize,
}

impl Whole {
    fn body(&self) -> &[u8] {
        &self.bytes[self.head..]
    }
}

async fn read_request(from: &mut OwnedReadHalf) -> io::Result<Option<Whole>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if from.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        bytes.extend(byte);
    }
    let head = bytes.len();
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let length = text
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next()?.parse().ok())
        .unwrap_or(0);
    bytes.resize(head + length, 0);
    from.read_exact(&mut bytes[head..]).await?;
    Ok(Some(Whole { bytes, head }))
}
