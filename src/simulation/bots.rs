//! The bots: their requests and the times of these.
//!
//! Bots with work of their own (pollers, crawlers, commenters, bursts) keep their rhythm whatever
//! happens, so that denials show what is missing. Saturating bots have the next request ready at
//! once. After a denial they return at the named time, like client libraries.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::clock::Timestamp;
use crate::random::Rng;

/// Issues of the seed world's first repository in turn: a single one with thousands of comments
/// would be slow to render.
const ISSUES: u64 = 60;
/// People and organisations of the seed world: short answers, of two endpoints.
const SHORT: [&str; 6] =
    ["/users/ada", "/orgs/acme", "/users/ben", "/orgs/globex", "/users/cleo", "/orgs/acme"];
/// Paths of pollers: lists, and their own notifications.
const POLLED: [&str; 4] = [
    "/repos/acme/widgets/issues?per_page=5",
    "/notifications?per_page=5",
    "/repos/acme/widgets/labels?per_page=5",
    "/repos/acme/widgets/issues/1/comments?per_page=5",
];

/// Behaviour of a bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// Reads the same lists repeatedly.
    Poll { every: Duration },
    /// Reads one path after another.
    Crawl { pause: Duration },
    /// Comments on issues.
    Comment { every: Duration },
    /// Sends many requests at once now and then.
    Burst { size: u32, every: Duration },
    /// Always has a further read of one of two endpoints.
    ReadAnything,
    /// Always has a further read of one endpoint.
    ReadOneEndpoint,
    /// Always has this many reads open.
    KeepWaiting { in_hand: u32 },
    /// Always has a further issue or comment.
    Create,
    /// Always has a further GraphQL query.
    Query,
    /// Always has a further installation token.
    Mint,
}

#[derive(Clone, Debug)]
pub(super) struct BotRequest {
    pub method: Method,
    /// Includes the query.
    pub path: String,
    pub body: Bytes,
    /// Time after which the bot gives up, if shorter than its client's `max_wait`.
    pub patience: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Bot {
    /// Index of its client in the plan.
    pub client: usize,
    /// Unanswered requests.
    pub pending: u32,
    /// The latest time named by its denials.
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

    /// Returns the time of its first request since the beginning.
    pub fn first(&mut self) -> Duration {
        match self.habit {
            Habit::Poll { every } | Habit::Comment { every } | Habit::Burst { every, .. } => {
                self.about(every, 0, 100)
            }
            _ => Duration::from_millis(self.dice.below(2_000)),
        }
    }

    /// Returns its requests of now.
    pub fn requests(&mut self, installation: u64) -> Vec<BotRequest> {
        let several = match self.habit {
            Habit::Burst { size, .. } => size,
            Habit::KeepWaiting { in_hand } => in_hand.saturating_sub(self.pending),
            _ => 1,
        };
        (0..several).map(|_| self.next_request(installation)).collect()
    }

    /// Returns the time of its next request after an answer; `None` when this answer triggers none.
    pub fn again(&mut self, now: Timestamp) -> Option<Timestamp> {
        let retry_at = self.retry_at;
        let rests = match self.habit {
            Habit::KeepWaiting { .. } => return Some(now.max(retry_at)),
            _ if self.pending > 0 => return None,
            Habit::Poll { every } | Habit::Comment { every } | Habit::Burst { every, .. } => {
                self.about(every, 90, 110)
            }
            Habit::Crawl { pause } => self.about(pause, 50, 150),
            // Bots return at the named time, but not all at the same moment.
            _ if retry_at > now => {
                return Some(retry_at + Duration::from_millis(self.dice.below(1_000)));
            }
            _ => Duration::from_millis(1),
        };
        Some(now + rests)
    }

    fn next_request(&mut self, installation: u64) -> BotRequest {
        self.turn += 1;
        let (number, turn) = (self.number, self.turn);
        let mut patience = None;
        let read = |path: String| (Method::GET, path, String::new());
        let (method, path, body) = match self.habit {
            Habit::Poll { .. } => read(pick(&POLLED, number + turn).to_owned()),
            Habit::Crawl { .. } => {
                let issue = 1 + (number * 7 + turn) % ISSUES;
                read(format!("/repos/acme/widgets/issues/{issue}?of={number}.{turn}"))
            }
            Habit::Comment { .. } => self.comment(),
            Habit::Burst { .. } => {
                if self.dice.percent(5.0) {
                    patience = Some(Duration::from_millis(self.dice.between(20, 5_000)));
                }
                read(format!("{}?of={number}.{turn}", pick(&SHORT, turn)))
            }
            Habit::ReadAnything => {
                read(format!("{}?of={number}.{turn}", pick(&SHORT, number + turn)))
            }
            Habit::ReadOneEndpoint | Habit::KeepWaiting { .. } => {
                read(format!("/users/ada?of={number}.{turn}"))
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
        BotRequest { method, path, body: body.into(), patience }
    }

    fn comment(&mut self) -> (Method, String, String) {
        let issue = 1 + self.dice.below(ISSUES);
        let body = format!("{{\"body\":\"number {} of bot {}\"}}", self.turn, self.number);
        (Method::POST, format!("/repos/acme/widgets/issues/{issue}/comments"), body)
    }

    /// Draws a duration between two percentages of `length`.
    fn about(&mut self, length: Duration, least: u64, most: u64) -> Duration {
        let hundredths = self.dice.between(least, most);
        Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(0) * hundredths / 100)
    }
}

fn pick<'a>(from: &[&'a str], turn: u64) -> &'a str {
    let place = usize::try_from(turn).unwrap_or(0) % from.len().max(1);
    from.get(place).copied().unwrap_or("/")
}
