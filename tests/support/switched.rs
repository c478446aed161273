//! An upstream that answers, hangs or breaks as a test switches it, for all requests or for those
//! of one path.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir::clock::Clock;

/// The answer to everything: a known budget, good for ten minutes, and stale for an hour.
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
    X-RateLimit-Limit: 5000\r\nX-RateLimit-Remaining: 4000\r\nX-RateLimit-Used: 1000\r\n\
    X-RateLimit-Reset: 1800003600\r\nX-RateLimit-Resource: core\r\n\r\n{}";
const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";

/// The request that costs nothing.
const FREE: &str = "GET /rate_limit";

/// The response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Answers,
    /// Answers after this time.
    Late(Duration),
    /// Never answers, and never closes.
    Hangs,
    /// The same but for `GET /rate_limit`.
    FreeAnswers,
    /// Sends a head and a part of the body, and then nothing.
    StallsInBody,
    /// Closes the connection.
    Closes,
}

struct State {
    mode: Mode,
    /// Requests for this path hang in every mode.
    hanging_path: Option<&'static str>,
    /// Method and path of each request.
    requests: Vec<String>,
}

/// The running upstream.
pub struct Switched {
    url: String,
    state: Arc<Mutex<State>>,
}

impl Switched {
    pub async fn start(mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = State { mode, hanging_path: None, requests: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state }
    }

    /// The base URL.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Answers later requests in this way. Those that hang go on hanging.
    pub fn switch(&self, mode: Mode) {
        self.state.lock().mode = mode;
    }

    /// Lets requests for this path hang in every mode.
    pub fn hang_path(&self, path: &'static str) {
        self.state.lock().hanging_path = Some(path);
    }

    /// Requests so far, without the gateway's probes.
    pub fn requests(&self) -> usize {
        self.state.lock().requests.iter().filter(|request| !is_probe(request)).count()
    }

    /// The gateway's probes so far.
    pub fn probes(&self) -> usize {
        self.state.lock().requests.iter().filter(|request| is_probe(request)).count()
    }
}

fn is_probe(request: &str) -> bool {
    [FREE, "GET /"].contains(&request)
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut buffer = [0; 16 * 1024];
    loop {
        // The requests of these tests arrive in one piece.
        let Ok(length @ 1..) = stream.read(&mut buffer).await else { return };
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let mut words = text.split(' ');
        let request = format!("{} {}", words.next().unwrap(), words.next().unwrap_or_default());
        let mode = {
            let mut state = state.lock();
            state.requests.push(request.clone());
            let hangs = state.hanging_path.is_some_and(|path| request.ends_with(path));
            match state.mode {
                _ if hangs => Mode::Hangs,
                Mode::FreeAnswers if request == FREE => Mode::Answers,
                Mode::FreeAnswers => Mode::Hangs,
                mode => mode,
            }
        };
        let text = match mode {
            Mode::Answers => ANSWER,
            Mode::Late(after) => {
                let clock = Clock::system();
                clock.reach(clock.now() + after).await;
                ANSWER
            }
            Mode::StallsInBody => HEAD,
            Mode::Hangs | Mode::FreeAnswers => "",
            Mode::Closes => return,
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        if !matches!(mode, Mode::Answers | Mode::Late(_)) {
            return std::future::pending().await;
        }
    }
}
