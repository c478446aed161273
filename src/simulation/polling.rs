//! Polling bots: their requests, the changes meanwhile, and the staleness of what they are served.
//!
//! The trace depends on the seed alone and not on any answer, so that different gateways get the
//! same requests. The run itself makes the changes: each resource has a version, and an answer
//! shows one.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::json;

use super::Unplayable;
use super::upstream::PEER;
use crate::clock::Timestamp;
use crate::emulator::Emulator;
use crate::random::Rng;

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
    /// Path and current version of each.
    resources: Vec<(String, u64)>,
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
        Self {
            polls,
            changes,
            resources: (0..RESOURCES).map(|resource| (path_of(resource), 0)).collect(),
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
        self.resources.iter().position(|(known, _)| known == path)
    }

    /// Returns the version at the upstream.
    pub fn version(&self, resource: usize) -> u64 {
        self.resources.get(resource).map_or(0, |(_, version)| *version)
    }

    /// Changes a resource at the upstream directly.
    pub fn change(
        &mut self,
        now: Timestamp,
        emulator: &mut Emulator,
        resource: usize,
    ) -> Result<(), Unplayable> {
        let Some((path, version)) = self.resources.get_mut(resource) else { return Ok(()) };
        *version += 1;
        let is_list = resource >= RESOURCES / 2;
        let (method, body, expected) = if is_list {
            (Method::POST, json!({ "body": format!("comment {version}") }), StatusCode::CREATED)
        } else {
            (Method::PATCH, json!({ "title": format!("title {version}") }), StatusCode::OK)
        };
        let mut request = Request::new(Bytes::from(body.to_string()));
        *request.method_mut() = method;
        *request.uri_mut() =
            path.parse().map_err(|_| Unplayable(format!("`{path}` is no path")))?;
        let writer = header::HeaderValue::from_static(WRITER);
        request.headers_mut().insert(header::AUTHORIZATION, writer);
        let status = emulator.respond(now, &request, PEER).status();
        if status != expected {
            return Err(Unplayable(format!("{path} cannot be changed: {status}")));
        }
        Ok(())
    }
}

pub(super) fn path_of(resource: usize) -> String {
    let number = resource + 1;
    let issue = format!("/repos/acme/widgets/issues/{number}");
    if resource < RESOURCES / 2 { issue } else { format!("{issue}/comments?per_page=100") }
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
