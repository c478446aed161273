//! An upstream in a small_list lines, for property tests: its own truth about windows and secondary
//! limits, and a wire that delays, reorders and loses.
//!
//! Not the emulator: it shares no code with it and none with the windows, so that a misreading is not
//! made twice.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use http::StatusCode;

use crate::api::{RateHeaders, ResourceName, UpstreamLimit};
use crate::clock::Timestamp;

use crate::decision::types::{AccountId, LeaseId};

/// A small generator, seeded by the test so that a failure can be repeated.
#[derive(Clone, Debug)]
pub(in super::super) struct Chance(pub(in super::super) u64);

impl Chance {
    /// From 0 up to `end`, excluded.
    pub(in super::super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    /// A place in a list of `len`.
    pub(in super::super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below len")
    }

    /// True in `percent` of a hundred cases.
    pub(in super::super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(in super::super) fn millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}

/// What an upstream is like.
#[derive(Clone, Debug)]
pub(in super::super) struct World {
    pub(in super::super) limit: u32,
    pub(in super::super) window: Duration,
    /// Percent of requests or answers that are lost.
    pub(in super::super) lost: u64,
    /// Percent of answers that are 304.
    pub(in super::super) free: u64,
    /// Percent of requests that are refused for a secondary limit out of the blue.
    pub(in super::super) sudden: u64,
    /// Units a second that somebody else takes of every account.
    pub(in super::super) outside_per_second: u32,
}

/// One account's truth.
#[derive(Clone, Debug, Default)]
struct Truth {
    end: Timestamp,
    used: u32,
    outside_until: Timestamp,
    /// Units used in each window that is over.
    past: Vec<u32>,
}

/// How a request ended, as its sender sees it.
#[derive(Clone, Debug)]
pub(in super::super) enum Ending {
    Lost,
    Answered { status: StatusCode, rate: RateHeaders, refusal: Option<UpstreamLimit> },
}

enum Wire {
    Arrives(AccountId, LeaseId),
    Ends(LeaseId, Ending),
}

/// The upstream and the wire to it.
pub(in super::super) struct Upstream {
    world: World,
    pub(in super::super) chance: Chance,
    accounts: HashMap<AccountId, Truth>,
    wire: BinaryHeap<(Reverse<(Timestamp, u64)>, usize)>,
    messages: Vec<Option<Wire>>,
    /// Refusals for the primary limit.
    pub(in super::super) refused: u32,
    /// Requests that were counted.
    pub(in super::super) counted: u32,
}

impl Upstream {
    pub(in super::super) fn new(world: World, seed: u64) -> Self {
        let (wire, messages) = (BinaryHeap::new(), Vec::new());
        Self {
            world,
            chance: Chance(seed),
            accounts: HashMap::new(),
            wire,
            messages,
            refused: 0,
            counted: 0,
        }
    }

    /// A request leaves for the upstream.
    pub(in super::super) fn send(&mut self, now: Timestamp, account: AccountId, lease: LeaseId) {
        if self.chance.percent(self.world.lost) {
            // Half of what is lost never arrives.
            if self.chance.percent(50) {
                return self.post(now + Duration::from_secs(5), Wire::Ends(lease, Ending::Lost));
            }
        }
        // One in a hundred dawdles, on either way: into the next window, and past many others.
        let arrival = now
            + if self.chance.percent(1) {
                self.chance.millis(10_000)
            } else {
                self.chance.millis(400)
            };
        self.post(arrival, Wire::Arrives(account, lease));
    }

    /// When something happens next.
    pub(in super::super) fn next(&self) -> Option<Timestamp> {
        self.wire.peek().map(|(Reverse((at, _)), _)| *at)
    }

    /// Lets the next thing happen; an ending is to be settled.
    pub(in super::super) fn step(&mut self) -> Option<(Timestamp, LeaseId, Ending)> {
        let (Reverse((now, _)), message) = self.wire.pop()?;
        match self.messages[message].take()? {
            Wire::Ends(lease, ending) => Some((now, lease, ending)),
            Wire::Arrives(account, lease) => {
                let answer = self.arrive(now, account);
                let lost = self.chance.percent(self.world.lost / 2 + self.world.lost % 2);
                let delay = if self.chance.percent(1) {
                    self.chance.millis(20_000)
                } else {
                    self.chance.millis(1_500)
                };
                let (ending, delay) =
                    if lost { (Ending::Lost, Duration::from_secs(5)) } else { (answer, delay) };
                self.post(now + delay, Wire::Ends(lease, ending));
                None
            }
        }
    }

    /// The part of the budgets that was used in the windows that are over.
    pub(in super::super) fn utilisation(&self) -> f64 {
        let past: Vec<u32> =
            self.accounts.values().flat_map(|truth| truth.past.iter().copied()).collect();
        let used: u32 = past.iter().sum();
        f64::from(used)
            / (f64::from(self.world.limit) * f64::from(u32::try_from(past.len()).unwrap()))
    }

    pub(in super::super) fn windows_over(&self) -> usize {
        self.accounts.values().map(|truth| truth.past.len()).min().unwrap_or_default()
    }

    fn post(&mut self, at: Timestamp, message: Wire) {
        let number = self.messages.len();
        self.messages.push(Some(message));
        self.wire.push((Reverse((at, number as u64)), number));
    }

    fn arrive(&mut self, now: Timestamp, account: AccountId) -> Ending {
        let World { limit, window, free, sudden, outside_per_second, .. } = self.world;
        let truth = self.accounts.entry(account).or_default();
        if now >= truth.end {
            if truth.end > Timestamp::EPOCH {
                truth.past.push(truth.used);
            }
            *truth = Truth {
                end: Timestamp::from_secs(now.as_secs()) + window,
                used: 0,
                outside_until: now,
                past: std::mem::take(&mut truth.past),
            };
        }
        let outside =
            u32::try_from(now.since(truth.outside_until).as_secs()).unwrap() * outside_per_second;
        if outside > 0 {
            truth.used = limit.min(truth.used + outside);
            truth.outside_until = now;
        }
        let refused = truth.used >= limit;
        let is_sudden = self.chance.percent(sudden);
        let is_free = self.chance.percent(free);
        truth.used += u32::from(!refused && !is_free && !is_sudden);
        self.counted += u32::from(!refused && !is_free && !is_sudden);
        self.refused += u32::from(refused && !is_sudden);
        let wobble = Duration::from_secs(self.chance.below(3));
        let rate = RateHeaders {
            limit,
            remaining: limit - truth.used,
            used: Some(truth.used),
            reset: truth.end + wobble - Duration::from_secs(1),
            resource: Some(ResourceName::core()),
        };
        let (reset, remaining, resource) =
            (Some(rate.reset), Some(rate.remaining), rate.resource.clone());
        let refusal = if is_sudden {
            Some(UpstreamLimit::Secondary {
                retry_after: Some(Duration::from_secs(20)),
                reset,
                remaining,
                resource,
            })
        } else {
            refused.then_some(UpstreamLimit::Primary {
                retry_after: None,
                reset,
                remaining,
                resource,
            })
        };
        let status = match (&refusal, is_free) {
            (Some(_), _) => StatusCode::FORBIDDEN,
            (None, true) => StatusCode::NOT_MODIFIED,
            (None, false) => StatusCode::OK,
        };
        Ending::Answered { status, rate, refusal }
    }
}

/// Arrivals in sliding windows, counted after the fact.
pub(in super::super) fn most_in_any(window: Duration, arrivals: &mut [Timestamp]) -> usize {
    arrivals.sort_unstable();
    let mut recent: VecDeque<Timestamp> = VecDeque::new();
    let mut most = 0;
    for arrival in arrivals.iter().copied() {
        while recent.front().is_some_and(|first| *first + window < arrival) {
            recent.pop_front();
        }
        recent.push_back(arrival);
        most = most.max(recent.len());
    }
    most
}
