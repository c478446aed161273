//! An upstream that misbehaves in one way, byte by byte, and counts the requests it receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Setup, World};

/// The response to a request, once its head has been read.
#[derive(Clone, Copy)]
pub enum Behaviour {
    /// Closes the connection without a byte.
    Close,
    /// Never answers.
    Silence,
    /// Sends this and closes.
    Sends(&'static str),
    /// Sends this for every request of a connection.
    Keeps(&'static str),
    /// Sends this for the first request of a connection and closes on the second.
    DiesIdle(&'static str),
}

/// The running upstream.
pub struct Broken {
    url: String,
    requests: Arc<AtomicUsize>,
    is_silent: Arc<AtomicBool>,
}

impl Broken {
    pub async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let is_silent = Arc::<AtomicBool>::default();
        let silent = Arc::clone(&is_silent);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let behaviour =
                    if silent.load(Ordering::SeqCst) { Behaviour::Silence } else { behaviour };
                tokio::spawn(answer(stream, behaviour, Arc::clone(&counter)));
            }
        });
        Self { url, requests, is_silent }
    }

    /// Leaves every later connection unanswered.
    pub fn stops_answering(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }

    /// A gateway in front of it with unspaced writes and two attempts.
    pub async fn world(&self) -> World {
        self.setup().unspaced_writes().writes("max_attempts = 2").start().await
    }

    /// The setup of such a gateway, for a test with its own config.
    pub fn setup(&self) -> Setup {
        Setup::new().upstream(self.url.clone()).upstream_keys("response_timeout = \"300ms\"")
    }

    /// The base URL.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Requests received so far.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn answer(mut stream: TcpStream, behaviour: Behaviour, counter: Arc<AtomicUsize>) {
    let mut buffer = [0; 16 * 1024];
    let mut seen = 0;
    loop {
        if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
            return;
        }
        counter.fetch_add(1, Ordering::SeqCst);
        seen += 1;
        let (text, keeps) = match behaviour {
            Behaviour::Close => ("", false),
            Behaviour::Silence => return std::future::pending().await,
            Behaviour::Sends(text) => (text, false),
            Behaviour::Keeps(text) => (text, true),
            Behaviour::DiesIdle(text) => (if seen == 1 { text } else { "" }, seen == 1),
        };
        if stream.write_all(text.as_bytes()).await.is_err() || !keeps {
            return;
        }
    }
}
