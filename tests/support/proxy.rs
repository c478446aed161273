//! An HTTP proxy between gateway and upstream, which records what it is asked.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The answer to CONNECT.
#[derive(Clone, Debug)]
pub enum Tunnel {
    /// To this address, whatever the request names.
    To(SocketAddr),
    /// To the address that the request names, once the permit is there.
    Held(Arc<Semaphore>),
    /// None: these bytes, and then the end.
    Refused(&'static str),
    /// Nothing at all.
    Silence,
}

/// The running proxy.
pub struct TestProxy {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    tunnel: Arc<Mutex<Tunnel>>,
}

impl TestProxy {
    pub async fn start(tunnel: Tunnel) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let tunnel = Arc::new(Mutex::new(tunnel));
        let (record, how) = (Arc::clone(&heads), Arc::clone(&tunnel));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&record), Arc::clone(&how)));
            }
        });
        Self { address, heads, tunnel }
    }

    /// Answers later requests in this way.
    pub fn change(&self, tunnel: Tunnel) {
        *self.tunnel.lock() = tunnel;
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

async fn serve(mut stream: TcpStream, record: Arc<Mutex<Vec<String>>>, how: Arc<Mutex<Tunnel>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(1..) = stream.read_buf(&mut head).await else { return };
    }
    let head = String::from_utf8(head).unwrap();
    let named = head.split(' ').nth(1).unwrap_or_default().to_owned();
    record.lock().push(head);
    let how = how.lock().clone();
    match how {
        Tunnel::To(address) => open(stream, TcpStream::connect(address).await.unwrap()).await,
        Tunnel::Held(permits) => {
            let _permit = permits.acquire().await.unwrap();
            open(stream, TcpStream::connect(named).await.unwrap()).await;
        }
        Tunnel::Refused(answer) => {
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        Tunnel::Silence => std::future::pending().await,
    }
}

async fn open(mut stream: TcpStream, mut upstream: TcpStream) {
    let answer = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n";
    stream.write_all(answer).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut upstream).await;
}
