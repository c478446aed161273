//! The sample bots: pollers, crawlers, watchers and commenters, as in a company. They know nothing
//! of limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::stage::Stage;

/// Pause of a bot between two rounds.
const PAUSE: Duration = Duration::from_millis(700);
/// Timeout of a bot: the gateway holds a request for at most a minute, and then answers.
const ANSWER_MAX: Duration = Duration::from_secs(90);

/// Results of all bots together.
#[derive(Default)]
pub struct Counters {
    pub requests: AtomicU64,
    pub reads: AtomicU64,
    /// GETs that spent no budget (`X-From-Cache: 1`).
    pub free_reads: AtomicU64,
    /// Writes answered 201.
    pub writes: AtomicU64,
    /// Requests that the gateway refused for a limit.
    pub refused: AtomicU64,
    /// Unexpected answers, and requests without an answer.
    pub failures: AtomicU64,
}

/// A gateway, as the bots see it.
pub struct Entrance {
    base: String,
    pub requests: AtomicU64,
    /// As in [`Counters`].
    pub free_reads: AtomicU64,
}

pub struct Bots {
    pub counters: Arc<Counters>,
    pub entrances: Arc<[Entrance]>,
    stopped: Arc<AtomicBool>,
    members: Vec<Bot>,
}

pub struct Running(JoinSet<()>);

#[derive(Clone)]
struct Bot {
    number: usize,
    key: SecretString,
    entrances: Arc<[Entrance]>,
    /// Rounds of all bots so far.
    rounds: Arc<AtomicUsize>,
    repositories: Vec<String>,
    http: Client<HttpConnector, Full<Bytes>>,
    counters: Arc<Counters>,
    stopped: Arc<AtomicBool>,
    /// Comments answered 201.
    commented: Arc<AtomicU64>,
}

/// The bots' comments as the emulator stores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenComments {
    /// Comments answered 201.
    pub confirmed: u64,
    /// Comments among them that exist exactly once.
    pub once: u64,
    /// Comments before an earlier one of the same bot.
    pub out_of_order: u64,
    /// Comments that exist more than once.
    pub doubled: u64,
}

struct BotResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Bots {
    /// Creates one bot per key of the stage for the gateways at these addresses, of which there is
    /// at least one.
    pub fn new(addresses: &[SocketAddr], stage: &Stage) -> Self {
        let entrance = |address: &SocketAddr| Entrance {
            base: format!("http://{address}"),
            requests: AtomicU64::default(),
            free_reads: AtomicU64::default(),
        };
        let entrances: Arc<[Entrance]> = addresses.iter().map(entrance).collect();
        let rounds = Arc::new(AtomicUsize::default());
        let (counters, stopped) = (Arc::new(Counters::default()), Arc::new(AtomicBool::new(false)));
        let http = Client::builder(TokioExecutor::new()).build_http();
        let bot = |(index, key): (usize, &SecretString)| Bot {
            number: index + 1,
            key: key.clone(),
            entrances: Arc::clone(&entrances),
            rounds: Arc::clone(&rounds),
            repositories: stage.repositories.clone(),
            http: http.clone(),
            counters: Arc::clone(&counters),
            stopped: Arc::clone(&stopped),
            commented: Arc::default(),
        };
        let members = stage.bot_keys.iter().enumerate().map(bot).collect();
        Self { counters, entrances, stopped, members }
    }

    pub fn start(&self) -> Running {
        let mut running = JoinSet::new();
        for bot in self.members.iter().cloned() {
            running.spawn(async move { bot.run().await });
        }
        Running(running)
    }

    /// Stops the bots after their current requests.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Compares the answers to the bots with the emulator's contents.
    pub fn truth(&self, stage: &Stage) -> WrittenComments {
        let mut truth = WrittenComments::default();
        for bot in self.members.iter().filter(|bot| bot.is_commenter()) {
            let numbers = bot.numbers_of(&all_pages(stage, &bot.comments_path()));
            let confirmed = bot.commented.load(Ordering::Relaxed);
            truth.confirmed += confirmed;
            truth.out_of_order +=
                numbers.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
            for number in 1..=confirmed {
                match numbers.iter().filter(|found| **found == number).count() {
                    1 => truth.once += 1,
                    0 => {}
                    _ => truth.doubled += 1,
                }
            }
        }
        truth
    }
}

