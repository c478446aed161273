//! The limits of one account as capacities, of which a replica of the gateway may hold a part
//! (`decision::fleet`).

use std::time::Duration;

use smallvec::SmallVec;

use super::sliding_window::SlidingWindow;
use super::{BURST, CUT_OFF_GRACE, HOUR, MINUTE, SPECIAL, Secondary, Weight};
use crate::api::EndpointId;
use crate::clock::Timestamp;
use crate::decision::types::LimitKind;

/// A capacity of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Slots, for as long as a request is under way.
    Concurrency,
    /// REST points of an endpoint in a minute.
    Points(EndpointId),
    /// Milliseconds of CPU time in a minute, in ten seconds, and those of GraphQL in a minute.
    Cpu,
    CpuBurst,
    GraphqlCpu,
    /// One of [`SPECIAL`].
    Special(usize),
}

/// What a request takes of a capacity, beside what is in use.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub capacity: Capacity,
    pub in_use: u32,
    pub amount: u32,
}

impl Capacity {
    /// The limit that it is a part of.
    pub fn limit(self) -> LimitKind {
        match self {
            Self::Concurrency => LimitKind::Concurrency,
            Self::Points(_) => LimitKind::Points,
            Self::Cpu | Self::CpuBurst => LimitKind::Cpu,
            Self::GraphqlCpu => LimitKind::GraphqlCpu,
            Self::Special(at) => SPECIAL.get(at).copied().unwrap_or(LimitKind::Points),
        }
    }

    /// The time for which use counts after it has ended.
    pub fn counts_for(self) -> Duration {
        match self {
            // The upstream goes on for so long with requests whose gateway is gone.
            Self::Concurrency => CUT_OFF_GRACE,
            Self::CpuBurst => BURST,
            Self::Special(at) => match SPECIAL.get(at) {
                Some(LimitKind::ContentPerHour | LimitKind::OauthTokens) => HOUR,
                _ => MINUTE,
            },
            _ => MINUTE,
        }
    }

    /// Its name for all replicas. `name` names an endpoint.
    pub fn name(self, name: &dyn Fn(EndpointId) -> String) -> String {
        match self {
            Self::Points(endpoint) => format!("points {}", name(endpoint)),
            Self::CpuBurst => "cpu_burst".to_owned(),
            _ => self.limit().name().to_owned(),
        }
    }
}

impl Secondary {
    /// What a request takes of each capacity.
    pub fn loads(&mut self, now: Timestamp, weight: Weight) -> SmallVec<[Load; 8]> {
        let mut loads = SmallVec::new();
        let mut load = |capacity, in_use, amount| loads.push(Load { capacity, in_use, amount });
        load(Capacity::Concurrency, self.slots.in_use(now), 1);
        load(Capacity::Cpu, self.cpu.used(now), self.cpu.limit.weigh(weight.cpu_millis));
        let burst = &mut self.cpu_burst;
        load(Capacity::CpuBurst, burst.used(now), burst.limit.weigh(weight.cpu_millis));
        if weight.graphql {
            let cpu = &mut self.special.graphql_cpu;
            load(Capacity::GraphqlCpu, cpu.used(now), cpu.limit.weigh(weight.cpu_millis));
        } else {
            let limit = self.rest_points.limit;
            let points = self.rest_points.get_mut(weight.endpoint);
            let used = points.map_or(0, |points| points.used(now));
            load(Capacity::Points(weight.endpoint), used, limit.weigh(weight.points));
        }
        let windows = self.special.windows.iter_mut().zip(weight.special()).enumerate();
        for (at, (window, amount)) in windows {
            if let Some(amount) = amount {
                load(Capacity::Special(at), window.used(now), window.limit.weigh(amount));
            }
        }
        loads
    }

    /// The amount in use of a capacity, and the whole of it.
    pub fn in_use(&mut self, now: Timestamp, capacity: Capacity) -> (u32, u32) {
        match capacity {
            Capacity::Concurrency => (self.slots.in_use(now), self.slots.max()),
            Capacity::Points(endpoint) => {
                let points = self.rest_points.get_mut(endpoint);
                (points.map_or(0, |points| points.used(now)), self.rest_points.limit.max)
            }
            _ => {
                self.window(capacity).map_or((0, 0), |window| (window.used(now), window.limit.max))
            }
        }
    }

    /// The time at which some of the use ends without an event.
    pub fn next_end(&mut self, now: Timestamp, capacity: Capacity) -> Option<Timestamp> {
        match capacity {
            Capacity::Concurrency => self.slots.next_grace_end(now),
            Capacity::Points(endpoint) => self.rest_points.get(endpoint)?.next_end(now),
            _ => self.window(capacity)?.next_end(now),
        }
    }

    /// Returns true if a request is a write that keeps a distance.
    pub fn is_spaced(&self, weight: Weight) -> bool {
        !self.special.writes.distance(weight.write).is_zero()
    }

    /// Returns true while such a write is in flight.
    pub fn spaced_in_flight(&self) -> bool {
        self.special.writes.is_any_in_flight()
    }

    /// Times of the last write, and of the last one that notifies.
    pub fn last_writes(&self) -> [Option<Timestamp>; 2] {
        self.special.writes.last()
    }

    /// Notes the last writes of all replicas.
    pub fn reported_writes(&mut self, last: [Option<Timestamp>; 2]) {
        self.special.writes.reported(last);
    }

    fn window(&mut self, capacity: Capacity) -> Option<&mut SlidingWindow> {
        match capacity {
            Capacity::Cpu => Some(&mut self.cpu),
            Capacity::CpuBurst => Some(&mut self.cpu_burst),
            Capacity::GraphqlCpu => Some(&mut self.special.graphql_cpu),
            Capacity::Special(at) => self.special.windows.get_mut(at),
            Capacity::Concurrency | Capacity::Points(_) => None,
        }
    }
}
