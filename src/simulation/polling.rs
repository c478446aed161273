//! Polling bots: their requests, the changes meanwhile, and the staleness of what they are served.
//!
//! The trace depends on the seed alone and not on any answer, so that different gateways get the
//! same requests. The run itself makes the changes: each resource has a version, and an answer
//! shows one.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use serde_json::{Value, json};

use super::Unplayable;
use super::upstream::PEER;
use crate::clock::Timestamp;
use crate::emulator::Emulator;
use crate::random::Rng;

const ISSUES: &str = "/repos/acme/widgets/issues";
/// Number of resources: single issues, and as many lists of comments, each of another issue so that
/// no change affects two of them.
pub const RESOURCES: usize = 40;
/// Changes in a minute: 5 % of the resources.
const CHANGES_A_MINUTE: usize = RESOURCES / 20;
/// Resources that one bot watches. Our choice.
pub const WATCHED: usize = 8;
/// Bounds of the time between two rounds of a bot, in seconds. Our choice: the usual setting of
/// pollers.
const ROUND_SECS: (u64, u64) = (30, 90);
/// A round's requests are spread over so many milliseconds.
const ROUND_MILLIS: u64 = 2_000;
/// Lists of the dense trace. Our choice: each has a quarter of the bots, or all of them.
const LISTS: usize = 5;
/// Bounds of the time between two polls of the dense trace, in parts of a second.
const POLL_SECONDS: (f64, f64) = (0.9, 1.1);
/// Time between two changes of the dense trace. Our choice.
const CHANGE_EVERY: Duration = Duration::from_secs(5);
/// One bot in so many is a scheduled job: it begins at the full minute with all requests at once.
const SCHEDULED: u32 = 5;
const MINUTE: Duration = Duration::from_mins(1);
/// A user of the seed world with write access, who is none of the reading accounts.
const WRITER: &str = "Bearer emu_classic_ada_all_scopes";

/// Requests and changes, by their time since the beginning.
#[derive(Debug, Default)]
pub(super) struct Polling {
    pub polls: Vec<Polled>,
    /// Times and resource indices.
    pub changes: Vec<(Duration, usize)>,
    resources: Vec<Resource>,
}

/// A polled resource.
#[derive(Debug)]
struct Resource {
    path: String,
    /// Its changes so far; their number is its version.
    changed_at: Vec<Timestamp>,
    /// Path and method of its next change.
    change: (Method, String),
}

/// A bot's request for a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Polled {
    pub after: Duration,
    pub bot: usize,
    pub resource: usize,
}

impl Polling {
    pub fn new(seed: u64, bots: u32, length: Duration) -> Self {
        let polls = (0..bots).flat_map(|bot| Self::rounds(seed, bot, length)).collect();
        let mut dice = Rng::for_purpose(seed, 500);
        let mut changes = Vec::new();
        for minute in 0..u32::try_from(length.as_secs() / 60).unwrap_or(u32::MAX) {
            for resource in several(&mut dice, CHANGES_A_MINUTE) {
                changes
                    .push((MINUTE * minute + Duration::from_millis(dice.below(60_000)), resource));
            }
        }
        let issues = (1..=RESOURCES / 2).map(Resource::issue);
        let lists = (RESOURCES / 2 + 1..=RESOURCES).map(Resource::comments);
        Self { polls, changes, resources: issues.chain(lists).collect() }
    }

