//! A small upstream for property tests: its own windows and secondary limits, and a wire that
//! delays, reorders and loses.
//!
//! It shares no code with the emulator or the ledger, so that a misreading is not made twice.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use http::StatusCode;

use crate::api::{RateHeaders, ResourceName, UpstreamLimit, UpstreamLimitKind};
use crate::clock::Timestamp;

use crate::decision::types::{AccountId, LeaseId};

/// Small generator, seeded by the test so that a failure can be repeated.
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

    /// Index in a list of `len`.
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

/// Behaviour of the upstream.
#[derive(Clone, Debug)]
pub(in super::super) struct World {
    pub(in super::super) limit: u32,
    pub(in super::super) window: Duration,
    /// Percentage of lost requests or answers.
    pub(in super::super) lost: u64,
    /// Percentage of 304 answers.
    pub(in super::super) free: u64,
    /// Percentage of requests denied by a sudden secondary limit.
    pub(in super::super) sudden: u64,
    /// Units per second that an outside consumer takes of every account.
    pub(in super::super) outside_per_second: u32,
}

/// True state of one account.
#[derive(Clone, Debug, Default)]
struct Truth {
    end: Timestamp,
    used: u32,
    outside_until: Timestamp,
    /// Units used in each past window.
    past: Vec<u32>,
}

/// End of a request, as its sender sees it.
#[derive(Clone, Debug)]
pub(in super::super) enum Ending {
    Lost,
    Answered { status: StatusCode, rate: RateHeaders, refusal: Option<UpstreamLimit> },
}

enum Wire {
    Arrives(AccountId, LeaseId),
    Ends(LeaseId, Ending),
}

pub(in super::super) struct Upstream {
    world: World,
    pub(in super::super) chance: Chance,
    accounts: HashMap<AccountId, Truth>,
    wire: BinaryHeap<(Reverse<(Timestamp, u64)>, usize)>,
    messages: Vec<Option<Wire>>,
    /// Requests denied by the primary limit.
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

    /// Sends a request to the upstream.
    pub(in super::super) fn send(&mut self, now: Timestamp, account: AccountId, lease: LeaseId) {
        if self.chance.percent(self.world.lost) {
            // Half of the lost requests never arrive.
            if self.chance.percent(50) {
                return self.post(now + Duration::from_secs(5), Wire::Ends(lease, Ending::Lost));
            }
        }
        // One in a hundred is slow in either direction: into the next window, and past many others.
        let arrival = now
            + if self.chance.percent(1) {
                self.chance.millis(10_000)
            } else {
                self.chance.millis(400)
            };
        self.post(arrival, Wire::Arrives(account, lease));
    }

    /// Time of the next event.
    pub(in super::super) fn next(&self) -> Option<Timestamp> {
        self.wire.peek().map(|(Reverse((at, _)), _)| *at)
    }

    /// Runs the next event; an ending must be settled.
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

    /// Used part of the budgets in past windows.
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
            Some(UpstreamLimit {
                kind: UpstreamLimitKind::Secondary,
                retry_after: Some(Duration::from_secs(20)),
                reset,
                remaining,
                resource,
            })
        } else {
            refused.then_some(UpstreamLimit {
                kind: UpstreamLimitKind::Primary,
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

/// Most arrivals in any window, counted afterwards.
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
