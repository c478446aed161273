//! A name server whose records a test changes (RFC 1035), and an upstream with several addresses
//! of loopback.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// The answer to each question.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The addresses of both families, with this age in seconds.
    Addresses(Vec<IpAddr>, u32),
    NoSuchName,
    Failure,
    /// None at all.
    Silence,
}

/// The running server.
pub struct NameServer {
    pub address: SocketAddr,
    state: Arc<Mutex<(Answer, usize)>>,
}

impl NameServer {
    pub async fn start(answer: Answer) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let state = Arc::new(Mutex::new((answer, 0)));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question).await {
                let answer = {
                    let mut state = shared.lock();
                    state.1 += 1;
                    state.0.clone()
                };
                if let Some(reply) = reply(&question[..length], &answer) {
                    socket.send_to(&reply, from).await.unwrap();
                }
            }
        });
        Self { address, state }
    }

    /// Answers later questions in this way.
    pub fn change(&self, answer: Answer) {
        self.state.lock().0 = answer;
    }

    /// The number of questions so far. Each family has its own.
    pub fn questions(&self) -> usize {
        self.state.lock().1
    }

    /// The keys of `[upstream]` that make a gateway ask here.
    pub fn keys(&self) -> String {
        format!("name_servers = [\"{}\"]", self.address)
    }
}

fn reply(question: &[u8], answer: &Answer) -> Option<Vec<u8>> {
    // The name ends with an empty label; type and class follow.
    let name_end = 12 + question[12..].iter().position(|byte| *byte == 0)? + 1;
    let asked = &question[12..name_end + 4];
    let kind = question[name_end + 1];
    let (code, addresses, age) = match answer {
        Answer::Addresses(addresses, age) => (0, addresses.as_slice(), *age),
        Answer::NoSuchName => (3, [].as_slice(), 0),
        Answer::Failure => (2, [].as_slice(), 0),
        Answer::Silence => return None,
    };
    let data: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(address), 1) => Some(address.octets().to_vec()),
            (IpAddr::V6(address), 28) => Some(address.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut reply = question[..2].to_vec();
    // A response to a recursive question, with this code and number of answers.
    reply.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(data.len()).unwrap(), 0, 0, 0, 0]);
    reply.extend(asked);
    for data in data {
        // The name of the question.
        reply.extend([0xc0, 12, 0, kind, 0, 1]);
        reply.extend(age.to_be_bytes());
        reply.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        reply.extend(data);
    }
    Some(reply)
}

/// An upstream that listens at several addresses with one port. Its answers name the address.
pub struct ManyAddresses {
    pub port: u16,
    open: Mutex<HashMap<IpAddr, JoinHandle<()>>>,
}

impl ManyAddresses {
    /// Listens at each address. An answer ends its connection unless `keeps` is set.
    pub async fn start(addresses: &[&str], keeps: bool) -> Self {
        loop {
            let mut listeners = Vec::new();
            let mut port = 0;
            for address in addresses {
                let address: IpAddr = address.parse().unwrap();
                let Ok(listener) = TcpListener::bind((address, port)).await else { break };
                port = listener.local_addr().unwrap().port();
                listeners.push((address, listener));
            }
            // Another process may have the port at one of them.
            if listeners.len() == addresses.len() {
                let open = listeners
                    .into_iter()
                    .map(|(address, listener)| {
                        (address, tokio::spawn(serve(address, listener, keeps)))
                    })
                    .collect();
                return Self { port, open: Mutex::new(open) };
            }
        }
    }

    /// Refuses connections at this address from now on, and ends those that it has.
    pub async fn close(&self, address: &str) {
        let task = self.open.lock().remove(&address.parse::<IpAddr>().unwrap()).unwrap();
        task.abort();
        task.await.unwrap_err();
    }
}

async fn serve(address: IpAddr, listener: TcpListener, keeps: bool) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(address, stream, keeps));
    }
}

async fn answer(address: IpAddr, mut stream: TcpStream, keeps: bool) {
    let body = format!("{{\"at\":\"{address}\"}}");
    let end = if keeps { "" } else { "Connection: close\r\n" };
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{end}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut head = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut head).await {
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if stream.write_all(answer.as_bytes()).await.is_err() || !keeps {
                return;
            }
        }
    }
}
