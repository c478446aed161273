//! The points of one account: a tally for each endpoint in use, all against one limit.
//!
//! Most accounts use few endpoints at a time. Few tallies are kept in a vector and scanned: they
//! are adjacent in memory, where a map needs two lookups.

use super::sliding_window::{Limit, Seldom, Tally};
use crate::api::EndpointId;
use crate::clock::Timestamp;
use crate::decision::types::HashMap;

/// Most tallies in the vector. Ours: half a KiB.
const FEW: usize = 16;
/// Number of tallies from which empty ones are dropped. Ours: a few dozen bytes each.
const SWEEP_FROM: usize = 8;

#[derive(Debug)]
pub struct Points {
    pub limit: Limit,
    sweep_at: u32,
    few: Vec<(EndpointId, Tally<Seldom>)>,
    /// Holds all tallies above [`FEW`].
    many: Option<Box<HashMap<EndpointId, Tally<Seldom>>>>,
}

impl Points {
    pub fn new(limit: Limit) -> Self {
        Self { limit, sweep_at: 0, few: Vec::new(), many: None }
    }

    pub fn nothing_in_flight(&mut self) {
        let many = self.many.iter_mut().flat_map(|many| many.values_mut());
        self.few.iter_mut().map(|(_, tally)| tally).chain(many).for_each(Tally::nothing_in_flight);
    }

    pub fn get(&self, endpoint: EndpointId) -> Option<&Tally<Seldom>> {
        match &self.many {
            None => self.few.iter().find(|(of, _)| *of == endpoint).map(|(_, tally)| tally),
            Some(many) => many.get(&endpoint),
        }
    }

    pub fn get_mut(&mut self, endpoint: EndpointId) -> Option<&mut Tally<Seldom>> {
        match &mut self.many {
            None => self.few.iter_mut().find(|(of, _)| *of == endpoint).map(|(_, tally)| tally),
            Some(many) => many.get_mut(&endpoint),
        }
    }

    /// Takes an amount that the limit admits. Returns true while the limit holds.
    pub fn enter(&mut self, now: Timestamp, endpoint: EndpointId, amount: u32) -> bool {
        self.with_tally(now, endpoint, |limit, tally| {
            tally.enter(limit, amount);
            tally.is_within(limit)
        })
    }

    /// Changes the tally of an endpoint, a new one if there is none.
    pub fn with_tally<R>(
        &mut self,
        now: Timestamp,
        endpoint: EndpointId,
        change: impl FnOnce(Limit, &mut Tally<Seldom>) -> R,
    ) -> R {
        let limit = self.limit;
        if let Some(tally) = self.get_mut(endpoint) {
            return change(limit, tally);
        }
        self.sweep(now);
        if let Some(many) = &mut self.many {
            return change(limit, many.entry(endpoint).or_default());
        }
        let mut tally = Tally::default();
        let changed = change(limit, &mut tally);
        self.few.push((endpoint, tally));
        changed
    }

    /// Drops the empty tallies when their number has doubled since the last sweep, and switches
    /// between vector and map.
    fn sweep(&mut self, now: Timestamp) {
        let most = SWEEP_FROM.max(self.sweep_at as usize);
        match &mut self.many {
            None if self.few.len() < most => return,
            None => self.few.retain_mut(|(_, tally)| !tally.is_empty(now)),
            Some(many) if many.len() < most => return,
            Some(many) => many.retain(|_, tally| !tally.is_empty(now)),
        }
        let left = self.len();
        self.sweep_at = u32::try_from(left * 2).unwrap_or(u32::MAX);
        if self.many.is_none() && left >= FEW {
            self.many = Some(Box::new(std::mem::take(&mut self.few).into_iter().collect()));
        } else if left < FEW / 2
            && let Some(many) = self.many.take()
        {
            self.few = many.into_iter().collect();
        }
    }

    pub fn len(&self) -> usize {
        self.many.as_ref().map_or(self.few.len(), |many| many.len())
    }

    /// Tallies with their endpoints.
    pub fn each(&self) -> impl Iterator<Item = (EndpointId, &Tally<Seldom>)> {
        let many = self.many.iter().flat_map(|many| many.iter());
        let few = self.few.iter().map(|(endpoint, tally)| (*endpoint, tally));
        few.chain(many.map(|(endpoint, tally)| (*endpoint, tally)))
    }

    pub fn tallies(&self) -> impl Iterator<Item = &Tally<Seldom>> {
        let many = self.many.iter().flat_map(|many| many.values());
        self.few.iter().map(|(_, tally)| tally).chain(many)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::{Dialect, Table};

    #[test]
    fn every_endpoint_has_its_own_tally_and_empty_ones_go() {
        let limit = Limit::new(Duration::from_mins(1), 3);
        let mut points = Points::new(limit);
        let endpoints: Vec<EndpointId> = Table::embedded(Dialect::Service)
            .endpoints()
            .iter()
            .map(|endpoint| endpoint.id)
            .take(300)
            .collect();
        let (used, later) = endpoints.split_at(100);
        let now = Timestamp::from_secs(1_000);
        for (number, endpoint) in used.iter().enumerate() {
            assert!((0..3).all(|_| points.enter(now, *endpoint, 1)));
            assert_eq!(points.len(), number + 1, "none is empty");
        }
        assert!(used.iter().all(|endpoint| {
            points.get_mut(*endpoint).is_some_and(|points| !points.has_room(limit, now, 1))
        }));
        assert!(points.many.is_some());
        for endpoint in &used[5..] {
            points.get_mut(*endpoint).unwrap().leave(limit, now, 3, 0);
        }
        for endpoint in later {
            points.enter(now, *endpoint, 1);
            points.get_mut(*endpoint).unwrap().leave(limit, now, 1, 0);
        }
        assert!(points.many.is_none() && points.len() <= FEW, "{} are left", points.len());
        assert!(
            endpoints[..5].iter().all(|endpoint| points
                .get(*endpoint)
                .is_some_and(|points| points.in_use(now) == 3))
        );
        assert_eq!(points.tallies().map(|points| points.in_use(now)).sum::<u32>(), 15);
    }
}