    /// Polls the first list, and one of the others, about once a second from every bot.
    pub fn dense(seed: u64, bots: u32, length: Duration) -> Self {
        let polls = (0..bots).flat_map(|bot| {
            let mut dice = Rng::for_purpose(seed, 10_000 + u64::from(bot));
            let bot = usize::try_from(bot).unwrap_or(0);
            let mut after = Duration::from_secs_f64(dice.unit());
            std::iter::from_fn(move || {
                let (now, (least, most)) = (after, POLL_SECONDS);
                after += Duration::from_secs_f64(least + (most - least) * dice.unit());
                (now < length).then_some(now)
            })
            .flat_map(move |after| {
                [0, 1 + bot % (LISTS - 1)].map(|resource| Polled { after, bot, resource })
            })
        });
        let mut dice = Rng::for_purpose(seed, 500);
        let mut change = |number| {
            let within = Duration::from_millis(dice.below(CHANGE_EVERY.as_secs() * 1_000));
            let list = usize::try_from(dice.below(LISTS as u64)).unwrap_or(0);
            (CHANGE_EVERY * number + within, list)
        };
        let number = length.as_secs() / CHANGE_EVERY.as_secs();
        let changes = 0..u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            polls: polls.collect(),
            changes: changes.map(&mut change).collect(),
            resources: (1..=LISTS).map(Resource::comments).collect(),
        }
    }

    fn rounds(seed: u64, bot: u32, length: Duration) -> Vec<Polled> {
        let mut dice = Rng::for_purpose(seed, 10_000 + u64::from(bot));
        let watched = several(&mut dice, WATCHED);
        let is_scheduled = bot.is_multiple_of(SCHEDULED);
        let every = Duration::from_secs(dice.between(ROUND_SECS.0, ROUND_SECS.1));
        let mut begins = if is_scheduled { Duration::ZERO } else { every.mul_f64(dice.unit()) };
        let mut polls = Vec::new();
        while begins < length {
            for resource in &watched {
                let spread = if is_scheduled { 0 } else { dice.below(ROUND_MILLIS) };
                polls.push(Polled {
                    after: begins + Duration::from_millis(spread),
                    bot: usize::try_from(bot).unwrap_or(0),
                    resource: *resource,
                });
            }
            begins += if is_scheduled { MINUTE } else { every.mul_f64(0.9 + 0.2 * dice.unit()) };
        }
        polls
    }

    /// Finds the polled resource of this path.
    pub fn resource(&self, path: &str) -> Option<usize> {
        self.resources.iter().position(|resource| resource.path == path)
    }

    pub fn path(&self, resource: usize) -> Option<&str> {
        self.resources.get(resource).map(|resource| resource.path.as_str())
    }

    /// Returns the version at the upstream.
    pub fn version(&self, resource: usize) -> u64 {
        self.resources.get(resource).map_or(0, |resource| resource.changed_at.len() as u64)
    }

    /// Returns the time since the version `shown` was replaced; `None` for the current one.
    pub fn outdated_for(&self, resource: usize, shown: u64, now: Timestamp) -> Option<Duration> {
        let changed_at = &self.resources.get(resource)?.changed_at;
        Some(now.since(*changed_at.get(usize::try_from(shown).ok()?)?))
    }

    /// Changes a resource at the upstream directly.
    pub fn change(
        &mut self,
        now: Timestamp,
        emulator: &mut Emulator,
        resource: usize,
    ) -> Result<(), Unplayable> {
        let Some(resource) = self.resources.get_mut(resource) else { return Ok(()) };
        resource.changed_at.push(now);
        resource.change(now, emulator)
    }
}

impl Resource {
    fn issue(number: usize) -> Self {
        let path = format!("{ISSUES}/{number}");
        Self { change: (Method::PATCH, path.clone()), path, changed_at: Vec::new() }
    }

    /// The first change adds a comment, and later ones edit it: the list stays one page.
    fn comments(number: usize) -> Self {
        let path = format!("{ISSUES}/{number}/comments");
        Self {
            path: format!("{path}?per_page=100"),
            changed_at: Vec::new(),
            change: (Method::POST, path),
        }
    }

    fn change(&mut self, now: Timestamp, emulator: &mut Emulator) -> Result<(), Unplayable> {
        let (method, path) = &self.change;
        let text = format!("version {}", self.changed_at.len());
        let body = json!({ "title": text, "body": text });
        let mut request = Request::new(Bytes::from(body.to_string()));
        *request.method_mut() = method.clone();
        *request.uri_mut() =
            path.parse().map_err(|_| Unplayable(format!("`{path}` is no path")))?;
        let writer = header::HeaderValue::from_static(WRITER);
        request.headers_mut().insert(header::AUTHORIZATION, writer);
        let response = emulator.respond(now, &request, PEER);
        if !response.status().is_success() {
            return Err(Unplayable(format!("{path} cannot be changed: {}", response.status())));
        }
        if *method == Method::POST {
            let comment: Value = serde_json::from_slice(response.body()).unwrap_or_default();
            self.change = (Method::PATCH, format!("{ISSUES}/comments/{}", comment["id"]));
        }
        Ok(())
    }
}

/// Draws `count` different resources.
fn several(dice: &mut Rng, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..RESOURCES).collect();
    let mut drawn = || all.swap_remove(usize::try_from(dice.below(all.len() as u64)).unwrap_or(0));
    (0..count).map(|_| drawn()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_polling_trace_depends_on_its_seed_alone() {
        let hour = Duration::from_hours(1);
        let (one, again, other) =
            (Polling::new(1, 50, hour), Polling::new(1, 50, hour), Polling::new(2, 50, hour));
        let polls_of = |polling: &Polling| {
            polling.polls.iter().map(|poll| (poll.after, poll.resource)).collect::<Vec<_>>()
        };
        assert_eq!(polls_of(&one), polls_of(&again));
        assert_ne!(polls_of(&one), polls_of(&other));
        assert_eq!(one.changes.len(), 120);
        for minute in one.changes.chunks(2) {
            assert_ne!(minute[0].1, minute[1].1);
            assert_eq!(minute[0].0.as_secs() / 60, minute[1].0.as_secs() / 60);
        }
    }
}
