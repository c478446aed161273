//! The bots: what each asks next, and when.
//!
//! Two sorts. Those with work of their own (pollers, crawlers, commenters, bursts) keep their
//! rhythm whatever becomes of their requests, so that what is refused shows what is missing. Those
//! that saturate have the next request ready at once and, when refused, come back when they were
//! retry_at to, as client libraries do.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::clock::Timestamp;
use crate::random::Rng;

/// Issues of the seed world's first repository that take turns: one that gathers thousands of
/// comments would be slow to show.
const ISSUES: u64 = 60;
/// People and organisations of the seed world: short answers, of two endpoints.
const SHORT: [&str; 6] =
    ["/users/ada", "/orgs/acme", "/users/ben", "/orgs/globex", "/users/cleo", "/orgs/acme"];
/// What pollers look at: lists, and their own notifications.
const POLLED: [&str; 4] = [
    "/repos/acme/widgets/issues?per_page=5",
    "/notifications?per_page=5",
    "/repos/acme/widgets/labels?per_page=5",
    "/repos/acme/widgets/issues/1/comments?per_page=5",
];

/// What a bot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// Asks for the same lists again and again.
    Poll { every: Duration },
    /// Goes from one thing to the next.
    Crawl { pause: Duration },
    /// Comments on issues.
    Comment { every: Duration },
    /// Wants many things at once, now and then.
    Burst { size: u32, every: Duration },
    /// Another read of one of two endpoints, always.
    ReadAnything,
    /// Another read of one endpoint, always.
    ReadOneEndpoint,
    /// So many reads in hand, always.
    KeepWaiting { in_hand: u32 },
    /// Another issue or comment, always.
    Create,
    /// Another GraphQL query, always.
    Query,
    /// Another installation token, always.
    Mint,
}

/// A request of a bot.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub body: Bytes,
    /// After how long it goes away unanswered, if it has less patience than its client's requests
    /// may wait.
    pub patience: Option<Duration>,
}

/// One bot.
#[derive(Debug)]
pub(super) struct Bot {
    /// Its client's place in the plan.
    pub client: usize,
    /// Requests that are not answered yet.
    pub pending: u32,
    /// The latest time that its refusals named.
    pub retry_at: Timestamp,
    habit: Habit,
    number: u64,
    turn: u64,
    dice: Rng,
}

impl Bot {
    pub fn new(number: u32, client: usize, habit: Habit, seed: u64) -> Self {
        let dice = Rng::for_purpose(seed, 1_000 + u64::from(number));
        Self {
            client,
            pending: 0,
            retry_at: Timestamp::EPOCH,
            habit,
            number: number.into(),
            turn: 0,
            dice,
        }
    }

    /// When it asks for the first time, after the beginning.
    pub fn first(&mut self) -> Duration {
        match self.habit {
            Habit::Poll { every } | Habit::Comment { every } | Habit::Burst { every, .. } => {
                self.about(every, 0, 100)
            }
            _ => Duration::from_millis(self.dice.below(2_000)),
        }
    }

    /// What it asks now.
    pub fn asks(&mut self, installation: u64) -> Vec<Ask> {
        let several = match self.habit {
            Habit::Burst { size, .. } => size,
            Habit::KeepWaiting { in_hand } => in_hand.saturating_sub(self.pending),
            _ => 1,
        };
        (0..several).map(|_| self.ask(installation)).collect()
    }

    /// When it asks again, once a request has been answered; `None`: not because of this one.
    pub fn again(&mut self, now: Timestamp) -> Option<Timestamp> {
        let retry_at = self.retry_at;
        let rests = match self.habit {
            Habit::KeepWaiting { .. } => return Some(now.max(retry_at)),
            _ if self.pending > 0 => return None,
            Habit::Poll { every } | Habit::Comment { every } | Habit::Burst { every, .. } => {
                self.about(every, 90, 110)
            }
            Habit::Crawl { pause } => self.about(pause, 50, 150),
            // Back when they were retry_at to, not all in the same moment.
            _ if retry_at > now => {
                return Some(retry_at + Duration::from_millis(self.dice.below(1_000)));
            }
            _ => Duration::from_millis(1),
        };
        Some(now + rests)
    }

    fn ask(&mut self, installation: u64) -> Ask {
        self.turn += 1;
        let (number, turn) = (self.number, self.turn);
        let mut patience = None;
        let (method, path, body) = match self.habit {
            Habit::Poll { .. } => {
                (Method::GET, pick(&POLLED, number + turn).to_owned(), String::new())
            }
            Habit::Crawl { .. } => {
                let issue = 1 + (number * 7 + turn) % ISSUES;
                (
                    Method::GET,
                    format!("/repos/acme/widgets/issues/{issue}?of={number}.{turn}"),
                    String::new(),
                )
            }
            Habit::Comment { .. } => self.comment(),
            Habit::Burst { .. } => {
                patience = self
                    .dice
                    .percent(5.0)
                    .then(|| Duration::from_millis(self.dice.between(20, 5_000)));
                (Method::GET, format!("{}?of={number}.{turn}", pick(&SHORT, turn)), String::new())
            }
            Habit::ReadAnything => (
                Method::GET,
                format!("{}?of={number}.{turn}", pick(&SHORT, number + turn)),
                String::new(),
            ),
            Habit::ReadOneEndpoint | Habit::KeepWaiting { .. } => {
                (Method::GET, format!("/users/ada?of={number}.{turn}"), String::new())
            }
            Habit::Create if turn.is_multiple_of(2) => self.comment(),
            Habit::Create => (
                Method::POST,
                "/repos/acme/widgets/issues".to_owned(),
                format!("{{\"title\":\"number {turn} of bot {number}\"}}"),
            ),
            Habit::Query => (
                Method::POST,
                "/graphql".to_owned(),
                "{\"query\":\"{ viewer { login } }\"}".to_owned(),
            ),
            Habit::Mint => (
                Method::POST,
                format!("/app/installations/{installation}/access_tokens"),
                "{}".to_owned(),
            ),
        };
        Ask { method, path, body: body.into(), patience }
    }

    fn comment(&mut self) -> (Method, String, String) {
        let issue = 1 + self.dice.below(ISSUES);
        let body = format!("{{\"body\":\"number {} of bot {}\"}}", self.turn, self.number);
        (Method::POST, format!("/repos/acme/widgets/issues/{issue}/comments"), body)
    }

    /// Between so many and so many hundredths of a length of time.
    fn about(&mut self, length: Duration, least: u64, most: u64) -> Duration {
        let hundredths = self.dice.between(least, most);
        Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(0) * hundredths / 100)
    }
}

fn pick<'a>(from: &[&'a str], turn: u64) -> &'a str {
    let place = usize::try_from(turn).unwrap_or(0) % from.len().max(1);
    from.get(place).copied().unwrap_or("/")
}
