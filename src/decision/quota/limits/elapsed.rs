//! The duration of an endpoint's answers: the estimate by which CPU time is reserved (SPECIFICATION
//! D5).
//!
//! Each endpoint has a histogram in steps of about a fifth, in which recent answers outweigh old
//! ones. The upstream's own time is unknown, so the time from admission to answer is measured.

use crate::api::EndpointId;

/// Longest time that is believed: the service ends a request after 10 s (SPECIFICATION, "Limits in
/// practice").
pub const ELAPSED_MILLIS_MAX: u32 = 10_000;
/// Answers after which the older ones count half. Ours: minutes of traffic of a busy endpoint.
const MEMORY: u32 = 400;
/// Percentile of the estimate (SPECIFICATION D5).
const PERCENTILE: u32 = 95;
/// Upper ends of the histogram's steps, in milliseconds.
const STEPS: [u32; 41] = steps();

const fn steps() -> [u32; 41] {
    let mut ends = [0; 41];
    let mut step = 1;
    let mut at = 0;
    while at < ends.len() {
        ends[at] = step;
        let next = step * 5 / 4;
        step = if next > step { next } else { step + 1 };
        at += 1;
    }
    ends[ends.len() - 1] = ELAPSED_MILLIS_MAX;
    ends
}

#[derive(Clone, Debug)]
struct Histogram {
    counts: [u16; STEPS.len()],
    total: u32,
    /// Step of the estimate, and the number of answers below it. Both move by a step or two with
    /// each answer, so no search is needed.
    step: usize,
    below: u32,
}

impl Histogram {
    const EMPTY: Self = Self { counts: [0; STEPS.len()], total: 0, step: 0, below: 0 };

    fn add(&mut self, millis: u32) {
        let place = STEPS.partition_point(|end| *end < millis).min(STEPS.len() - 1);
        self.counts[place] += 1;
        self.total += 1;
        self.below += u32::from(place < self.step);
        if self.total >= MEMORY {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().copied().map(u32::from).sum();
            self.below = self.counts[..self.step].iter().copied().map(u32::from).sum();
        }
        self.move_step();
    }

    /// Moves to the first step whose end covers enough answers.
    fn move_step(&mut self) {
        let wanted = (self.total * PERCENTILE).div_ceil(100);
        while self.below >= wanted && self.step > 0 {
            self.step -= 1;
            self.below -= u32::from(self.counts[self.step]);
        }
        while self.below + u32::from(self.counts[self.step]) < wanted && self.step + 1 < STEPS.len()
        {
            self.below += u32::from(self.counts[self.step]);
            self.step += 1;
        }
    }
}

#[derive(Debug, Default)]
pub struct Elapsed {
    by_endpoint: Vec<Histogram>,
}

impl Elapsed {
    /// Milliseconds that 95 of 100 answers of this endpoint take at most; `None` before the first
    /// answer.
    pub fn estimate(&self, endpoint: EndpointId) -> Option<u32> {
        self.by_endpoint
            .get(endpoint.index())
            .filter(|histogram| histogram.total > 0)
            .map(|histogram| STEPS[histogram.step])
    }

    pub fn took(&mut self, endpoint: EndpointId, millis: u32) {
        if self.by_endpoint.len() <= endpoint.index() {
            self.by_endpoint.resize(endpoint.index() + 1, Histogram::EMPTY);
        }
        self.by_endpoint[endpoint.index()].add(millis);
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::api::{Dialect, Table};

    fn endpoint() -> EndpointId {
        Table::embedded(Dialect::Service).classify(&Method::GET, "/repos/a/b").endpoint.id
    }

    fn after(answers: impl IntoIterator<Item = u32>) -> u32 {
        let mut elapsed = Elapsed::default();
        answers.into_iter().for_each(|millis| elapsed.took(endpoint(), millis));
        elapsed.estimate(endpoint()).unwrap()
    }

    #[test]
    fn an_endpoint_without_answers_has_no_estimate() {
        assert_eq!(Elapsed::default().estimate(endpoint()), None);
    }

    #[test]
    fn the_steps_grow_and_end_at_the_longest_time() {
        assert!(STEPS.is_sorted_by(|one, other| one < other), "{STEPS:?}");
        assert_eq!(STEPS.last(), Some(&ELAPSED_MILLIS_MAX));
    }

    #[test]
    fn rare_slow_answers_do_not_raise_the_estimate() {
        assert!(after((0..100).map(|number| if number == 50 { 9_000 } else { 100 })) < 130);
        assert!(after((0..100).map(|number| if number % 10 == 0 { 9_000 } else { 100 })) >= 9_000);
    }

    #[test]
    fn the_estimate_is_at_most_a_quarter_above_usual_answers() {
        for millis in [1, 7, 100, 999, 4_321] {
            let estimate = after([millis; 30]);
            assert!(estimate >= millis && estimate <= millis * 5 / 4 + 1, "{millis}: {estimate}");
        }
    }

    #[test]
    fn recent_answers_outweigh_old_ones() {
        let changed = (0..2_000).map(|_| 2_000).chain((0..3_000).map(|_| 10));
        assert!(after(changed) < 20);
    }

    #[test]
    fn the_estimate_is_capped_at_the_service_timeout() {
        assert_eq!(after([60_000]), ELAPSED_MILLIS_MAX);
    }
}