impl Running {
    pub async fn finished(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

impl Bot {
    async fn run(self) {
        // Real bots do not start at the same instant.
        sleep(Duration::from_millis(37 * (self.number as u64 % 20))).await;
        let mut round = 0;
        while !self.is_stopped() {
            // Each round goes to the next gateway, as by a load balancer.
            let turn = self.rounds.fetch_add(1, Ordering::Relaxed) % self.entrances.len();
            let entrance = &self.entrances[turn];
            match self.number % 4 {
                0 => self.poll(entrance).await,
                1 => self.crawl(entrance, round).await,
                2 => self.watch(entrance, round).await,
                _ => self.comment(entrance).await,
            }
            round += 1;
            sleep(PAUSE).await;
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn is_commenter(&self) -> bool {
        self.number % 4 == 3
    }

    fn repository(&self, round: usize) -> &str {
        &self.repositories[(self.number + round) % self.repositories.len()]
    }

    /// Polls for news.
    async fn poll(&self, entrance: &Entrance) {
        self.get(entrance, "/notifications").await;
        let repository = self.repository(0);
        let path = format!("/repos/{repository}/issues?state=all&sort=updated&per_page=30");
        self.get(entrance, &path).await;
    }

    /// Follows a list to its end.
    async fn crawl(&self, entrance: &Entrance, round: usize) {
        let (base, repository) = (&entrance.base, self.repository(round));
        let mut next = Some(format!("{base}/repos/{repository}/issues?state=all&per_page=10"));
        while let Some(url) = next.take() {
            if self.is_stopped() {
                return;
            }
            let answer = self.send(entrance, Method::GET, &url, Bytes::new()).await;
            next = answer.and_then(|answer| next_page(&answer.headers));
        }
    }

    /// Reads the same few resources all the time.
    async fn watch(&self, entrance: &Entrance, round: usize) {
        let repository = self.repository(round / 4);
        for path in ["", "/labels", "/releases", "/pulls"] {
            self.get(entrance, &format!("/repos/{repository}{path}")).await;
        }
    }

    async fn comment(&self, entrance: &Entrance) {
        let number = self.commented.load(Ordering::Relaxed) + 1;
        let body = json!({ "body": format!("bot-{} says {number}", self.number) }).to_string();
        let url = format!("{}{}", entrance.base, self.comments_path());
        let answer = self.send(entrance, Method::POST, &url, body.into()).await;
        if answer.is_some_and(|answer| answer.status == StatusCode::CREATED) {
            self.commented.store(number, Ordering::Relaxed);
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.get(entrance, &self.comments_path()).await;
    }

    fn comments_path(&self) -> String {
        format!("/repos/{}/issues/1/comments", self.repository(0))
    }

    /// Returns the numbers of this bot's own comments in their stored order.
    fn numbers_of(&self, comments: &[Value]) -> Vec<u64> {
        let own = format!("bot-{} says ", self.number);
        comments
            .iter()
            .filter_map(|comment| comment["body"].as_str()?.strip_prefix(&own)?.parse().ok())
            .collect()
    }

    async fn get(&self, entrance: &Entrance, path: &str) {
        let url = format!("{}{path}", entrance.base);
        self.send(entrance, Method::GET, &url, Bytes::new()).await;
    }

    async fn send(
        &self,
        entrance: &Entrance,
        method: Method,
        url: &str,
        body: Bytes,
    ) -> Option<BotResponse> {
        let is_read = method == Method::GET;
        let answer = timeout(ANSWER_MAX, self.exchange(method, url, body)).await.ok().flatten();
        self.count(entrance, is_read, answer.as_ref());
        answer
    }

    async fn exchange(&self, method: Method, url: &str, body: Bytes) -> Option<BotResponse> {
        let authorization = format!("Bearer {}", self.key.expose_secret());
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(header::AUTHORIZATION, authorization)
            .body(Full::new(body))
            .ok()?;
        let response = self.http.request(request).await.ok()?;
        let (head, body) = response.into_parts();
        Some(BotResponse {
            status: head.status,
            headers: head.headers,
            body: body.collect().await.ok()?.to_bytes(),
        })
    }

    fn count(&self, entrance: &Entrance, is_read: bool, answer: Option<&BotResponse>) {
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let Some(answer) = answer else {
            add(&self.counters.failures);
            return;
        };
        add(&self.counters.requests);
        add(&entrance.requests);
        if is_read {
            add(&self.counters.reads);
        }
        if is_read && answer.headers.contains_key("x-from-cache") {
            add(&self.counters.free_reads);
            add(&entrance.free_reads);
        }
        let names_time = answer.headers.contains_key(header::RETRY_AFTER);
        if answer.status == StatusCode::FORBIDDEN && names_time {
            add(&self.counters.refused);
        } else if !answer.status.is_success() {
            add(&self.counters.failures);
            tracing::warn!(bot = self.number, status = answer.status.as_u16(), body = %String::from_utf8_lossy(&answer.body).chars().take(200).collect::<String>(), "a bot got an answer that it did not expect");
        }
    }
}

pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Returns the target of `rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let link = headers.get(header::LINK)?.to_str().ok()?;
    let entry = link.split(", ").find(|entry| entry.contains("rel=\"next\""))?;
    Some(entry.split_once('<')?.1.split_once('>')?.0.to_owned())
}

fn all_pages(stage: &Stage, path: &str) -> Vec<Value> {
    let page = |number: u32| {
        let page = stage.inspect(&format!("{path}?per_page=100&page={number}"));
        page.as_array().cloned().unwrap_or_default()
    };
    (1..).map(page).take_while(|items| !items.is_empty()).flatten().collect()
}
